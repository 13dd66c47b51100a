"""On a terminal a run is a board of what runs now; elsewhere, and by --lines, it is the lines of all stages."""

import os
import pty
import re
import subprocess

import pytest

from tests.pipelines.conftest import BIN, Lab

STAGES = """\
  good: {cmd: 'echo from good; sleep 2; echo > good.out', outs: [good.out]}
  bad: {cmd: 'echo from bad; echo why >&2; exit 1', deps: [good.out], outs: [bad.out]}
  after: {cmd: echo > after.out, deps: [bad.out], outs: [after.out]}
"""


def on_terminal(lab: Lab, *args: str) -> str:
    """What `sesame` writes to a terminal of 100 columns."""
    ours, its = pty.openpty()
    environment = os.environ | lab.env | {"COLUMNS": "100", "TERM": "xterm-256color"}
    process = subprocess.Popen([BIN / "sesame", *args], cwd=lab.path, env=environment, stdin=its, stdout=its, stderr=its)
    os.close(its)
    output = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side has ended
            break
        if not part:
            break
        output += part
    os.close(ours)
    assert process.wait() == 1
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode())


@pytest.mark.parametrize("lines", [False, True])
def test_a_run_on_a_terminal(lab, lines):
    said = on_terminal(lab.stages(STAGES), "run", *(["--lines"] if lines else []))
    shown = [line.strip() for line in re.split(r"[\r\n]+", said)]
    assert any(re.fullmatch(r"\[good\] done in \d+\.\d s \(1/3\)", line) for line in shown)
    # the lines of what has failed are there either way, before the last one of it
    failed = next(i for i, line in enumerate(shown) if re.fullmatch(r"\[bad\] failed: .*why.* \(2/3\)", line))
    assert "[bad] from bad" in shown[:failed] and "[bad] why" in shown[:failed]
    assert any(line.startswith("[after] skipped: not run, because bad failed") for line in shown)
    assert ("[good] from good" in shown) == lines
    board = [line for line in shown if re.fullmatch(r"good +\d s +from good", line)]
    assert bool(board) != lines, "the last line of what runs"
    assert any("0/3 stages" in line or "1/3 stages" in line for line in shown) != lines
