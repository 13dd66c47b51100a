"""`sesame export MODEL`: data/models/<model> -> a folder that `transformers` reads."""

import json
from pathlib import Path

from safetensors.torch import save_file

from components import params, stage
from components.checkpoints import hub, parity, pieces
from components.errors import SesameError
from components.models import store
from components.params.models import ARCHITECTURES
from components.tokenizer import Tokenizer

FOLDER = Path("data/export")


LIBRARY = "transformers"
"""In the front matter of a model card: which library loads it."""


def card(name: str, kind: str, loaded_by: str, lineage: list[dict]) -> str:
    """The model card: licences, what the model is, and what made it, step by step."""
    licences = list(dict.fromkeys(licence for step in lineage for licence in licences_of(step, name)))
    steps = [
        " ".join(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in step.items()) for step in lineage
    ]
    front = f"library_name: {LIBRARY}\nlicense: other\nlicense_name: {json.dumps('; '.join(licences) or 'not stated')}"
    made = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
    return f"""---
{front}
---
# {name}

A {kind} model for `{loaded_by}`, written by Sesame. Licences of the weights or texts it was made of: {", ".join(licences) or "not stated"}.

How it was made:

{made}
"""


def licences_of(step: dict, name: str) -> list[str]:
    """Of a step of a model's lineage: that of the weights, or of the corpora of its encoding, as far as their cards
    are here."""
    if "licence" in step or not Path("params.yaml").exists():
        return [step["licence"]] if "licence" in step else []
    declared = params.load()
    # the step that a model begins with names no text: that of its section is
    text = step.get("on") or (declared.models[name].encoding if name in declared.models else None)
    if (encoding := declared.encodings.get(text)) is None:
        return []
    cards = [Path("data/corpora", encoding.corpus, "card.json")]
    if cards[0].exists() and (mix := declared.mixes.get(encoding.corpus)):
        cards.append(Path("data/corpora", mix.corpus, "card.json"))
    return [licence for path in cards if path.exists() and (licence := stage.read_json(path).get("licence"))]


def export(name: str, out: Path | None = None) -> tuple[Path, float]:
    """Write a model; where it stands and the largest difference between what it computes here and there.

    Raises SesameError when there is no such model, `transformers` has nothing like it, or `out` is in use.
    """
    folder, target = Path("data/models", name), out or FOLDER / name
    architecture = store.about(folder).architecture
    if (form := hub(architecture.name)) is None:
        written = ", ".join(family for family in ARCHITECTURES if hub(family))
        raise SesameError(f"{name} is a {architecture.name}, and transformers has no such model; what can be written: {written}")
    if out and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SesameError(f"{out} is not empty; name a new folder")
    model, tokens = store.load(folder)
    absent = model.absent
    kind = form.written(architecture)
    layout = form.LAYOUTS[kind]
    if layout.code_points and isinstance(tokens, Tokenizer):
        raise SesameError(
            f"{name} reads characters of one form and case, by numbers of its own (tokenizers' kind: characters), and transformers' {kind} "
            "any text by its code points: it would read other ones"
        )
    state = {key: value for key, value in model.state_dict().items() if key.partition(".")[0] not in absent}
    transformers = parity.quiet_transformers()
    with stage.output(target) as written:
        written.mkdir(parents=True)
        if layout.code_points:
            transformers.CanineTokenizer(model_max_length=architecture.max_length).save_pretrained(written)
        elif isinstance(tokens, Tokenizer):  # trained here
            pieces.write(tokens, form, architecture.max_length, written)
        else:
            tokens.save(written)
        theirs = (transformers.CanineTokenizer if layout.code_points else transformers.PreTrainedTokenizerFast).from_pretrained(written)
        numbers = {f"{key}_token_id": getattr(theirs, f"{key}_token_id") for key in ("pad", "bos", "eos")}
        numbers |= {} if layout.code_points else {"vocab_size": tokens.vocab_size}
        config = transformers.AutoConfig.for_model(kind, **layout.config(architecture), **numbers)
        config.architectures = [next(name for part, name in layout.classes.items() if part not in absent)]
        config.save_pretrained(written)
        save_file(layout.restore(layout.write(state), architecture), written / "model.safetensors", metadata={"format": "pt"})
        without = sorted({key.partition(".")[0] for key in state if not layout.names(key)})
        (written / "README.md").write_text(card(name, kind, config.architectures[0], store.about(folder).lineage), encoding="utf-8")
        difference = parity.check(written, model, layout, tokens, [*absent, *without])
    if without:
        print(f"left out, since transformers' {kind} has no such part: {', '.join(without)}")
    return target, difference
