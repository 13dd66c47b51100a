"""`python -m components.derive.checkpoints NAME`: the source of a checkpoint -> data/models/<name>, in the format of
pre-training."""

import shutil
from copy import copy
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from components import params
from components.core import storage
from components.core.errors import SesameError, one_line
from components.core.tracking import Run
from components.derive.checkpoints import hub, parity
from components.models import store
from components.models.common.layout import BUFFERS, Layout
from components.stages import stage
from components.stages.outputs import read_json
from components.text import sources
from components.text.sources import tables
from components.text.tokenizer import code_points
from components.text.tokenizer.fast import FILE, SETTINGS, FastTokenizer

PICKLED = "pytorch_model*.bin"
"""The format of weights before safetensors, read where there are no others; torch does not execute code in these
pickles."""
LFS = b"version https://git-lfs"
"""What a file of Git LFS begins with where only its pointer was brought."""
READ = ("*.json", "*.txt", "*.model", "*.safetensors", PICKLED)
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
SENTINEL = "<extra_id_"
"""The prefix of T5's sentinel tokens: special like `[MASK]`, and never part of a text."""


def fetch(source: params.Source, folder: Path) -> None:
    """Copy the files of a checkpoint, by their names, into a folder."""
    for file in sources.open_files(source):
        name = PurePosixPath(file.name.rpartition(": ")[2]).name
        if not any(fnmatchcase(name, pattern) for pattern in READ):
            continue
        if (folder / name).exists():
            raise SesameError(f"two files of the source are called {name}, the second is {file.name}; name the files one by one")
        with file.open() as stream, (folder / name).open("wb") as written:
            shutil.copyfileobj(stream, written)
    for patterns in (("config.json",), ("*.safetensors", PICKLED)):
        _require(folder, patterns)


def _require(folder: Path, patterns: tuple[str, ...]) -> None:
    """Raises SesameError where a checkpoint has no file with such a name."""
    names = sorted(path.name for path in folder.iterdir())
    if not any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
        wanted, known = " or ".join(patterns), " ".join(READ)
        raise SesameError(
            f"the source has no {wanted}; of the kinds that are read ({known}) it has: {', '.join(names) or 'none'}"
        )


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
    config |= of_generation(folder)
    layout = layouts[raw["model_type"]]
    if layout.code_points:
        config["vocab_size"] = code_points.VOCAB_SIZE
    if not isinstance(config.get("vocab_size"), int):
        raise SesameError(f"config.json: vocab_size: {config.get('vocab_size')!r} is no number")
    return layout, layout.architecture(raw | config), config["vocab_size"]


def of_generation(folder: Path) -> dict:
    """The tokens that begin a text and end one of maximal length: a file with settings for generation overrides those of
    the model."""
    if not (path := folder / "generation_config.json").exists():
        return {}
    given = tables.parsed(path.name, path.read_bytes())
    if not isinstance(given, dict):
        raise SesameError(f"{path.name}: an object expected, {type(given).__name__} found")
    return {key: given.get(key) for key in ("forced_bos_token_id", "forced_eos_token_id")}


def read_tokenizer(folder: Path, layout: Layout) -> FastTokenizer:
    """The tokenizer that `transformers` builds from a checkpoint's files, including old formats; where there are none, code points."""
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
    with_markers(folder / "whole" / FILE, folder / "whole" / SETTINGS)
    return with_first_letters(folder / "whole")


def with_first_letters(folder: Path) -> FastTokenizer:
    """Read the tokenizer of a folder, whose tokens have their first letters in their places in a text.

    RobBERT's splits at blanks and adds one to each word. `tokenizers` then takes the first letter for that blank and trims it
    (EuroEval, issue 2171), so that an answer "old woman" is read as "ld woman". Without trimming, the places are right.
    """
    def complete(tokens: FastTokenizer) -> bool:
        [(_, spans)] = tokens.encode_offsets([LETTERS])
        return {i for span in spans for i in range(*span)} >= {i for i, letter in enumerate(LETTERS) if letter != " "}

    tokens, raw = FastTokenizer(folder), read_json(folder / FILE)
    processor = raw["post_processor"] or {}
    trimming = [one for one in (processor, *processor.get("processors", [])) if one.get("trim_offsets")]
    if complete(tokens) or not trimming:
        return tokens
    for one in trimming:
        one["trim_offsets"] = False
    storage.write_json(folder / FILE, raw)
    return FastTokenizer(folder)


LETTERS = "The old woman carries a red ball."


def with_markers(file: Path, settings: Path) -> None:
    """Make tokens that the checkpoint added as special for its own use, as `<ent>`, ordinary tokens: texts contain them. Tokens that
    surround a text, mask, pad or stand for unknown ones stay special."""
    raw, named = read_json(file), read_json(settings)
    roles = {value["content"] if isinstance(value, dict) else value for key, value in named.items() if key.endswith("_token") and value}
    for token in raw["added_tokens"]:
        token["special"] &= token["content"] in roles or token["content"].startswith(SENTINEL)
    storage.write_json(file, raw)


