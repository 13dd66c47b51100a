"""The classifier of a task in the format of `transformers`: what `pipeline("text-classification")` loads."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from components.core.errors import SesameError
from components.derive.checkpoints import parity
from components.finetune.tuned import TunedModel
from components.models.common.layout import HEADS, Layout
from components.tasks import Example


def tuned(folder: Path, kind: str, layout: Layout) -> TunedModel:
    """A fine-tuned model for which `transformers` has a class. Raises SesameError where it has none."""
    model = TunedModel(folder)
    if model.task.kind not in ("classification", "regression") or model.recipe.method != "full":
        raise SesameError(
            f"{folder.name} was tuned on {model.name}, a {model.task.kind} task, by method {model.recipe.method}: only "
            "classification and regression by method full can be exported"
        )
    if layout.classifier is None:
        raise SesameError(
            f"transformers' {kind} pools a text differently; classifiers can be exported of a BERT, an ALBERT, a GPT-2 or a GPT-NeoX"
        )
    if model.recipe.head != "pooled" or (model.pair and not model.kind.joined):
        raise SesameError(
            f"the recipe of {folder.name} has head {model.recipe.head}, pair {model.recipe.pair}, and transformers' classifiers "
            "read head pooled, pair joined"
        )
    return model


def settings(model: TunedModel) -> dict[str, Any]:
    """The entries of `config.json` for the head."""
    if model.task.kind == "regression":
        return {"num_labels": 1, "problem_type": "regression"}
    labels = dict(enumerate(model.task.labels))
    return {
        "id2label": labels, "label2id": {label: i for i, label in labels.items()}, "problem_type": "single_label_classification"
    }  # fmt: skip


def weights(model: TunedModel, layout: Layout, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of body and head by the names of `transformers`, without pre-training's heads. `state`: the model's, by our names."""
    weight, bias = (value.detach().clone() for value in (model.module.head.output.weight, model.module.head.output.bias))
    if model.task.kind == "regression":  # it was trained in units of the training scores' deviation
        weight, bias = weight * model.kind.scale, bias * model.kind.scale + model.kind.centre + model.kind.origin
    _, name = layout.classifier
    if layout.classifier_bias is None:
        # theirs is W h + 0 where ours is W h + b: adding a vector that W maps to b to the last norm's bias is the same
        step = torch.linalg.lstsq(weight.double(), bias.double()[:, None]).solution[:, 0]
        state = state | {"final_norm.bias": state["final_norm.bias"] + step.to(bias.dtype)}
        head = {f"{name}.weight": weight}
    else:
        head = {f"{name}.weight": weight, f"{name}.bias": bias}
    body = {key: value for key, value in state.items() if key.partition(".")[0] not in HEADS or key.startswith("pooler.")}
    return layout.write(body) | head


@torch.no_grad()
def check(folder: Path, model: TunedModel) -> float:
    """The largest difference between our outputs and those of `transformers`, on texts or pairs.

    Raises SesameError where it is above `parity.TOLERANCE` of the largest output, or a text has other tokens.
    """
    transformers = parity.quiet_transformers()
    tokens = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    loader = transformers.AutoModelForSequenceClassification
    theirs = loader.from_pretrained(folder, local_files_only=True, trust_remote_code=False).eval()
    firsts = [text for words in (2, 8, None) for line in parity.TEXTS if (text := " ".join(line.split()[:words]))]
    pairs = zip(firsts, [*firsts[1:], firsts[0]], strict=True) if model.pair else ((text, None) for text in firsts)
    differences = []
    for a, b in pairs:
        example = Example("", a, b, None)
        encoded = model.kind.encode([example], model.tokens)
        if encoded.cut:  # `transformers` may cut the other text of a pair
            continue
        batch = tokens(a, b, split_special_tokens=True, return_tensors="pt")
        if batch["input_ids"][0].tolist() != encoded.texts[0][0].tolist():
            raise SesameError(f"{folder}: transformers reads {a!r} as other tokens than fine-tuning did")
        predicted = model.predict([example])
        ours = torch.tensor(predicted.values if predicted.logits is None else predicted.logits[0])
        differences.append((ours - theirs(**batch).logits[0]).abs().max() / max(1.0, float(ours.abs().max())))
    if not (difference := float(torch.stack(differences).max())) < parity.TOLERANCE:
        raise SesameError(f"{folder}: transformers computes other outputs, by up to {difference:.2g} of the largest one")
    return difference
