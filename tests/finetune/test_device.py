"""An epoch of fine-tuning on a device that is not the CPU, without one (`tests.watched` says how)."""

import numpy as np
import pytest
import torch
from lightning import Fabric
from torch.utils._pytree import tree_map_only

from components.finetune import data, loop, methods
from components.models import store
from components.tasks import Example
from tests.finetune.test_finetune import CHECKED, FABRIC, TASK, other_task, recipe
from tests.watched import Watched

WORDS = ["the", "dog", "sees", "the", "river"]
ROWS = {
    "classification": [Example(str(i), " ".join(WORDS), "a man", ["no", "yes"][i % 2]) for i in range(8)],
    "choice": [Example(str(i), "the dog", None, ["1"], choices={"0": "a man", "1": "the river"}) for i in range(8)],
    "extraction": [
        Example(str(i), "who", "the dog sees a man", ["a man"], spans=[("text_b", 13, 18)]) for i in range(8)
    ],
    "tagging": [Example(str(i), " ".join(WORDS), None, ["O", "B-x", "O", "O", "B-x"], words=WORDS) for i in range(8)],
    "regression": [Example(str(i), "the dog", "a man", float(i % 3)) for i in range(8)],
}


class OnMeta(Fabric):
    """Moves batches to `meta`."""

    def to_device(self, given):
        return tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), given)


def task(kind: str):
    labels = {"classification": TASK.labels, "tagging": ["O", "B-x"]}.get(kind, [])
    return other_task(kind, labels=labels, range=None)


CASES = [
    *((kind, "full", {}) for kind in ROWS),
    ("classification", "features", {}),
    *(("classification", method, {}) for method in ("bitfit", "adapters", "lora", "prompt", "mix", "linear_probe")),
    ("classification", "sentence_probe", {"pair": "apart"}),
    ("classification", "early_exit", {"exits": [1, 2]}),
    ("classification", "decomposable_attention", {"pair": "apart"}),
    *(("classification", "full", {"head": head, "pair": "apart"}) for head in ("mix", "bilstm", "concat")),
    ("classification", "full", {"head": "decomposable_attention", "pair": "apart", "class_weights": "balanced"}),
    ("classification", "full", {"label_smoothing": 0.1}),
]


@pytest.mark.parametrize(("kind_of_task", "method", "changes"), CASES)
def test_an_epoch_stays_on_the_device(kind_of_task, method, changes, tokens):
    """Its losses come back as tensors of the device: only `fit` reads them, once an epoch. The biLSTM waits once a step."""
    chosen = recipe(method=method, prompt_length=4, epochs=2, **changes)
    model = store.build(CHECKED.models["bert"].architecture, tokens)
    kind = methods.build_kind(task(kind_of_task), chosen, "same")
    rows = ROWS[kind_of_task]
    module = methods.build(model, tokens, chosen, kind, rows[0].text_b is not None)
    encoded = module.inputs(kind.encode(rows, tokens), FABRIC)
    kind.prepare_targets(encoded)
    module.to("meta").train()
    groups = [group | {"full_lr": group["lr"]} for group in loop.optimizer_groups(module, chosen)]
    optimizer = torch.optim.SGD(groups)  # fused AdamW is torch's, and not built for `meta`
    order = data.batches(encoded, 4, np.random.default_rng(0))
    fabric = OnMeta(accelerator="cpu")
    if method == "features" or chosen.head == "bilstm":
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta"):  # a packed LSTM has lengths on the CPU
            loop.train_epoch(fabric, module, optimizer, kind, encoded, order, chosen, 0, loop.Cost())
        return
    with Watched() as watched:
        losses, sizes = loop.train_epoch(fabric, module, optimizer, kind, encoded, order, chosen, 0, loop.Cost())
    assert not watched.noted
    assert sizes == [4, 4] and all(loss.is_meta for loss in losses)
