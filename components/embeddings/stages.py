"""The stages of word vectors: vectors, published_vectors, contextual_vectors, align, history, group."""

from collections.abc import Iterator, Mapping

from components.params import Params
from components.stages.declaration import Entry, Inputs, Stage, Table
from components.stages.parts import model_modules, source_modules


def vectors(p: Params) -> Iterator[Entry]:
    for name, block in p.vectors.items():
        modules = ("components.embeddings.vectors", f"components.embeddings.trainers.{block.kind}")
        yield Entry("vectors", name, modules, block.settings())


def published(p: Params) -> Iterator[Entry]:
    for name, block in p.published_vectors.items():
        yield Entry("published_vectors", name, ("components.embeddings.published", *source_modules(block)), block.settings())


def contextual(p: Params) -> Iterator[Entry]:
    for name, block in p.contextual_vectors.items():
        modules = ("components.embeddings.contextual", *model_modules(p, block.model))
        yield Entry("contextual_vectors", name, modules, block.settings())


def alignments(p: Params) -> Iterator[Entry]:
    for name, pair in p.alignments.items():
        dictionary = f"components.embeddings.dictionaries.{pair.dictionary.kind}"
        yield Entry("align", name, ("components.embeddings.align", dictionary, *source_modules(pair)), pair.settings())


def histories(p: Params) -> Iterator[Entry]:
    for name, history in p.histories.items():
        yield Entry("history", name, ("components.embeddings.history",), history.settings())


def groups(p: Params) -> Iterator[Entry]:
    for name, block in p.groups.items():
        yield Entry("group", name, ("components.embeddings.group",), block.settings())


def table(metrics: Mapping[tuple[str, str], dict]) -> Table:
    rows = [
        [name, method, retrieval, *(f"{figures[f'p{k}']:.3f}" for k in (1, 5, 10)), f"{measured['coverage']:.3f}"]
        for (_, name), measured in metrics.items()
        for method, by in measured["methods"].items()
        for retrieval, figures in by.items() if isinstance(figures, dict) and "p1" in figures  # costs have none
    ]  # fmt: skip
    return Table(["pair", "method", "retrieval", "P@1", "P@5", "P@10", "coverage"], rows)


STAGES = (
    Stage("vectors", vectors, "vectors/{0}", section="vectors"),
    Stage("published_vectors", published, "vectors/{0}", section="published_vectors", fetches=True),
    Stage("contextual_vectors", contextual, "vectors/{0}", section="contextual_vectors"),
    Stage("align", alignments, "align/{0}", section="alignments", fetches=True, table=table),
    Stage(
        "history", histories, "align/{0}", section="histories",
        inputs=lambda p: (Inputs(name, (f"vectors/{period}" for period in history.periods)) for name, history in p.histories.items()),
    ),
    Stage("group", groups, "align/{0}", section="groups"),
)  # fmt: skip
