"""Pinned files of an index, and files by address: verified, resumed, looked into."""

import gzip
import hashlib
import io
import random
import re
import socket
import ssl
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from components import params
from components.core.errors import SesameError, Unreachable
from components.core.storage import STATE
from components.params import FilesSource, PypiSource, UrlSource
from components.text import corpora, sources
from components.text.corpora import __main__ as corpus
from components.text.sources import download
from tests.conftest import tiny_params

WHEEL = "demo-1.0-py3-none-any.whl"
BIG = random.Random(0).randbytes(1 << 20)


def zip_of(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def pypi(sha256: str, members=("demo/*.txt",), filename: str = WHEEL, project: str = "demo") -> PypiSource:
    return PypiSource(kind="pypi", project=project, version="1.0", filename=filename, sha256=sha256, members=list(members))


def contents(source) -> dict[str, bytes]:
    texts = {}
    for file in sources.open_files(source):
        with file.open() as stream:
            texts[file.name] = stream.read()
    return texts


def leftovers() -> list[str]:
    return [str(path) for path in STATE.rglob("*") if path.is_file() and path.suffix != ".lock"]


def untrusted(folder: Path) -> ssl.SSLContext:
    """Of a server whose certificate nobody but itself has signed."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "server.pem").write_bytes(key.private_bytes(*form) + made.sign(key, hashes.SHA256()).public_bytes(form[0]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


@pytest.mark.parametrize(
    ("encrypted", "message"),
    [
        (True, r"no TLS connection: certificate not trusted, self-signed certificate; REQUESTS_CA_BUNDLE may name"),
        (False, r"no TLS connection: \[SSL"),
    ],
)
def test_why_there_is_no_tls_connection(server, tmp_path, encrypted, message):
    digest = server.add("text.txt", b"text")
    if encrypted:
        server.http.socket = untrusted(tmp_path).wrap_socket(server.http.socket, server_side=True)
    source = UrlSource(kind="url", url=f"{server.url.replace('http', 'https')}/files/text.txt", sha256=digest)
    with pytest.raises(Unreachable, match=message):
        contents(source)


def test_members_of_a_wheel_in_order(server):
    digest = server.add(
        WHEEL, zip_of({"demo/b.txt": b"two", "demo/a.txt": b"one", "demo/c.txt.gz": gzip.compress(b"three"), "demo/x.py": b"no"})
    )
    texts = contents(pypi(digest, ["demo/c*", "demo/*.txt"]))
    assert list(texts.values()) == [b"three", b"one", b"two"]
    assert list(texts)[1] == f"{WHEEL}: demo/a.txt"


def test_the_kept_copy_needs_no_network(server):
    digest = server.add(WHEEL, zip_of({"demo/a.txt": b"one"}))
    contents(pypi(digest))
    server.files.clear()
    assert contents(pypi(digest)) == {f"{WHEEL}: demo/a.txt": b"one"}
    assert len(server.ranges) == 1


def test_a_damaged_copy_is_fetched_again(server):
    digest = server.add(WHEEL, zip_of({"demo/a.txt": b"one"}))
    contents(pypi(digest))
    (STATE / "downloads" / digest / WHEEL).write_bytes(b"damaged")
    assert contents(pypi(digest)) == {f"{WHEEL}: demo/a.txt": b"one"}


def test_wrong_hash_names_both_and_leaves_nothing(server):
    sent = server.add(WHEEL, zip_of({"demo/a.txt": b"one"}))
    with pytest.raises(SesameError) as error:
        contents(pypi("0" * 64))
    assert sent in str(error.value) and "0" * 64 in str(error.value)
    assert leftovers() == []


def test_a_broken_connection_is_resumed(server):
    digest = server.add(WHEEL, zip_of({"demo/a.txt": BIG}))
    server.cut_after = [300_000, 400_000]
    assert contents(pypi(digest)) == {f"{WHEEL}: demo/a.txt": BIG}
    assert server.ranges[0] is None and len(server.ranges) == 3
    assert all(asked.startswith("bytes=") and asked != "bytes=0-" for asked in server.ranges[1:])


def test_a_server_that_does_not_resume_sends_it_whole(server):
    digest = server.add(WHEEL, zip_of({"demo/a.txt": BIG}))
    server.cut_after, server.resumes = [300_000], False
    assert contents(pypi(digest)) == {f"{WHEEL}: demo/a.txt": BIG} and len(server.ranges) == 2


def test_a_half_file_of_another_hash_begins_anew(server):
    digest = server.add(WHEEL, zip_of({"demo/a.txt": BIG}))
    part = STATE / "downloads" / digest / f"{WHEEL}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    assert contents(pypi(digest)) == {f"{WHEEL}: demo/a.txt": BIG}


def test_busy_server_is_asked_again(server):
    digest = server.add(WHEEL, zip_of({"demo/a.txt": b"one"}))
    server.statuses = [503, 429]
    assert contents(pypi(digest)) and len(server.ranges) == 3


def test_unreachable_index_is_one_line_with_the_cure(server, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://somebody:secret@127.0.0.1:1/simple/")
    with pytest.raises(Unreachable) as error:
        contents(pypi("0" * 64))
    message = str(error.value)
    assert "http://127.0.0.1:1/simple/" in message and "PIP_INDEX_URL" in message
    assert "secret" not in message and "\n" not in message
    assert leftovers() == []


def test_unknown_project_and_file(server):
    digest = server.add(WHEEL, zip_of({"demo/a.txt": b"one"}))
    with pytest.raises(SesameError, match="has no project 'dema'"):
        contents(pypi(digest, project="dema"))
    with pytest.raises(SesameError, match=f"no file 'demo-1.0.tar.gz'; there are: {WHEEL}"):
        contents(pypi(digest, filename="demo-1.0.tar.gz"))
    server.add("demo-2.0.tar.gz", b"")
    with pytest.raises(SesameError, match="is version 2.0, 1.0 is declared"):
        contents(pypi("0" * 64, filename="demo-2.0.tar.gz"))


def test_stages_side_by_side_share_one_download(server):
    digest = server.add(WHEEL, zip_of({"demo/a.txt": BIG}))
    with ThreadPoolExecutor(4) as pool:
        copies = list(pool.map(contents, [pypi(digest)] * 4))
    assert copies == [{f"{WHEEL}: demo/a.txt": BIG}] * 4 and len(server.ranges) == 1


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_nested_archive(server, mode):
    inner = tar_of({"inner/a.txt": b"one", "inner/b.txt": b"two", "inner/c.py": b"no"})
    name = "demo-1.0.tar.gz"
    digest = server.add(name, tar_of({"demo-1.0/data/inner.tar.gz": inner, "demo-1.0/z.zip": zip_of({"in.txt": b"zipped"})}, mode))
    texts = contents(pypi(digest, ["demo-1.0/data/inner.tar.gz!inner/*.txt", "demo-1.0/z.zip!*"], name))
    assert list(texts.values()) == [b"one", b"two", b"zipped"]


def test_a_glob_without_match_lists_near_names(server):
    digest = server.add(WHEEL, zip_of({"demo/speeches/1790.txt": b"one"}))
    with pytest.raises(SesameError, match="nothing in it matches 'demo/speech/1790.txt'; near names: demo/speeches/1790.txt"):
        contents(pypi(digest, ["demo/speech/1790.txt"]))


def test_not_an_archive(server):
    digest = server.add(WHEEL, b"plain text")
    with pytest.raises(SesameError, match="not a readable zip or tar archive"):
        contents(pypi(digest))


def test_url_plain_gz_archive_and_missing(server):
    digest = server.add("a.txt.gz", gzip.compress(b"one"))
    assert list(contents(UrlSource(kind="url", url=f"{server.url}/files/a.txt.gz", sha256=digest)).values()) == [b"one"]
    digest = server.add("a.zip", zip_of({"in/a.txt": b"one"}))
    assert contents(UrlSource(kind="url", url=f"{server.url}/files/a.zip", sha256=digest, members=["in/*"])) == {"a.zip: in/a.txt": b"one"}
    with pytest.raises(SesameError, match="answers 404"):
        contents(UrlSource(kind="url", url=f"{server.url}/nowhere/a.txt", sha256="0" * 64))
    with pytest.raises(Unreachable, match="can't be fetched after 5 tries"):
        contents(UrlSource(kind="url", url="http://127.0.0.1:1/a.txt", sha256="0" * 64))


def test_a_gz_that_a_server_calls_encoded_is_kept_as_it_is_stored(server):
    """Requests unpacked it, and no hash was right (conda's issue 3798); the rest of a half of it was no text either."""
    server.says_packed = True
    name, packed = "demo-1.0.tar.gz", tar_of({"demo/a.txt": BIG})
    digest = server.add(name, packed)
    server.cut_after = [400_000]
    assert contents(pypi(digest, filename=name)) == {f"{name}: demo/a.txt": BIG}
    assert server.ranges[0] is None and len(server.ranges) == 2


def linked_tar() -> bytes:
    """Two files, a hard link, and symbolic links: to a file, to a link, to a folder, out of the archive, to itself."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name in ("./all/one.txt", "./train/own.txt"):
            info = tarfile.TarInfo(name)
            info.size = len(name)
            archive.addfile(info, io.BytesIO(name.encode()))
        links = [("./train/hard.txt", tarfile.LNKTYPE, "./all/one.txt")]
        links += [(f"./{name}", tarfile.SYMTYPE, target) for name, target in SYMBOLIC.items()]
        for name, kind, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
    return stream.getvalue()


def linked_zip() -> bytes:
    """The same without the hard link, of which a zip has none."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in ("all/one.txt", "train/own.txt"):
            archive.writestr(name, f"./{name}")
        for name, target in SYMBOLIC.items():
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, target)
    return stream.getvalue()


SYMBOLIC = {
    "train/two.txt": "../all/one.txt", "dev/chain.txt": "../train/two.txt", "dev/all.txt": "../all",
    "dev/away.txt": "/etc/hosts", "dev/circle.txt": "circle.txt",
}  # fmt: skip


@pytest.mark.parametrize(("name", "archive"), [("demo-1.0.tar.gz", linked_tar()), (WHEEL, linked_zip())])
def test_a_link_in_an_archive_is_the_file_it_leads_to_and_each_file_comes_once(server, name, archive):
    """Links of a tar were left out (ratarmount's issue 28), and one of a zip was a document with a path for its text
    (zip2's issue 21)."""
    digest = server.add(name, archive)
    texts = {pattern: contents(pypi(digest, [pattern], name)) for pattern in ("*train/*.txt", "*dev/*.txt", "*.txt")}
    assert sorted(texts["*train/*.txt"].values()) == [b"./all/one.txt", b"./train/own.txt"]
    assert [place.rpartition("/")[2] for place in texts["*dev/*.txt"]] == ["chain.txt"]
    assert list(texts["*dev/*.txt"].values()) == [b"./all/one.txt"]
    assert sorted(texts["*.txt"].values()) == [b"./all/one.txt", b"./train/own.txt"]


def test_files_sorted_each_once_and_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "deep/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    source = FilesSource(kind="files", paths=["b.txt", "**/*.txt"])
    assert list(contents(source)) == ["b.txt", "a.txt", "deep/c.txt"]
    with pytest.raises(SesameError, match="nothing at 'c.txt'"):
        contents(FilesSource(kind="files", paths=["c.txt"]))
    with pytest.raises(SesameError, match=r"files: 'deep' is a folder; name its files, as 'deep/\*'"):
        contents(FilesSource(kind="files", paths=["deep"]))


def test_a_path_that_is_there_is_no_glob(tmp_path, monkeypatch):
    """As a browser names a second download, on some systems."""
    monkeypatch.chdir(tmp_path)
    for name in ("text1.txt", "text[1].txt"):
        (tmp_path / name).write_text(name)
    assert contents(FilesSource(kind="files", paths=["text[1].txt"])) == {"text[1].txt": b"text[1].txt"}
    assert list(contents(FilesSource(kind="files", paths=["text[0-9].txt"]))) == ["text1.txt"]


def test_a_password_in_an_address_is_used_and_never_kept(server, capsys):
    digest = server.add("a.txt?token=secret", b"One line.\n\nTwo lines.\n\nThree lines.\n")
    address = server.url.replace("://", "://joe:secret@") + "/files/a.txt?token=secret"
    raw = tiny_params(seed=2)
    part = {"source": {"kind": "url", "url": address, "sha256": digest}, "reader": {"format": "text", "document": "blank_line"}}
    raw["corpora"]["base"] |= {"parts": [part], "splits": {"valid": 0.4, "test": 0}}
    checked = params.check(raw)
    corpus.body(checked, "base", None)
    shown = server.url + "/files/a.txt?token=***"
    assert corpora.card("data/corpora/base")["sources"][0]["url"] == shown
    assert checked.model_dump(mode="json")["corpora"]["base"]["parts"][0]["source"]["url"] == shown  # what the ledger is given
    with pytest.raises(SesameError) as error:
        contents(UrlSource(kind="url", url=address.replace("a.txt", "b.txt"), sha256="0" * 64))
    assert "secret" not in str(error.value) + capsys.readouterr().out


def encrypted() -> bytes:
    """The flag says so; Python has no way to write one."""
    data = bytearray(zip_of({"demo/a.txt": b"one"}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def packed_as(method: int) -> bytes:
    data = bytearray(zip_of({"demo/a.txt": b"one"}))
    data[8] = data[data.index(b"PK\x01\x02") + 10] = method
    return bytes(data)


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (zip_of({"demo/a.txt": b"one"}).replace(b"one", b"two"), "Bad CRC-32"),
        (encrypted(), "password required"),
        (packed_as(97), "compression method is not supported"),
        (zip_of({"demo/a.txt.gz": gzip.compress(b"one" * 100)[:-12]}), "damaged"),
        (zip_of({"demo/a.txt.gz": b"no gzip"}), "Not a gzipped file"),
        (tar_of({"demo/a.txt": BIG})[:-100_000], "not a readable zip or tar archive"),
    ],
)
def test_broken_archives_are_one_line_with_the_member(server, archive, said):
    with pytest.raises(SesameError, match=said) as error:
        contents(pypi(server.add(WHEEL, archive), ["demo/*"]))
    assert str(error.value).startswith(WHEEL) and "\n" not in str(error.value)


def test_a_link_to_a_folder_above_brings_no_file_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts/deep").mkdir(parents=True)
    (tmp_path / "texts/a.txt").write_text("a")
    (tmp_path / "texts/deep/up").symlink_to(tmp_path / "texts")
    assert list(contents(FilesSource(kind="files", paths=["texts/**/*.txt"]))) == ["texts/a.txt"]
    for name in ("one", "two", "three"):  # of which `glob` makes more paths than can be listed
        Path("texts", name).symlink_to(".")
    Path("texts/deep/.hidden").mkdir(parents=True)
    for place in ("deep/b.txt", "deep/.hidden/c.txt"):
        Path("texts", place).write_text("more")
    assert list(contents(FilesSource(kind="files", paths=["texts/**/*.txt"]))) == ["texts/a.txt", "texts/deep/b.txt"]


def test_an_unreadable_name_in_an_address_stays_inside_the_downloads(server):
    digest = server.add("%00b%2F..", b"one")
    assert list(contents(UrlSource(kind="url", url=f"{server.url}/files/%00b%2F..", sha256=digest)).values()) == [b"one"]
    assert {path.parent.parent.name for path in STATE.rglob("*") if path.is_file() and path.suffix != ".lock"} == {"downloads"}


@contextmanager
def answering(*parts: bytes) -> Iterator[str]:
    """The address of a server that sends these bytes to whoever connects, a moment after one another, and hangs up."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.recv(1 << 16)
                for part in parts:
                    connection.sendall(part)
                    threading.Event().wait(0.3)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def by_address(address: str, digest: str = "0" * 64) -> UrlSource:
    return UrlSource(kind="url", url=address, sha256=digest)


def test_a_length_that_is_no_number_is_not_shown(server):
    """It was a traceback: `invalid literal for int()`."""
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\none") as address:
        assert contents(by_address(f"{address}/a.txt", hashlib.sha256(b"one").hexdigest())) == {"a.txt": b"one"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"302 Found\r\nLocation: http://[::1\r\nContent-Length: 0", "Invalid IPv6 URL"),  # it was a traceback
        (b"302 Found\r\nContent-Length: 0", "answers 302 Found; check"),  # these were of a wrong hash
        (b"204 No Content", "answers 204 No Content; check"),
        (b"304 Not Modified", "answers 304 Not Modified; check"),
        (b"302 Found\r\nLocation: /a.txt\r\nContent-Length: 0", "answers with redirections that do not end; check"),
    ],
)
def test_an_answer_without_a_file_is_no_wrong_hash(server, answer, said):
    sent = b"HTTP/1.1 " + answer + b"\r\nConnection: close\r\n\r\n"
    with answering(sent) as address, pytest.raises(SesameError, match=re.escape(said)) as error:
        contents(by_address(f"{address}/a.txt"))
    assert "sha256:" not in str(error.value) and leftovers() == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"\0\xff garbage\r\n\r\n", "the answer is not HTTP"),  # these had no connection, or were a Python object
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\none", "the connection broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "the connection broke off"),
        (b"", "the connection broke off"),
    ],
)
def test_a_broken_answer_is_told_from_none(server, answer, said):
    with answering(answer) as address, pytest.raises(Unreachable, match=rf"after 5 tries \({said}\); check"):
        contents(by_address(f"{address}/a.txt"))
    with pytest.raises(Unreachable, match=r"after 5 tries \(no connection\); check"):
        contents(by_address("http://127.0.0.1:1/a.txt"))


def test_a_web_page_in_place_of_a_file_is_called_one(server):
    page = b"<!DOCTYPE html><html>Please log in</html>"
    sent, said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page), r"It is a web page \(a login, an error\?\): check"
    with answering(sent) as address, pytest.raises(SesameError, match=said):
        contents(by_address(f"{address}/a.txt"))


def test_a_long_address_is_cut_in_messages(server):
    server.statuses = [404]
    with pytest.raises(SesameError, match="answers 404") as error:
        contents(by_address(f"{server.url}/files/{'a' * 5000}"))
    assert len(str(error.value)) < 1000


def test_a_slow_server_shows_its_progress(server, capsys, monkeypatch):
    """Nothing was said until a whole chunk had come, which a server of a byte a second sends in three days."""
    now = iter(range(0, 10_000, 4))
    monkeypatch.setattr(download.time, "monotonic", lambda: next(now))
    parts = [b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"o", b"n", b"e"]
    with answering(*parts) as address:
        contents(by_address(f"{address}/a.txt", hashlib.sha256(b"one").hexdigest()))
    assert capsys.readouterr().out.count("MB") >= 3


def test_a_server_that_drips_is_given_up_and_what_came_is_kept(server, monkeypatch):
    """A byte every few seconds is no silence: the stage waited for days without a word of what was wrong."""
    now = iter(range(0, 10_000, 40))
    monkeypatch.setattr(download.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    parts = [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"o", b"n", b"e"]
    said = r"after 1 tries \(less than 100 bytes a second\); check"
    with answering(*parts) as address, pytest.raises(Unreachable, match=said):
        contents(by_address(f"{address}/a.txt"))
    [kept] = Path(".sesame/downloads").rglob("*.part")
    assert kept.read_bytes() == b"one"[: kept.stat().st_size] != b""
