"""`python -m components.checkpoints NAME`: the source of a checkpoint -> data/models/<name>, in the form that pre-training writes."""

import shutil
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from components import params, sources, stage
from components.checkpoints import hub, parity
from components.errors import SesameError, one_line
from components.models import store
from components.models.common.layout import Layout
from components.sources import tables
from components.tokenizer import code_points
from components.tokenizer.fast import FastTokenizer
from components.tracking import Run

KEPT = (".json", ".txt", ".safetensors")
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json")


def fetch(source: params.Source, folder: Path) -> None:
    """The files of a checkpoint, by their own names, into a folder."""
    for file in sources.open_files(source):
        name = PurePosixPath(file.name.rpartition(": ")[2]).name
        if not name.endswith(KEPT):
            continue
        if (folder / name).exists():
            raise SesameError(f"two files of the source are called {name}, the second is {file.name}; name the files one by one")
        with file.open() as stream, (folder / name).open("wb") as written:
            shutil.copyfileobj(stream, written)
    for patterns in (("config.json",), ("*.safetensors",)):
        _require(folder, patterns)


def _require(folder: Path, patterns: tuple[str, ...]) -> None:
    """Raises SesameError where a checkpoint has no file of such a name."""
    there = sorted(path.name for path in folder.iterdir())
    if not any(fnmatchcase(name, pattern) for name in there for pattern in patterns):
        wanted, known = " or ".join(patterns), " ".join(KEPT)
        raise SesameError(f"the source has no {wanted}; of the kinds that are read ({known}) it has: {', '.join(there) or 'none'}")


def describe(folder: Path, family: str) -> tuple[Layout, params.Architecture, int]:
    """The layout of a checkpoint, our architecture for it, and the size of its vocabulary."""
    layouts = hub(family).LAYOUTS
    raw = tables.parsed("config.json", (folder / "config.json").read_bytes())
    if not isinstance(raw, dict):
        raise SesameError(f"config.json: an object expected, {type(raw).__name__} found")
    if raw.get("model_type") not in list(layouts):
        raise SesameError(
            f"config.json: model_type: {raw.get('model_type')!r} is not supported for family {family} (there are: {', '.join(layouts)})"
        )
    try:
        config = parity.quiet_transformers().AutoConfig.for_model(**raw).to_dict()
    except Exception as error:  # of many kinds, over several lines
        raise SesameError(f"config.json: {one_line(error)}") from None
    layout = layouts[raw["model_type"]]
    if layout.code_points:
        config["vocab_size"] = code_points.VOCAB_SIZE
    if not isinstance(config.get("vocab_size"), int):
        raise SesameError(f"config.json: vocab_size: {config.get('vocab_size')!r} is no number")
    return layout, layout.architecture(raw | config), config["vocab_size"]


def read_tokenizer(folder: Path, layout: Layout) -> FastTokenizer:
    """The tokenizer that `transformers` makes of a checkpoint's files, old kinds of files included; where there are none, code points."""
    if layout.code_points:
        (folder / "whole").mkdir()
        code_points.write(folder / "whole")
        return FastTokenizer(folder / "whole")
    _require(folder, TOKENIZERS)
    try:
        theirs = parity.quiet_transformers().AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        theirs.backend_tokenizer.no_truncation()
        theirs.backend_tokenizer.no_padding()
        theirs.save_pretrained(folder / "whole")
    except Exception as error:  # of many kinds, over several lines
        raise SesameError(f"the tokenizer can't be read: {one_line(error)}") from None
    return FastTokenizer(folder / "whole")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All weights of a checkpoint, which may be cut into several files."""
    weights = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            part = load_file(path)
        except SafetensorError as error:
            raise SesameError(f"{path.name} can't be read: {one_line(error)}") from None
        if twice := weights.keys() & part.keys():
            raise SesameError(f"{min(twice)} is in {path.name} and in another file, too; name the files of the source one by one")
        weights |= part
    return weights


def bring(all_params: params.Params, name: str, run: Run) -> dict:
    block = all_params.checkpoints[name]
    with stage.output(Path("data/models", name)) as folder:
        source = folder / "source"
        source.mkdir(parents=True)
        fetch(block.source, source)
        layout, architecture, vocab_size = describe(source, block.family)
        tokens = read_tokenizer(source, layout)
        if tokens.vocab_size != vocab_size:
            raise SesameError(
                f"the tokenizer has {tokens.vocab_size:,} ids, but config.json says vocab_size {vocab_size:,}: they don't belong together"
            )
        with torch.device("meta"):
            shapes = {key: value.shape for key, value in store.build(architecture, tokens).state_dict().items()}
        state, absent, others = layout.read(layout.prepare(read_weights(source), architecture), shapes)
        store.save(folder, state, architecture, tokens, absent, [{"by": "imported"}])
        model, tokens = store.load(folder)
        difference = parity.check(source, model, layout, tokens, absent)
        shutil.rmtree(source)
        card = {"source": block.source.model_dump(mode="json"), "absent": absent, "left_out": others}
        stage.write_json(folder / "card.json", card)
    print(f"{architecture.name}, {store.count_parameters(model):,} parameters; largest difference from transformers {difference:.2g}")
    if absent:
        print(f"not in the checkpoint, random in every load: {', '.join(absent)}")
    if others:
        print(f"left out: {', '.join(others)}")
    run.artifact(Path("data/models", name, "card.json"))
    return {"parameters": store.count_parameters(model), "vocab_size": tokens.vocab_size, "max_abs_difference": difference}


if __name__ == "__main__":
    stage.main("checkpoint", bring, "checkpoints")
