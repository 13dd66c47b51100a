"""The files of a model on the Hugging Face hub."""

from collections.abc import Iterator
from pathlib import Path

from components import params
from components.core.errors import one_line
from components.core.storage import STATE
from components.text.sources import download
from components.text.sources.file import SourceFile

WANTED = ["*.json", "*.txt", "*.model", "*.safetensors"]
PICKLED = "pytorch_model*.bin"
"""Weights of before safetensors, where there are no others."""


def open_files(source: params.HubModelSource) -> Iterator[SourceFile]:
    """The files at the top of the repository: settings, weights, tokenizer. What was fetched is kept.

    Raises SesameError when there is no such model, Unreachable when the hub does not answer.
    """
    import httpx2
    from huggingface_hub import snapshot_download

    try:
        options = {"revision": source.revision, "ignore_patterns": "*/*", "cache_dir": STATE / "downloads/hub"}
        folder = snapshot_download(source.path, allow_patterns=WANTED, **options)
        if not any(Path(folder).glob("*.safetensors")):
            folder = snapshot_download(source.path, allow_patterns=[*WANTED, PICKLED], **options)
    except (OSError, ValueError, httpx2.HTTPError) as error:
        raise download.request_error(
            error,
            f"model {source.path!r} can't be fetched: {one_line(error)}; check path and revision, the network "
            "(HF_ENDPOINT names a mirror), and for a private model `hf auth login`",
        ) from None
    return (SourceFile(str(path), lambda path=path: path.open("rb")) for path in sorted(Path(folder).iterdir()))
