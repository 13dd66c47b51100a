"""`python -m components.resolve`: params.yaml, studies/params.yaml and the code -> data/resolved.json, studies/trainings.json."""

import sys

from components import params, resolve
from components.errors import SesameError

try:
    for path in resolve.refresh(params.load()):
        print(f"resolve: {path} written")
except SesameError as error:
    print(f"resolve: {error}", file=sys.stderr)
    sys.exit(error.status)
