"""A parquet data set of the Hugging Face hub, or a local folder of parquet files: rows, streamed, no files."""

from collections.abc import Iterator
from typing import Any

from components import params
from components.core.errors import one_line
from components.text.sources import download
from components.text.sources.text import decimal


def open_rows(source: params.HubSource) -> Iterator[tuple[str, dict]]:
    """`(place, row)` for each row, at most `max_documents`; class labels by their names.

    Raises SesameError when the set can't be loaded, Unreachable when the hub does not answer.
    """
    import datasets  # 1 s: only where rows are wanted
    import httpx2  # what the hub's library asks with

    try:
        rows = datasets.load_dataset(source.path, source.name, revision=source.revision, split=source.split, streaming=True)
        if source.max_documents:
            rows = rows.take(source.max_documents)
        features = rows.features or {}
        for number, row in enumerate(rows, start=1):
            decoded = {column: _decoded(features.get(column), field) for column, field in row.items()}
            yield f"{source.path} ({source.split}), row {number}", decoded
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError, httpx2.HTTPError) as error:
        raise download.request_error(
            error,
            f"data set {source.path!r} can't be read: {one_line(error)}; check path, name, split and revision, "
            "the network (HF_ENDPOINT names a mirror), and for a private set `hf auth login`",
        ) from None


def _decoded(feature: Any, field: Any) -> Any:
    """A class label by its name: an index means nothing without the list it came with. -1 stays, it stands for no
    label. A number of 32 bits as it is written."""
    if hasattr(feature, "int2str") and isinstance(field, int) and field >= 0:
        return feature.int2str(field)
    if hasattr(feature, "feature") and isinstance(field, list):
        return [_decoded(feature.feature, item) for item in field]
    return decimal(field, feature.dtype) if isinstance(field, float) and feature else field
