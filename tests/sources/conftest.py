"""A package index and a file server on the loopback, with the faults a network has."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from components.text.sources import download


class Server:
    """Serves `files` under /files/ and lists them for the project `demo` under /simple/demo/."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.cut_after: list[int] = []
        """For each coming download: the bytes after which the connection breaks."""
        self.statuses: list[int] = []
        """For each coming download: an error to answer with instead."""
        self.resumes = True
        """Whether a Range is honoured; a server need not."""
        self.says_packed = False
        """Whether a .gz is called encoded, as some servers tell by the name of a file that is stored so."""
        self.ranges: list[str | None] = []
        """The Range header of each download so far."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_GET(self):
                if self.path == "/simple/demo/":
                    links = "".join(f'<a href="/files/{name}">{name}</a>' for name in server.files)
                    self.answer(200, f"<html><body>{links}</body></html>".encode(), {"Content-Type": "text/html"})
                elif self.path.startswith("/files/"):
                    server.ranges.append(self.headers.get("Range"))
                    if server.statuses:
                        self.answer(server.statuses.pop(0), b"")
                    else:
                        name = self.path.removeprefix("/files/")
                        self.file(server.files[name], server.says_packed and name.endswith(".gz"))
                else:
                    self.answer(404, b"")

            def file(self, data: bytes, packed: bool):
                asked = self.headers.get("Range") if server.resumes else None
                start = int((asked or "bytes=0-").removeprefix("bytes=").rstrip("-"))
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(data) - start))
                if packed:
                    self.send_header("Content-Encoding", "gzip")
                self.end_headers()
                end = start + server.cut_after.pop(0) if server.cut_after else len(data)
                self.wfile.write(data[start:end])

            def answer(self, status: int, body: bytes, headers: dict | None = None):
                self.send_response(status)
                for key, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def add(self, name: str, data: bytes) -> str:
        """Serve a file; its sha256."""
        self.files[name] = data
        return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server(monkeypatch, tmp_path):
    """The server, and a project's folder to work in whose pip is configured to it."""
    running = Server()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", f"{running.url}/simple/")
    monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
    yield running
    running.http.shutdown()
    running.http.server_close()
