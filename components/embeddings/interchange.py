"""`sesame vectors NAME`: export vectors, or both sides of an alignment with its test words, in the formats of other tools."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from components import params
from components.core import storage
from components.core.errors import SesameError
from components.embeddings import dictionaries
from components.embeddings.maps import normalise, unit
from components.embeddings.space import Space, load
from components.stages.outputs import reading

FOLDER = Path("data/export")


def export(all_params: params.Params, name: str, method: str | None, out: Path | None) -> list[Path]:
    """Write `<name>.vec`; for an alignment `<name>.source.vec` and `<name>.target.vec` in the common space of one of
    its methods (by default the first), and `<name>.test.txt`, the test pairs in the format of MUSE's evaluation.

    Raises SesameError for an unknown name or method, and where the folder exists.
    """
    folder = storage.unused_path(out) if out else FOLDER / name
    if name not in all_params.alignments:
        if not Path("data/vectors", name).exists():
            known = ", ".join(all_params.alignments) or "none"
            raise SesameError(f"{name}: neither an alignment of params.yaml ({known}) nor vectors in data/vectors; name one")
        if method:
            raise SesameError(f"--method has no effect on vectors: it needs an alignment, and {name} is none")
        return _write(folder, {f"{name}.vec": lines(load(Path("data/vectors", name)))})
    alignment, learned = all_params.alignments[name], Path("data/align", name, "mapping.npz")
    methods = [candidate.name for candidate in alignment.methods]
    if (method := method or methods[0]) not in methods:
        raise SesameError(f"--method {method}: alignment {name} has {', '.join(methods)}")
    with reading(learned), np.load(learned) as matrices:
        maps = {side: matrices[f"{method}_{side}"] for side in ("source", "target")}
    how = next(candidate for candidate in alignment.methods if candidate.name == method)
    spaces = {side: load(Path("data/vectors", getattr(alignment, side)), alignment.max_vocabulary) for side in maps}
    files: dict[str, Iterable[str]] = {
        f"{name}.{side}.vec": lines(Space(space.words, space.counts, unit(normalise(space.vectors, how.normalise) @ maps[side])))
        for side, space in spaces.items()
    }
    build = dictionaries.load(alignment.dictionary.kind)
    test = build(alignment.dictionary, spaces["source"].words, spaces["target"].words, alignment.seed).test
    files[f"{name}.test.txt"] = (f"{_one(word)} {_one(gold)}\n" for word, golds in test.items() for gold in sorted(golds))
    return _write(folder, files)


def lines(space: Space) -> Iterable[str]:
    """word2vec's text format: a line with the numbers of words and dimensions, then one line per word. Of words that are equal there, as
    `new york` and `new_york`, the more frequent one is kept: readers take the first, but count the others."""
    rows: dict[str, int] = {}
    for row, word in enumerate(space.words):
        rows.setdefault(_one(word), row)
    if twice := len(space.words) - len(rows):
        print(f"{twice:,} left out: written like a more frequent word, since `_` stands for a blank", flush=True)
    yield f"{len(rows)} {space.vectors.shape[1]}\n"
    for word, row in rows.items():
        yield f"{word} {' '.join(map(str, space.vectors[row].astype(np.float32).tolist()))}\n"


def _one(word: str) -> str:
    """A word with `_` for blanks, as in word2vec's phrases: `new_york`."""
    return word.replace(" ", "_")


def _write(folder: Path, files: dict[str, Iterable[str]]) -> list[Path]:
    with storage.output(folder) as target:
        target.mkdir(parents=True)
        for name, content in files.items():
            with open(target / name, "w", encoding="utf-8") as file:
                file.writelines(content)
    return [folder / name for name in files]
