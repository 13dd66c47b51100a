"""Download verified copies of remote files, with progress and resuming retries; concurrent runs share a download."""

import hashlib
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

import requests
from filelock import FileLock
from tqdm import tqdm

from components.core.errors import SesameError, Unreachable
from components.core.storage import STATE

ATTEMPTS = 5
TIMEOUT = (10, 60)
"""Seconds to connect, seconds of silence."""
CHUNK = 1 << 18


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Progress:
    """A bar on a terminal; a plain line every few seconds elsewhere (logs of the flow)."""

    def __init__(self, name: str, done: int, total: int | None):
        self.name, self.done, self.total, self.said = name, done, total, time.monotonic()
        self.bar = tqdm(desc=name, initial=done, total=total, unit="B", unit_scale=True) if sys.stderr.isatty() else None
        if not self.bar:
            self._say()

    def _say(self) -> None:
        of = f" of {self.total / 1e6:.1f}" if self.total else ""
        print(f"{self.name}: {self.done / 1e6:.1f}{of} MB", flush=True)

    def add(self, count: int) -> None:
        self.done += count
        if self.bar:
            self.bar.update(count)
        elif time.monotonic() - self.said > 5:
            self.said = time.monotonic()
            self._say()

    def close(self) -> None:
        if self.bar:
            self.bar.close()


def cached_path(filename: str, sha256: str) -> Path:
    """Path of the verified copy of a file."""
    return STATE / "downloads" / sha256 / filename


def fetch(filename: str, sha256: str, address: Callable[[], str], cure: str) -> Path:
    """Path of a verified copy of the file: the cached one, else downloaded from `address()`.

    Copies stay in `.sesame/downloads/<sha256>/<filename>`; a kept copy is verified again on every use. An interrupted
    download continues where it stopped. Raises Unreachable when there is no answer (with `cure`), SesameError when the
    server refuses, or sends a file with another hash (both hashes are named, the file is deleted).
    """
    copy = cached_path(filename, sha256)
    folder = copy.parent
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):  # stages that run side by side share one download
        if copy.exists():
            if sha256_of(copy) == sha256:
                return copy
            print(f"{copy}: damaged, fetched again", flush=True)
            copy.unlink()
        folder.mkdir(exist_ok=True)
        part = copy.with_name(f"{filename}.part")
        try:
            _download(address(), filename, sha256, part, cure)
            part.rename(copy)
        finally:
            if not any(folder.iterdir()):
                folder.rmdir()
    return copy


def _download(url: str, filename: str, sha256: str, part: Path, cure: str) -> None:
    """Download the rest of the file to `part`. Raise as `fetch` does."""
    for attempt in range(1, ATTEMPTS + 1):
        # If the connection breaks, the part stays for the next attempt or the next run to resume.
        start = part.stat().st_size if part.exists() else 0
        try:
            resumed = _stream(url, filename, part, start)
        except requests.RequestException as error:
            if (
                error.response is not None and error.response.status_code == 416
            ):  # the part is already as long: it is complete, or another file
                resumed = True
            elif not is_transient(error):
                raise SesameError(f"{filename}: {url} answers {reason(error)}; {cure}") from None
            elif attempt == ATTEMPTS:
                raise Unreachable(f"{filename}: {url} can't be fetched after {ATTEMPTS} tries ({reason(error)}); {cure}") from None
            else:
                wait = 2 ** (attempt - 1)
                print(f"{filename}: {reason(error)}; try {attempt + 1} of {ATTEMPTS} in {wait} s", file=sys.stderr, flush=True)
                time.sleep(wait)
                continue
        received = sha256_of(part)
        if received == sha256:
            return
        part.unlink()
        if not resumed:  # a resumed part may be of another file: start again once
            raise SesameError(
                f"{filename}: wrong sha256: {received} came from {url}, {sha256} is declared; deleted. "
                "Check the file, then the declared hash"
            )
    raise SesameError(f"{filename}: no copy with sha256 {sha256} came from {url}; {cure}")


def is_transient(error: BaseException) -> bool:
    """Whether a failed request may work the next time: no connection, no answer in time, a busy or broken server."""
    import httpx2  # the hub's library uses it

    if (response := getattr(error, "response", None)) is not None:
        return response.status_code >= 500 or response.status_code in (408, 429)
    broken = (
        ConnectionError, TimeoutError, requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError,
        httpx2.TransportError,
    )  # fmt: skip
    return isinstance(error, broken) or (error.__cause__ is not None and is_transient(error.__cause__))


def request_error(error: BaseException, message: str) -> SesameError:
    """The error to raise for a failed request: Unreachable if it may work the next time."""
    return (Unreachable if is_transient(error) else SesameError)(message)


def reason(error: requests.RequestException) -> str:
    """Why a request failed, in a few words."""
    if isinstance(error, requests.exceptions.SSLError):  # a subclass of ConnectionError
        return f"no TLS connection: {_tls(error)}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    return "no connection" if isinstance(error, requests.ConnectionError) else f"{type(error).__name__}: {error}"


def _tls(error: BaseException) -> str:
    """OpenSSL's message on the connection or the server's certificate, from inside the errors wrapped around it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = getattr(cause, "reason", None) or next((own for own in cause.args if isinstance(own, BaseException)), None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"certificate not trusted, {cause.verify_message}; REQUESTS_CA_BUNDLE may name a file of those to trust"
    return str(cause or error)


def _stream(url: str, filename: str, part: Path, start: int) -> bool:
    """Append the missing bytes to `part`. Return True if the server continued at `start`, False if it sent the whole file."""
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})  # the stored bytes, not repacked ones
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        response.raise_for_status()
        # some servers say gzip of what is stored as .gz, and requests would unpack it
        response.raw.headers.discard("Content-Encoding")
        resumed = start > 0 and response.status_code == 206
        done = start if resumed else 0
        length = response.headers.get("Content-Length")
        progress = _Progress(filename, done, done + int(length) if length else None)
        try:
            with part.open("ab" if resumed else "wb") as file:
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
                    progress.add(len(chunk))
        finally:
            progress.close()
    return resumed
