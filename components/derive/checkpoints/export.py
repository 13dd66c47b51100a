"""`sesame export MODEL`: data/models/<model> -> a folder that `transformers` reads."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file

from components.core import storage
from components.core.errors import SesameError
from components.derive.checkpoints import classifiers, hub, parity, pieces
from components.derive.checkpoints.card import card
from components.finetune.tuned import TunedModel
from components.models import store
from components.models.common.layout import Layout
from components.models.contract import LanguageModel
from components.params.models import ARCHITECTURES
from components.stages.outputs import read_json
from components.text.tokenizer import Tokenizer
from components.text.tokenizer.fast import SETTINGS, FastTokenizer

if TYPE_CHECKING:
    from transformers import PretrainedConfig

FOLDER = Path("data/export")


def export(name: str, out: Path | None = None, classifier: bool = False) -> tuple[Path, float]:
    """Write a model; returns its folder and the largest difference between our outputs and those of `transformers`.

    `classifier`: with the head of its fine-tuning task instead of those of pre-training.
    Raises SesameError when there is no such model or head, `transformers` has no such model, or `out` exists.
    """
    folder = Path("data/models", name)
    target = storage.unused_path(out) if out else FOLDER / (f"{name}_classifier" if classifier else name)
    architecture = store.about(folder).architecture
    if (form := hub(architecture.name)) is None:
        written = ", ".join(family for family in ARCHITECTURES if hub(family))
        raise SesameError(f"{name} is a {architecture.name}, which transformers does not have; families that can be exported: {written}")
    kind = form.model_type(architecture)
    layout = form.LAYOUTS[kind]
    settings = layout.config(architecture)
    tuned = classifiers.tuned(folder, kind, layout) if classifier else None
    model, tokens = (tuned.module.model, tuned.tokens) if tuned else store.load(folder)
    absent = model.absent
    if layout.code_points and isinstance(tokens, Tokenizer):
        raise SesameError(
            f"{name} reads characters of one form and case, with ids of its own (tokenizers' kind: characters), and transformers' {kind} "
            "reads any text by code points: the ids would differ"
        )
    longest = tuned.recipe.max_length if tuned else architecture.max_length
    state = {key: value for key, value in model.state_dict().items() if key.partition(".")[0] not in absent}
    with storage.output(target) as written:
        written.mkdir(parents=True)
        _write_tokenizer(written, tokens, form, layout, longest, tuned)
        config = _config(written, kind, layout, settings | (classifiers.settings(tuned) if tuned else {}), tokens)
        config.architectures = [
            layout.classifier[0] if tuned else next(name for part, name in layout.classes.items() if part not in absent)
        ]
        config.save_pretrained(written)
        _write_forced_tokens(written, config, model)
        weights = classifiers.weights(tuned, layout, state) if tuned else layout.write(state)
        save_file(layout.restore(weights, architecture), written / "model.safetensors", metadata={"format": "pt"})
        about = card(name, kind, config.architectures[0], store.about(folder).lineage)
        (written / "README.md").write_text(about, encoding="utf-8")
        if tuned:
            return target, classifiers.check(written, tuned)
        without = sorted({key.partition(".")[0] for key in state if not layout.names(key)})
        difference = parity.check(written, model, layout, tokens, [*absent, *without])
    if without:
        print(f"left out, since transformers' {kind} has no such module: {', '.join(without)}")
    return target, difference


def _write_tokenizer(
    folder: Path, tokens: Tokenizer | FastTokenizer, form: ModuleType, layout: Layout, longest: int, tuned: TunedModel | None
) -> None:  # fmt: skip
    """Write the tokenizer's files; `longest` is the number of tokens that it cuts a text to."""
    if layout.code_points:
        parity.quiet_transformers().CanineTokenizer(model_max_length=longest).save_pretrained(folder)
    elif isinstance(tokens, Tokenizer):  # trained by Sesame
        pieces.write(tokens, form, longest, folder, tuned is not None)
    else:
        tokens.save(folder)
        if tuned:
            storage.write_json(folder / SETTINGS, read_json(folder / SETTINGS) | {"model_max_length": longest})


def _config(
    folder: Path, kind: str, layout: Layout, settings: dict[str, Any], tokens: Tokenizer | FastTokenizer
) -> "PretrainedConfig":  # fmt: skip
    """Build the configuration of `transformers` from a family's settings and the special tokens of the tokenizer in `folder`."""
    transformers = parity.quiet_transformers()
    reader = transformers.CanineTokenizer if layout.code_points else transformers.PreTrainedTokenizerFast
    theirs = reader.from_pretrained(folder)
    numbers = {f"{key}_token_id": getattr(theirs, f"{key}_token_id") for key in ("pad", "bos", "eos")}
    numbers |= {} if layout.code_points else {"vocab_size": tokens.vocab_size}
    config = transformers.AutoConfig.for_model(kind, **settings, **numbers)
    # of a T5 version 5 keeps this under another name, and version 4 reads it here
    config.update(layout.legacy_settings | {key: settings[key] for key in ("tie_word_embeddings",) if key in settings})
    return config


def _write_forced_tokens(folder: Path, config: "PretrainedConfig", model: LanguageModel) -> None:
    """Write the tokens that begin and end each generated text, of a model that has such."""
    forced = {"forced_bos_token_id": model.forced_first, "forced_eos_token_id": model.forced_end}
    if any(token is not None for token in forced.values()):
        of_writing = parity.quiet_transformers().GenerationConfig.from_model_config(config)
        of_writing.update(**forced)
        of_writing._from_model_config = False  # or version 4 makes it again from config.json, which has no forced tokens
        of_writing.save_pretrained(folder)
