"""Hosts that are namespaces of this machine: each with an address, a name, processes and mounts of its own, on a bridge that leads nowhere.

All of them live in one process namespace, whose first process ends with this one, however that ends: the system then kills what runs on the
hosts, and takes networks and mounts away with the last of it. Files are this machine's.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

HEAD = "head"
"""The host beside the bridge."""
NEW = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
ADDRESS = "10.77.0.{}"


class Hosts:
    """`head` and the named ones; a context."""

    def __init__(self, folder: Path, *names: str):
        self.folder, self.names = folder, (HEAD, *names)
        self.firsts: dict[str, psutil.Process] = {}
        """The first process of each host, which all others there go with."""

    def __enter__(self) -> "Hosts":
        if os.geteuid() or not all(shutil.which(command) for command in ("ip", "unshare", "nsenter", "setpriv")):
            pytest.skip("hosts of one's own need root, util-linux and iproute2")
        if subprocess.run([*NEW, "true"], capture_output=True).returncode:
            pytest.skip("the system lets nobody make namespaces here")
        self.folder.mkdir(exist_ok=True)
        known = self.folder / "hosts"
        known.write_text("127.0.0.1 localhost\n" + "".join(f"{self.address(name)} {name}\n" for name in self.names))
        try:
            self._begin(HEAD, ["setpriv", "--pdeathsig", "KILL"], f"mount --bind {known} /etc/hosts")
            self.do(HEAD, "ip", "link", "set", "lo", "up")
            self.do(HEAD, "ip", "link", "add", "bridge", "type", "bridge")
            self.do(HEAD, "ip", "addr", "add", f"{self.address(HEAD)}/24", "dev", "bridge")
            self.do(HEAD, "ip", "link", "set", "bridge", "up")
            for name in self.names[1:]:
                self.add(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.firsts:
            self.firsts[HEAD].kill()
            self.firsts[HEAD].wait(10)

    def address(self, name: str) -> str:
        return ADDRESS.format(self.names.index(name) + 1)

    def add(self, name: str) -> None:
        """Begin a host, or one that was lost anew."""
        self._begin(name, self._into(HEAD, "--pid", "--mount"), "true")
        there = str(self.firsts[name].pid)
        into = self._into(HEAD, "--net")  # but not its process namespace: the number is ours
        subprocess.run([*into, "ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", there], check=True)
        subprocess.run([*into, "ip", "link", "set", name, "master", "bridge", "up"], check=True)
        self.do(name, "ip", "link", "set", "lo", "up")
        self.do(name, "ip", "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        self.do(name, "ip", "link", "set", "eth0", "up")

    def unplug(self, name: str) -> None:
        """Take a host from the network, without a word to those that it talks with."""
        self.do(HEAD, "ip", "link", "set", name, "down")

    def lose(self, name: str) -> None:
        """A power cut: the host is gone, and nobody hears of it."""
        self.unplug(name)
        self.firsts[name].kill()
        self.do(HEAD, "ip", "link", "delete", name)

    def processes(self, name: str, word: str) -> list[psutil.Process]:
        """Those of a host with a word in their command."""
        own = os.readlink(f"/proc/{self.firsts[name].pid}/ns/pid")
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if os.readlink(f"/proc/{process.pid}/ns/pid") == own and word in process.cmdline():
                    found.append(process)
        return found

    def _begin(self, name: str, within: list[str], more: str) -> None:
        ready = self.folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        script = f"hostname {name} && {more} && touch {ready} && sleep infinity; :"  # a shell, which waits for the orphans of its host
        with open(self.folder / f"{name}.said", "w") as said:
            process = psutil.Popen([*within, *NEW, "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        end = time.monotonic() + 20
        while not ready.exists():
            assert process.poll() is None and time.monotonic() < end, Path(said.name).read_text()
            time.sleep(0.01)
        self.firsts[name] = next(child for child in process.children(recursive=True) if child.name() == "sh")

    def _into(self, name: str, *which: str) -> list[str]:
        return ["nsenter", "--target", str(self.firsts[name].pid), *(which or ("--net", "--uts", "--mount", "--pid")), "--"]

    def start(self, name: str, *command: object, cwd: Path | None = None, log: Path | None = None, **env: str) -> "Running":
        """Start a command on a host, its output in a file, or else in a pipe."""
        words = [*self._into(name), "env", f"--chdir={cwd or Path.cwd()}", *map(str, command)]
        out = open(log, "a") if log else subprocess.PIPE  # noqa: SIM115, the command's as long as it lives
        return Running(words, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, text=True)

    def do(self, name: str, *command: object, cwd: Path | None = None, timeout: float = 120, **env: str) -> str:
        """What a command on a host says, which has to end well."""
        running = self.start(name, *command, cwd=cwd, **env)
        try:
            said, _ = running.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            running.end()
            raise
        assert running.returncode == 0, f"{' '.join(map(str, command))}: {said}"
        return said


class Running(subprocess.Popen):
    """A command on a host. What is started here only enters the host, and waits there for the command itself."""

    def itself(self) -> psutil.Process:
        [own] = psutil.Process(self.pid).children()
        return own

    def end(self, number: int = signal.SIGKILL) -> None:
        with suppress(psutil.Error, ValueError):
            self.itself().send_signal(number)


if __name__ == "__main__":  # `python -m tests.hosts COMMAND`: a look around, in a shell of the first of two hosts
    with Hosts(Path("/tmp/hosts"), "one", "two") as hosts:
        subprocess.run([*hosts._into("one"), *(sys.argv[1:] or ["bash"])])
