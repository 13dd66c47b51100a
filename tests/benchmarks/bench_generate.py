"""Writing against transformers' `generate`, on the same weights: tokens/s of greedy search and of beams."""

from pathlib import Path

import pytest
import torch
import transformers

from components import params
from components.core import compute
from components.derive.checkpoints import export
from components.generate import writing
from components.models import store
from components.params import Beam, Greedy
from tests.benchmarks.record import best, record

NEW, ROWS = 48, 16
SIZES = {"num_layers": 3, "hidden_size": 256, "num_heads": 4, "intermediate_size": 1024, "max_length": 128}


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_tokens_a_second(project, tokens, family):
    """Sixteen sources of a dozen tokens, 48 new ones each, whatever the weights; neither side ends a text before."""
    compute.prepare(1)
    block = params.check(tokens_params(family)).models["any"].architecture
    torch.manual_seed(0)
    store.save(Path("data/models/any"), store.build(block, tokens).state_dict(), block, tokens)
    writer = writing.load("any")
    kind = "AutoModelForSeq2SeqLM" if writer.reads_source else "AutoModelForCausalLM"
    theirs = getattr(transformers, kind).from_pretrained(export.export("any")[0]).eval()
    sources = [writer.source("the old woman carries a red ball near the sea")[:12] for _ in range(ROWS)]
    writer.forbidden = torch.cat([writer.forbidden, torch.tensor([writer.end])])
    settings = {"do_sample": False, "max_new_tokens": NEW, "min_new_tokens": NEW, "pad_token_id": 0, "eos_token_id": 3}
    settings |= {"decoder_start_token_id": 2} if writer.reads_source else {}
    ids = torch.tensor(sources)
    for name, how, beams in (
        ("greedy", Greedy(kind="greedy", max_new_tokens=NEW), 1), ("4 beams", Beam(kind="beam", beams=4, max_new_tokens=NEW), 4),
    ):  # fmt: skip
        seconds = best(
            lambda how=how: writer.write(sources, how, ROWS),
            lambda beams=beams: theirs.generate(ids, num_beams=beams, **settings), rounds=4,
        )  # fmt: skip
        made = ROWS * NEW
        record(f"writing, {family}, {name}", made / seconds[0], made / seconds[1], "tokens/s", "transformers' generate")


def tokens_params(family: str) -> dict:
    from tests.conftest import tiny_params

    raw = tiny_params()
    objective = {"decoder": "clm", "encoder_decoder": "translation"}[family]
    raw["models"] = {
        "any": raw["models"]["gpt"] | {"architecture": {"name": family, **SIZES}, "objective": {"name": objective}, "prompts": []},
    }
    raw["finetune"] |= {"models": [], "recipes": {}}
    raw["studies"] = {}
    return raw
