"""Files of a bucket, in moto's S3: the same as those on a disk, also in shards; what is not there, or does not answer, is a line."""

import gzip
import json
import random
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import boto3
import pytest
import s3fs

from components.core.errors import SesameError, Unreachable
from components.params import BucketSource, CorpusPart, check
from components.text import sources
from components.text.corpora.shards import plan
from tests.conftest import free_port, s3_server, tiny_params
from tests.corpora.test_shards import GROUPS, LINES, corpus, documents, everything, make, written


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    forkserver.ensure_running()  # as where a corpus was made before: its environment has no keys, the stage's has
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(server, tmp_path, monkeypatch):
    """A client of a bucket `text`, empty; the environment has what is needed to read it."""
    own = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": server}
    for key, value in own.items():
        monkeypatch.setenv(key, value)
    s3fs.S3FileSystem.clear_instance_cache()  # a process asks the environment once; another test's server is gone
    monkeypatch.chdir(tmp_path)
    client = boto3.client("s3")
    client.create_bucket(Bucket="text")
    yield client
    for item in client.list_objects_v2(Bucket="text").get("Contents", []):
        client.delete_object(Bucket="text", Key=item["Key"])
    client.delete_bucket(Bucket="text")


def source(*addresses: str, **settings) -> BucketSource:
    return BucketSource(kind="bucket", addresses=list(addresses), **settings)


def test_files_in_their_order_and_no_more_than_asked_for(bucket):
    for name, content in (("b.txt", b"second"), ("a.txt.gz", gzip.compress(b"first")), ("c/d.txt", b"third")):
        bucket.put_object(Bucket="text", Key=name, Body=content)

    def read(one: BucketSource) -> list[bytes]:
        found = []
        for file in sources.open_files(one):
            with file.open() as stream:
                found.append(stream.read())
        return found

    assert read(source("s3://text/*")) == [b"first", b"second"]
    assert read(source("s3://text/c/d.txt", "s3://text/*")) == [b"third", b"first", b"second"]
    assert read(source("s3://text/**/*.txt")) == [b"second", b"third"]
    assert read(source("s3://text/**/*.txt", max_files=1)) == [b"second"]


@pytest.mark.parametrize("reader", [LINES, GROUPS], ids=["lines", "groups"])
def test_shards_of_a_bucket_are_those_of_a_disk(bucket, tmp_path, reader):
    """Cut in the middle of files, by two processes; a file that has changed since is no reason to keep what was done with it."""
    text, between = documents(random.Random(3), 400), "\n" if reader is LINES else "\n\n"
    for number in range(3):
        content = between.join(text[number::3])
        (tmp_path / f"{number}.txt").write_text(content)
        bucket.put_object(Bucket="text", Key=f"{number}.txt", Body=content.encode())
    make(corpus((reader, ["*.txt"]), shards=7), workers=2)
    there = {key: value for key, value in written().items() if key != "card.json"}  # which names the source
    part = CorpusPart(source=source("s3://text/*.txt"), reader=reader)
    one = corpus(shards=7, parts=[part])
    assert sum(len(own) for own in plan.portions("small", one)) > 7, "files are cut"
    make(one, workers=2)
    assert {key: value for key, value in written().items() if key != "card.json"} == there
    kept = {path for path in Path().rglob("*") if path.is_file() and path.parent != Path()}
    folders = {path.parent for path in kept - {Path(".sesame/code.json")}}
    assert folders == {Path("data/corpora/small")}, "of the bucket's files nothing"
    before = plan.portions("small", one)
    bucket.put_object(Bucket="text", Key="1.txt", Body=content.encode()[::-1])
    assert plan.portions("small", one) != before


def test_a_corpus_in_memory_reads_it_too(bucket, tmp_path):
    texts = documents(random.Random(1), 40)
    bucket.put_object(Bucket="text", Key="a.jsonl", Body="\n".join(json.dumps({"text": text}) for text in texts).encode())
    part = CorpusPart(source=source("s3://text/a.jsonl"), reader={"format": "jsonl", "column": "text"})
    make(corpus(parts=[part]))
    found = everything()
    (tmp_path / "data.txt").write_text("\n".join(texts))
    make(corpus())
    assert everything() == found


def test_what_goes_wrong_is_a_line(bucket, monkeypatch):
    def fails(one: BucketSource, kind: type[SesameError], line: str) -> None:
        with pytest.raises(SesameError, match=line) as caught:
            [file.raw().read() for file in sources.open_files(one)]
        assert type(caught.value) is kind and "\n" not in str(caught.value)

    fails(source("s3://text/*.txt"), SesameError, "bucket: nothing at 's3://text/\\*.txt'; check the address")
    fails(source("s3://text/a.txt"), SesameError, "bucket: nothing at 's3://text/a.txt'")
    fails(source("s3://text/**.txt"), SesameError, "Invalid pattern: '\\*\\*' can only be an entire path component")
    fails(source("ftps://text/a.txt"), SesameError, "bucket: ftps://text/a.txt: Protocol not known: ftps")
    with pytest.raises(SesameError, match=r"source.addresses\[0\]: String should match .* \(it is 'text/a.txt'\)"):
        raw = tiny_params()
        raw["corpora"]["base"]["parts"][0]["source"] = {"kind": "bucket", "addresses": ["text/a.txt"]}
        check(raw)
    bucket.put_object(Bucket="text", Key="a.txt", Body=b"text")
    [file] = sources.open_files(source("s3://text/a.txt"))
    bucket.delete_object(Bucket="text", Key="a.txt")
    with pytest.raises(SesameError, match="bucket: s3://text/a.txt: "):
        file.raw()
    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    fails(source("s3://text/b.txt"), Unreachable, "bucket: s3://text/b.txt can't be read .*check its address and the keys")