def never_read(tokens: FastTokenizer) -> list[str]:
    """Tokens with capitals of a tokenizer that lower-cases every text, so that none can occur."""
    normalizer = tokens.tokenizer.normalizer
    if normalizer is None or normalizer.normalize_str("A") == "A":
        return []
    return sorted(piece for piece in tokens.tokenizer.get_vocab(with_added_tokens=False) if piece != piece.lower()
                  and normalizer.normalize_str(piece) != piece and tokens.tokenizer.token_to_id(piece) not in tokens.specials)  # fmt: skip


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All weights of a checkpoint, which may be in several files."""
    weights = {}
    for path in sorted(folder.glob("*.safetensors")) or sorted(folder.glob(PICKLED)):
        try:
            chunk = load_file(path) if path.suffix == ".safetensors" else torch.load(path, map_location="cpu", weights_only=True)
        except (SafetensorError, RuntimeError, UnpicklingError, EOFError) as error:
            raise SesameError(f"{path.name} can't be read: {_unreadable(path, error)}") from None
        _check_weights(path.name, chunk)
        if twice := weights.keys() & chunk.keys():
            raise SesameError(f"{min(twice)} is in {path.name} and in another file, too; name the files of the source one by one")
        weights |= chunk
    return weights


def _unreadable(path: Path, error: Exception) -> str:
    with path.open("rb") as file:
        if file.read(len(LFS)) == LFS:
            return "it is Git LFS's pointer to the file; bring the file itself (git lfs pull)"
    if isinstance(error, UnpicklingError):  # torch's own message advises to run whatever is in it
        return "it holds more than tensors, which is never loaded; save the weights as safetensors"
    return one_line(error)


def _check_weights(file: str, weights: object) -> None:
    """Raise SesameError where a file holds anything but finite real weights by their names."""
    if not isinstance(weights, dict):
        raise SesameError(f"{file}: weights by their names expected, {type(weights).__name__} found")
    for name, value in weights.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            inside = f"a block {name!r} of them; save what is in it"
            found = inside if isinstance(value, dict) else f"{name!r}: {type(value).__name__}"
            raise SesameError(f"{file}: weights by their names expected, found {found}")
        if value.is_complex():
            raise SesameError(f"{file}: {name} has complex numbers; weights are real")
        if value.ndim > 1 and not value.is_floating_point() and not BUFFERS.search(name):
            kind = str(value.dtype).removeprefix("torch.")
            raise SesameError(f"{file}: {name} is {kind}, and weights are floating-point; take a checkpoint that is not quantised")
        if value.is_floating_point() and not value.isfinite().all():
            why = "the file is broken, or of a training that diverged"
            raise SesameError(f"{file}: {name} has values that are not finite; {why}")


def bring(all_params: params.Params, name: str, run: Run) -> dict:
    block = all_params.checkpoints[name]
    with storage.output(Path("data/models", name)) as folder:
        source = folder / "source"
        source.mkdir(parents=True)
        fetch(block.source, source)
        layout, architecture, vocab_size = describe(source, block.family)
        tokens = read_tokenizer(source, layout)
        if tokens.vocab_size > vocab_size:
            raise SesameError(
                f"the tokenizer has {tokens.vocab_size:,} ids, but config.json says vocab_size {vocab_size:,}: they don't belong together"
            )
        # an embedding may be padded to a multiple of 64 for speed: rows without an id are left out
        wide = copy(tokens)
        wide.vocab_size = vocab_size
        with torch.device("meta"):
            shapes, ours = (
                {key: value.shape for key, value in store.build(architecture, tokenizer).state_dict().items()}
                for tokenizer in (wide, tokens)
            )
        state, absent, others = layout.read(layout.prepare(read_weights(source), architecture), shapes)
        state = {key: value[: ours[key][0]] if ours[key] != shapes[key] else value for key, value in state.items()}
        store.save(folder, state, architecture, tokens, absent, [{"by": "imported"}])
        model, tokens = store.load(folder)
        difference = parity.check(source, model, layout, tokens, absent, place=f"checkpoints.{name}")
        shutil.rmtree(source)
        lost = never_read(tokens)
        card = {
            "source": block.source.model_dump(mode="json"), "absent": absent, "left_out": others,
            "rows_without_id": vocab_size - tokens.vocab_size, "pieces_never_read": len(lost),
        }  # fmt: skip
        storage.write_json(folder / "card.json", card)
    print(f"{architecture.name}, {store.count_parameters(model):,} parameters; largest difference from transformers {difference:.2g}")
    if absent:
        print(f"not in the checkpoint, random in every load: {', '.join(absent)}")
    if vocab_size > tokens.vocab_size:
        print(f"left out: {vocab_size - tokens.vocab_size:,} rows of the embedding that no id of the tokenizer has")
    if lost:
        print(
            f"the tokenizer makes small letters of every text, and {len(lost):,} of its pieces have capitals, as {', '.join(lost[:3])}: "
            "if the model is cased, add a tokenizer_config.json with do_lower_case: false to the source"
        )
    if others:
        print(f"left out: {', '.join(others)}")
    run.artifact(Path("data/models", name, "card.json"))
    return {"parameters": store.count_parameters(model), "vocab_size": tokens.vocab_size, "max_abs_difference": difference}


if __name__ == "__main__":
    stage.main("checkpoint", bring)
