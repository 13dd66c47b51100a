"""In-context learning: what a label is worth, whatever the precision."""

from types import SimpleNamespace

import torch
from lightning import Fabric

from components.finetune.methods.in_context import InContext
from components.models import store
from components.models.decoder.config import DecoderArchitecture


def test_labels_that_are_not_equally_likely_do_not_tie_in_bf16(tokens):
    """Ties all go to the first label: a lean that is of the precision, not of the model."""
    torch.manual_seed(0)
    sizes = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "max_length": 24}
    model = store.build(DecoderArchitecture(name="decoder", **sizes, dropout=0.0), tokens).eval()
    direction, labels = torch.nn.functional.normalize(torch.randn(16), dim=0), (7, 9)
    with torch.no_grad():  # two labels with logits near 12, as likely tokens of trained models have
        model.final_norm.bias += 4 * direction
        model.token_embedding.weight[list(labels)] += 3 * direction
    prompts = torch.randint(10, tokens.vocab_size, (300, 8))
    rows = torch.stack([torch.cat([prompts, torch.full((300, 1), label)], 1) for label in labels], 1).flatten(0, 1)
    answers = torch.zeros_like(rows).index_fill_(1, torch.tensor([8]), 1)
    method = SimpleNamespace(model=model, kind=SimpleNamespace(task=SimpleNamespace(kind="classification")))
    scores = {}
    for precision in ("32-true", "bf16-mixed"):
        with torch.no_grad(), Fabric(accelerator="cpu", devices=1, precision=precision).autocast():
            scores[precision] = InContext.scores(method, rows, torch.full((600,), 9), answers).view(300, 2)
    assert all((values[:, 0] != values[:, 1]).all() for values in scores.values())
    first = {precision: int((values[:, 0] > values[:, 1]).sum()) for precision, values in scores.items()}
    assert abs(first["bf16-mixed"] - first["32-true"]) <= 6
