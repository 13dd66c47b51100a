"""`python -m components.stages.resolve`: params.yaml, studies/params.yaml and the code -> data/resolved/, studies/trainings.json."""

import sys

from components import params
from components.core.errors import SesameError
from components.stages import resolve

try:
    if changed := resolve.refresh(params.load()):
        print(f"resolve: {', '.join(map(str, changed[:5]))}{' ...' * (len(changed) > 5)} ({len(changed):,} files written or removed)")
except SesameError as error:
    print(f"resolve: {error}", file=sys.stderr)
    sys.exit(error.status)
