"""Download verified copies of remote files, with progress and resuming retries; concurrent runs share a download."""

import hashlib
import http.client
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import requests
import urllib3
from filelock import FileLock
from tqdm import tqdm

from components.core.errors import SesameError, Unreachable
from components.core.storage import STATE

ATTEMPTS = 5
TIMEOUT = (10, 60)
"""Seconds to connect, seconds of silence."""
WINDOW, SLOWEST = 60, 100
"""Seconds, and bytes a second. An answer that brings less for so long is given up, and asked for again from there on."""
CHUNK = 1 << 18
SHOWN = 200
"""Characters of an address in a message."""


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class TooSlow(requests.Timeout):
    """A server that sends, but so little that the file would take days: to wait would look like a hang."""


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
        else:
            self._say()


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
    place = url if len(url) <= SHOWN else f"{url[:SHOWN]}..."
    for attempt in range(1, ATTEMPTS + 1):
        # If the connection breaks, the part stays for the next attempt or the next run to resume.
        start = part.stat().st_size if part.exists() else 0
        try:
            resumed = _stream(url, filename, part, start)
        except (requests.RequestException, ValueError) as error:  # ValueError: a redirection to what is no address
            answer = getattr(error, "response", None)
            if answer is not None and answer.status_code == 416:
                # the part is already as long: it is complete, or another file
                resumed = True
            elif not is_transient(error):
                raise SesameError(f"{filename}: {place} answers {reason(error)}; {cure}") from None
            elif attempt == ATTEMPTS:
                raise Unreachable(
                    f"{filename}: {place} can't be fetched after {ATTEMPTS} tries ({reason(error)}); {cure}"
                ) from None
            else:
                wait = 2 ** (attempt - 1)
                print(f"{filename}: {reason(error)}; try {attempt + 1} of {ATTEMPTS} in {wait} s", file=sys.stderr, flush=True)
                time.sleep(wait)
                continue
        received = sha256_of(part)
        if received == sha256:
            return
        page = _is_page(part)
        part.unlink()
        if not resumed:  # a resumed part may be of another file: start again once
            advice = f"It is a web page (a login, an error?): {cure}" if page else "Check the file, then the declared hash"
            raise SesameError(
                f"{filename}: wrong sha256: {received} came from {place}, {sha256} is declared; deleted. {advice}"
            )
    raise SesameError(f"{filename}: no copy with sha256 {sha256} came from {place}; {cure}")


def _is_page(path: Path) -> bool:
    """Whether a file begins as HTML does: what a network's login sends in place of a file."""
    with path.open("rb") as file:
        return file.read(1000).lstrip().lower().startswith((b"<!doctype html", b"<html"))


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


def reason(error: Exception) -> str:
    """Why a request failed, in a few words."""
    if isinstance(error, requests.exceptions.SSLError):  # a subclass of ConnectionError
        return f"no TLS connection: {_tls(error)}"
    if isinstance(error, requests.TooManyRedirects):
        return "with redirections that do not end"
    if (response := getattr(error, "response", None)) is not None:
        return f"{response.status_code} {response.reason}".rstrip()
    if isinstance(error, TooSlow):
        return f"less than {SLOWEST} bytes a second"
    causes = list(_causes(error))
    if any(isinstance(cause, SILENCE) for cause in causes):
        return "no answer in time"
    if any(isinstance(cause, BROKEN) for cause in causes):
        return "the connection broke off"
    if any(isinstance(cause, http.client.HTTPException) for cause in causes):
        return "the answer is not HTTP"
    return "no connection" if isinstance(error, requests.ConnectionError) else f"{type(error).__name__}: {error}"


SILENCE = (requests.Timeout, urllib3.exceptions.ReadTimeoutError, TimeoutError)
BROKEN = (requests.exceptions.ChunkedEncodingError, ConnectionResetError, http.client.IncompleteRead)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it is wrapped around."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        inner = getattr(seen, "reason", None)
        inside = [inner, *seen.args[::-1]]  # `("Connection aborted.", BadStatusLine(...))`
        seen = next((candidate for candidate in inside if isinstance(candidate, BaseException)), None)


def _tls(error: BaseException) -> str:
    """OpenSSL's message on the connection or the server's certificate, from inside the errors wrapped around it."""
    cause = next((candidate for candidate in _causes(error) if isinstance(candidate, ssl.SSLError)), None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"certificate not trusted, {cause.verify_message}; REQUESTS_CA_BUNDLE may name a file of those to trust"
    return str(cause or error)


def _arriving(response: requests.Response) -> Iterator[bytes]:
    """The bytes of an answer as they come: `iter_content` would say nothing of a slow server's before a whole chunk.

    Raise TooSlow where they come so slowly that the answer never ends.
    """
    since, count = time.monotonic(), 0
    try:
        while chunk := response.raw.read1(CHUNK):
            yield chunk
            count += len(chunk)
            if (seconds := time.monotonic() - since) > WINDOW:
                if count < SLOWEST * seconds:
                    raise TooSlow
                since, count = time.monotonic(), 0
    except urllib3.exceptions.HTTPError as error:
        raise requests.ConnectionError(error) from None


def _stream(url: str, filename: str, part: Path, start: int) -> bool:
    """Append the missing bytes to `part`. Return True if the server continued at `start`, False if it sent the whole file."""
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})  # the stored bytes, not repacked ones
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code not in (200, 206):  # 204, or 302 that leads nowhere, is no error to requests
            raise requests.HTTPError(response=response)
        # some servers say gzip of what is stored as .gz, and requests would unpack it
        response.raw.headers.discard("Content-Encoding")
        resumed = start > 0 and response.status_code == 206
        done = start if resumed else 0
        length = response.headers.get("Content-Length")
        progress = _Progress(filename, done, done + int(length) if length and length.isdecimal() else None)
        try:
            with part.open("ab" if resumed else "wb") as file:
                for chunk in _arriving(response):
                    file.write(chunk)
                    progress.add(len(chunk))
        finally:
            progress.close()
    return resumed
