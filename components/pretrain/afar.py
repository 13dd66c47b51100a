"""Saves of a training beyond this machine: in a folder that others see, or a bucket."""

import os
import shutil
import tarfile
import threading
import time
import uuid
from pathlib import Path

import fsspec
import torch

from components.core import storage
from components.core.errors import SesameError, Unreachable, one_line


class Afar:
    """The newest save of one training under an address of fsspec's, as one file `<step>.tar`: what the training's folder has of it.

    The folder's name has the hash of settings, data and code, so that nothing else goes on from it. A file is sent under another name
    and moved when it is whole; older ones are removed then.
    """

    def __init__(self, address: str, folder: Path, seconds: float):
        """Raises SesameError where the address can't be one, Unreachable where it does not answer."""
        try:
            self.files, root = fsspec.url_to_fs(address, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise SesameError(f"run.checkpoints_to: {address}: {one_line(error)}") from None
        except OSError as error:  # ftp's, which are connected at once
            raise Unreachable(f"run.checkpoints_to: {address} can't be reached ({one_line(error)})") from None
        self.address, self.folder, self.place, self.seconds = address, folder, f"{root.rstrip('/')}/{folder.name}", seconds
        self.begun, self.sending = -seconds, threading.Thread()

    def fetch(self) -> None:
        """Bring the newest save here, unless the one that is here is as new. Raises Unreachable where the address does not answer."""
        last = self.folder / "last.ckpt"
        try:
            self._can_be_written_to()
            newest = max(self._steps(), default=-1)
            if newest <= _step(last):
                return
            here = self.folder.with_name(f"{self.folder.name}.tar")
            with storage.output(here) as temporary:
                self.files.get_file(f"{self.place}/{newest}.tar", str(temporary))
        except SesameError:
            raise
        except Exception as error:  # botocore's, aiohttp's, the system's
            raise Unreachable(f"run.checkpoints_to: {self.address} can't be read and written ({one_line(error)})") from None
        fetched = self.folder / "fetched"
        try:
            with storage.output(fetched) as target, tarfile.open(here) as whole:
                target.mkdir()
                whole.extractall(target, filter="data")
        except tarfile.TarError as error:
            raise SesameError(f"run.checkpoints_to: {self.place}/{newest}.tar can't be read ({one_line(error)}); remove it") from None
        if (step := _step(fetched / "last.ckpt")) != newest:
            shutil.rmtree(fetched)
            what = "has no save that can be read" if step < 0 else f"is the save of step {step:,}"
            raise SesameError(f"run.checkpoints_to: {self.place}/{newest}.tar {what}; remove it")
        for kept in fetched.glob("kept/*"):
            if not (own := self.folder / "kept" / kept.name).exists():
                own.parent.mkdir(exist_ok=True)
                kept.replace(own)
        (fetched / "last.ckpt").replace(last)  # the last: what was kept before it is not made again
        shutil.rmtree(fetched)
        here.unlink()
        print(f"save of step {newest:,} fetched from {self.address}", flush=True)

    def _can_be_written_to(self) -> None:
        """Listing alone tells little: fsspec lists nothing, and says nothing, where a folder's parent or a server is not there."""
        probe = f"{self.place}/{uuid.uuid4()}.part"
        self.files.makedirs(self.place, exist_ok=True)
        self.files.pipe_file(probe, b"1")
        self.files.rm_file(probe)

    def send(self, step: int) -> None:
        """Have the save that was just written sent, if none is on its way and it is time again. Returns at once."""
        if self.sending.is_alive() or time.monotonic() - self.begun < self.seconds:
            return
        self.begun = time.monotonic()
        frozen = self.folder / "sending.ckpt"
        frozen.unlink(missing_ok=True)
        os.link(self.folder / "last.ckpt", frozen)  # the next save takes the name, and not the content
        self.sending = threading.Thread(target=self._send, args=(step, frozen), daemon=True)
        self.sending.start()

    def _send(self, step: int, frozen: Path) -> None:
        packed, target = frozen.with_suffix(".tar"), f"{self.place}/{step}.tar"
        try:
            with tarfile.open(packed, "w") as whole:
                whole.add(frozen, "last.ckpt")
                if (self.folder / "kept").exists():
                    whole.add(self.folder / "kept", "kept", filter=lambda part: None if part.name.endswith(".tmp") else part)
            older = self._steps()
            self.files.makedirs(self.place, exist_ok=True)
            self.files.put_file(str(packed), f"{target}.part")
            self.files.mv(f"{target}.part", target)
            for other in older:
                if other != step:
                    self.files.rm_file(f"{self.place}/{other}.tar")
        except Exception as error:  # training is worth more than a copy of its save
            print(f"run.checkpoints_to: {self.address}: {one_line(error)}; training goes on, and the next save is sent again", flush=True)
        finally:
            for own in (packed, frozen):
                own.unlink(missing_ok=True)

    def remove(self) -> None:
        """What stands there of a training that is done. (A line where that can't be: nothing goes on from it.)"""
        if self.sending.ident:
            self.sending.join()
        try:
            if self.files.exists(self.place):
                self.files.rm(self.place, recursive=True)
        except Exception as error:
            print(f"run.checkpoints_to: {self.address}: {one_line(error)}; remove {self.place} by hand", flush=True)

    def _steps(self) -> list[int]:
        """Of the saves that are whole."""
        paths = [Path(path) for path in self.files.find(self.place)]
        return [int(path.stem) for path in paths if path.suffix == ".tar" and path.stem.isdigit()]


def _step(save: Path) -> int:
    """After which a save was written; -1 without one that can be read, which is said where it is loaded.

    Tensors and plain values alone are read: a pickle could run code, and what was fetched may be anybody's."""
    try:
        return torch.load(save, map_location="cpu", weights_only=True, mmap=True)["global_step"]
    except Exception:  # pickle and zip raise whatever the broken bytes lead to
        return -1
