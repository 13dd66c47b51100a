"""Copies of training checkpoints in a shared folder or a bucket, so that another machine can resume the training."""

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


class RemoteCheckpoints:
    """The newest checkpoint of one training at an fsspec address, one file `<step>.tar` with the files of its folder.

    The folder's name contains the hash of settings, data and code, so that no other training resumes from it. A file is
    uploaded under a temporary name and renamed when it is complete; older files are removed then.
    """

    def __init__(self, address: str, folder: Path, seconds: float):
        """Raise SesameError if the address is invalid, Unreachable if it does not answer."""
        try:
            self.filesystem, root = fsspec.url_to_fs(address, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise SesameError(f"run.checkpoints_to: {address}: {one_line(error)}") from None
        except OSError as error:  # from FTP, which connects at once
            raise Unreachable(f"run.checkpoints_to: {address} can't be reached ({one_line(error)})") from None
        self.address = address
        self.folder = folder
        self.remote_folder = f"{root.rstrip('/')}/{folder.name}"
        self.seconds = seconds
        self.last_upload = -seconds
        self.upload = threading.Thread()

    def fetch(self) -> None:
        """Download the newest checkpoint unless the local one is as new. Raise Unreachable if the address does not answer."""
        last = self.folder / "last.ckpt"
        try:
            self._check_writable()
            newest = max(self._steps(), default=-1)
            if newest <= _step(last):
                return
            archive = self.folder.with_name(f"{self.folder.name}.tar")
            with storage.output(archive) as temporary:
                self.filesystem.get_file(f"{self.remote_folder}/{newest}.tar", str(temporary))
        except SesameError:
            raise
        except Exception as error:  # of botocore, aiohttp or the system
            raise Unreachable(f"run.checkpoints_to: {self.address} can't be read and written ({one_line(error)})") from None
        fetched = self._unpack(archive, newest)
        for milestone in fetched.glob("kept/*"):
            target = self.folder / "kept" / milestone.name
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                milestone.replace(target)
        (fetched / "last.ckpt").replace(last)  # after the milestones: a training that resumes from it does not write them again
        shutil.rmtree(fetched)
        archive.unlink()
        print(f"checkpoint of step {newest:,} fetched from {self.address}", flush=True)

    def _unpack(self, archive: Path, step: int) -> Path:
        """Extract an archive and check that it holds the checkpoint of this step."""
        fetched, remote = self.folder / "fetched", f"{self.remote_folder}/{step}.tar"
        try:
            with storage.output(fetched) as target, tarfile.open(archive) as tar:
                target.mkdir()
                tar.extractall(target, filter="data")
        except tarfile.TarError as error:
            raise SesameError(f"run.checkpoints_to: {remote} can't be read ({one_line(error)}); remove it") from None
        if (saved_step := _step(fetched / "last.ckpt")) != step:
            shutil.rmtree(fetched)
            problem = "has no readable checkpoint" if saved_step < 0 else f"is the checkpoint of step {saved_step:,}"
            raise SesameError(f"run.checkpoints_to: {remote} {problem}; remove it")
        return fetched

    def _check_writable(self) -> None:
        """Write a file and remove it. A listing is no proof: fsspec returns an empty one if the server or a parent folder is missing."""
        probe = f"{self.remote_folder}/{uuid.uuid4()}.part"
        self.filesystem.makedirs(self.remote_folder, exist_ok=True)
        self.filesystem.pipe_file(probe, b"1")
        self.filesystem.rm_file(probe)

    def send(self, step: int) -> None:
        """Upload the checkpoint that was just written, in a thread, unless an upload is running or the last one is too recent."""
        if self.upload.is_alive() or time.monotonic() - self.last_upload < self.seconds:
            return
        self.last_upload = time.monotonic()
        snapshot = self.folder / "sending.ckpt"
        snapshot.unlink(missing_ok=True)
        os.link(self.folder / "last.ckpt", snapshot)  # the next checkpoint replaces the name, not the content
        self.upload = threading.Thread(target=self._send, args=(step, snapshot), daemon=True)
        self.upload.start()

    def _send(self, step: int, snapshot: Path) -> None:
        archive, target = snapshot.with_suffix(".tar"), f"{self.remote_folder}/{step}.tar"
        try:
            with tarfile.open(archive, "w") as tar:
                tar.add(snapshot, "last.ckpt")
                if (self.folder / "kept").exists():
                    tar.add(self.folder / "kept", "kept", filter=lambda file: None if file.name.endswith(".tmp") else file)
            older = self._steps()
            self.filesystem.makedirs(self.remote_folder, exist_ok=True)
            self.filesystem.put_file(str(archive), f"{target}.part")
            self.filesystem.mv(f"{target}.part", target)
            for other in older:
                if other != step:
                    self.filesystem.rm_file(f"{self.remote_folder}/{other}.tar")
        except Exception as error:  # a failed copy must not stop the training
            problem = f"run.checkpoints_to: {self.address}: {one_line(error)}"
            print(f"{problem}; training continues, and the next checkpoint is sent again", flush=True)
        finally:
            archive.unlink(missing_ok=True)
            snapshot.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the remote folder of a finished training; print a line if that fails, since nothing would resume from it."""
        if self.upload.ident:
            self.upload.join()
        try:
            if self.filesystem.exists(self.remote_folder):
                self.filesystem.rm(self.remote_folder, recursive=True)
        except Exception as error:
            print(f"run.checkpoints_to: {self.address}: {one_line(error)}; remove {self.remote_folder} by hand", flush=True)

    def _steps(self) -> list[int]:
        """Return the steps of the complete remote checkpoints."""
        paths = [Path(path) for path in self.filesystem.find(self.remote_folder)]
        return [int(path.stem) for path in paths if path.suffix == ".tar" and path.stem.isdigit()]


def _step(checkpoint: Path) -> int:
    """Return the step of a checkpoint, -1 if it is missing or unreadable (which is reported where it is loaded).

    Only tensors and plain values are read: a pickle could run code, and the file may come from anybody.
    """
    try:
        return torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)["global_step"]
    except Exception:  # pickle and zip raise any exception on corrupt bytes
        return -1
