"""`make install`: pip into .venv, and a line that says how far it is. Needs Python's own library only: nothing else is there yet."""

import re
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

VENV = Path(".venv")
PIP = [".venv/bin/pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "-c", "constraints.txt", "-e", ".[test]"]
EVERY = 1.0 if sys.stdout.isatty() else 15.0
"""Seconds between two states; a log gets fewer of them."""


class Progress:
    """What pip says it is doing, and how many packages of how many stand in .venv."""

    def __init__(self):
        self.begun, self.pinned = time.monotonic(), len(re.findall(r"^[^#\s]+==", Path("constraints.txt").read_text(), re.M))
        self.looked, self.doing, self.ended = 0, "starting pip", threading.Event()

    def read(self, line: str) -> None:
        if line.startswith("Collecting "):
            self.looked += 1
            self.doing = f"looking up {self.looked} of about {self.pinned} packages: {re.split('[ <>=!;(]', line)[1]}"
        elif line.startswith("  Downloading "):
            self.doing = f"downloading {line.split()[1].partition('-')[0]} {' '.join(line.split()[2:])}"
        elif line.startswith("Installing collected packages"):
            self.doing = "installing"

    def show(self) -> None:
        while not self.ended.wait(EVERY):
            done = len(list(VENV.glob("lib/python*/site-packages/*.dist-info")))
            doing = f"installing: {done} of about {self.pinned} packages" if self.doing == "installing" else self.doing
            text = f"{time.monotonic() - self.begun:4.0f} s  {doing}"[:100]
            print(f"\r{text:<100}" if sys.stdout.isatty() else text, end="" if sys.stdout.isatty() else "\n", flush=True)


def main() -> int:
    """Pip's exit code; its warnings and errors are printed as they are, and where it fails also what it said last: the
    versions that don't fit together are no error to it."""
    print("installing into .venv: takes two to four minutes and about 2 GiB of disk", flush=True)
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    progress = Progress()
    shown = threading.Thread(target=progress.show, daemon=True)
    shown.start()
    last: deque[str] = deque(maxlen=10)
    with subprocess.Popen(PIP, stdout=subprocess.PIPE, text=True) as pip:
        for line in pip.stdout:
            progress.read(line)
            last.append(line)
    progress.ended.set()
    shown.join()
    back, ended = "\r" * sys.stdout.isatty(), "not installed" if pip.returncode else "installed"
    if pip.returncode:
        print(back, *last, sep="", end="")
    print(f"{back}{ended} after {time.monotonic() - progress.begun:.0f} s{' ' * 80}")
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main())
