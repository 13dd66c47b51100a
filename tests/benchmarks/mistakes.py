"""Do the tests notice mistakes? `make mistakes`, or `python -m tests.benchmarks.mistakes [WORD...]` for those with a word in their name.

Each mistake below is made in a temporary copy of the tree (with what is not committed yet; your own files are only read), and the tests
that should notice it are run there. Exits with 1 where one was not noticed. One more mistake is an entry of the list.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.mistakes_list import MISTAKES, Mistake

ROOT = Path(__file__).parents[2]


class Outcome(NamedTuple):
    """What came of a mistake."""

    noticed: bool
    seconds: float
    by: str
    """The test that failed first; what pytest says last where none did."""


def wrong(mistake: Mistake, root: Path = ROOT) -> str:
    """The file's text with the mistake in it. Raises ValueError where the text to be replaced is not there once."""
    text = (root / mistake.file).read_text(encoding="utf-8")
    if (count := text.count(mistake.old)) != 1:
        raise ValueError(
            f"{mistake.name}: {mistake.file} has the text to be replaced {count} times, not once; mend the entry: {mistake.old!r}"
        )
    return text.replace(mistake.old, mistake.new)


def copy(folder: Path) -> None:
    """The tree as it stands: what git knows, and what it does not ignore; git knows it there, too, since some tests ask it for files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():  # one that was deleted is still listed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for own in (["init", "--quiet"], ["add", "--all", "--force"]):  # by force: git may know a file that it would ignore
        subprocess.run(["git", *own], cwd=folder, check=True)


def test(folder: Path, tests: list[str]) -> tuple[int, str]:
    """pytest's exit status in a copy, and its output. The environment's packages lead back to the user's tree, so the copy comes first."""
    # a file of the same size and second has the same bytecode
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "--no-header", "-rf", "-m", "", *tests]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def attempt(mistake: Mistake, folder: Path) -> Outcome:
    """Make a mistake in the copy, run its tests, take it back. Raises RuntimeError where the tests could not be run with it."""
    file, started = folder / mistake.file, time.monotonic()
    right = file.read_text(encoding="utf-8")
    file.write_text(wrong(mistake, folder), encoding="utf-8")
    try:
        status, output = test(folder, mistake.tests.split())
    finally:
        file.write_text(right, encoding="utf-8")
    if status not in (0, 1):  # no test passed or failed: it can't be collected, is not there, or pytest was killed
        raise RuntimeError(f"{mistake.name}: pytest ended with {status}\n{output}")
    failed = [line.split()[1] for line in output.splitlines() if line.startswith("FAILED ")]
    return Outcome(status == 1, time.monotonic() - started, failed[0] if failed else output.splitlines()[-1])


def main(*words: str) -> None:
    chosen = [mistake for mistake in MISTAKES if not words or any(word in mistake.name for word in words)]
    for mistake in chosen:
        wrong(mistake)
    with tempfile.TemporaryDirectory(prefix="mistakes-") as name:
        folder = Path(name)
        copy(folder)
        print(f"{len(chosen)} mistakes; first their tests without any", flush=True)
        status, output = test(folder, sorted({one for mistake in chosen for one in mistake.tests.split()}))
        if status:  # a test that fails anyway would notice everything
            sys.exit(f"{output}\nnothing tried: the tests fail, or can't be run, without a mistake")
        unnoticed, width = [], max(len(mistake.name) for mistake in chosen)
        for mistake in chosen:
            outcome = attempt(mistake, folder)
            unnoticed += [] if outcome.noticed else [mistake.name]
            verdict = "noticed" if outcome.noticed else "NOT    "
            print(f"{mistake.name:{width}}  {verdict}  {outcome.seconds:4.0f} s  {outcome.by}", flush=True)
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} noticed")
    sys.exit(f"not noticed: {', '.join(unnoticed)}" if unnoticed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
