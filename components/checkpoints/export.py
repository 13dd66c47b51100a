"""`sesame export MODEL`: data/models/<model> -> a folder that `transformers` reads."""

from pathlib import Path

from safetensors.torch import save_file

from components import models, stage
from components.checkpoints import parity, pieces
from components.checkpoints.layout import LAYOUTS, WRITTEN
from components.errors import SesameError
from components.tokenizer import Tokenizer

FOLDER = Path("data/export")
CLASSES = {"next_sentence": "BertForPreTraining", "head_bias": "BertForMaskedLM"}
"""The class that has the head; without one of them it is the bare model."""


def export(name: str, out: Path | None = None) -> tuple[Path, float]:
    """Write a model; where it stands and the largest difference between what it computes here and there.

    Raises SesameError when there is no such model, `transformers` has nothing like it, or `out` is in use.
    """
    folder, target = Path("data/models", name), out or FOLDER / name
    architecture = models.architecture(folder)
    if architecture.name not in WRITTEN:
        raise SesameError(f"{name} is a {architecture.name}, and transformers has no such model; what can be written: {', '.join(WRITTEN)}")
    if out and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SesameError(f"{out} is not empty; name a new folder")
    model, tokens = models.load(folder)
    absent = models.absent(folder)
    layout = LAYOUTS[WRITTEN[architecture.name]]
    state = {key: value for key, value in model.state_dict().items() if key.partition(".")[0] not in absent}
    transformers = parity.quiet_transformers()
    with stage.output(target) as written:
        written.mkdir(parents=True)
        if isinstance(tokens, Tokenizer):
            pieces.write(tokens, architecture, written)
        else:
            tokens.save(written)
        theirs = transformers.PreTrainedTokenizerFast.from_pretrained(written)
        special = {f"{key}_token_id": getattr(theirs, f"{key}_token_id") for key in ("pad", "bos", "eos")}
        config = transformers.AutoConfig.for_model(WRITTEN[architecture.name], vocab_size=tokens.vocab_size, **layout.config(architecture), **special)
        heads = [kind for head, kind in CLASSES.items() if head not in absent]
        config.architectures = ["GPT2LMHeadModel"] if architecture.name == "decoder" else [*heads, "BertModel"][:1]
        config.save_pretrained(written)
        save_file(layout.write(state), written / "model.safetensors", metadata={"format": "pt"})
        difference = parity.check(written, model, tokens, absent)
    return target, difference
