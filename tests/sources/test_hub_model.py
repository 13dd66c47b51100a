"""The files of a model come from a hub that speaks the hub's protocol; what is not there is one line."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMIT = "a" * 40
FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "vocab.txt": b"words",
    "pytorch_model.bin": b"pickle",
    "onnx/model.json": b"other",
}


class Hub(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        path, headers = self.path.partition("?")[0], {}
        if path == "/api/models/owner/name/revision/v1":
            body = json.dumps({"id": "owner/name", "sha": COMMIT}).encode()
        elif path == f"/api/models/owner/name/tree/{COMMIT}":
            body = json.dumps([{"type": "file", "path": name, "size": len(data), "oid": "b" * 40} for name, data in FILES.items()]).encode()
        elif path.startswith(f"/owner/name/resolve/{COMMIT}/"):
            body = FILES[path.split("/", 5)[5]]
            headers = {"ETag": f'"{len(body):040}"', "X-Repo-Commit": COMMIT}
        else:
            self.send_response(404)
            body, headers = b"", {"X-Error-Code": "RepoNotFound"}
        if body:
            self.send_response(200)
        for key, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET


FETCH = """
from components.text import sources
from components.core.errors import SesameError
from components.params import HubModelSource

for path in ("owner/name", "owner/other"):
    try:
        for file in sources.open_files(HubModelSource(kind="hub_model", path=path, revision="v1")):
            with file.open() as stream:
                print(file.name.rpartition("/")[2], stream.read().decode())
    except SesameError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def fetched(tmp_path):
    """What a process prints of both models; the hub's address is read once, when its library is imported."""

    def run(address: str) -> list[str]:
        environment = os.environ | {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", FETCH], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    return run


def test_a_model_comes_and_is_kept_and_what_is_not_there_is_one_line(fetched):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    printed = fetched(address)
    server.shutdown()
    server.server_close()
    wanted = ["config.json {}", "model.safetensors weights", "vocab.txt words"]
    assert printed[:-1] == wanted
    assert re.match("SesameError model 'owner/other' can't be fetched: 404 .*; check path and revision", printed[-1])
    printed = fetched(address)  # nobody answers any more
    assert printed[:-1] == wanted and printed[-1].startswith("Unreachable model 'owner/other' can't be fetched")
