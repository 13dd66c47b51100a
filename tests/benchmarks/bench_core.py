"""How fast the core is, as ratios against a stated peer or limit measured in the same run: `make bench`.

These machines are noisy: each figure is the best of several rounds, and rounds of both sides alternate.
"""

import time
from collections.abc import Callable
from itertools import chain

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForPreTraining,
    DataCollatorForLanguageModeling,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from components import compute, corpora, objectives
from components.encode.__main__ import encode_split
from components.models import store
from components.models.decoder.block import DecoderArchitecture
from components.models.encoder.block import EncoderArchitecture
from components.objectives.clm.block import CausalLM
from components.objectives.mlm.block import MaskedLM
from components.objectives.noise.tokens import mask
from components.optimizer import adamw, matrices

SIZES = {"num_layers": 2, "hidden_size": 128, "num_heads": 2, "intermediate_size": 512, "max_length": 64, "dropout": 0.0}
ROUNDS = 6


def best(*sides: Callable[[], object]) -> list[float]:
    """Seconds of each side, the best of alternating rounds after one to warm up."""
    times = [[] for _ in sides]
    for _ in range(ROUNDS + 1):
        for side, found in zip(sides, times, strict=True):
            started = time.perf_counter()
            side()
            found.append(time.perf_counter() - started)
    return [min(found[1:]) for found in times]


def show(name: str, ours: float, theirs: float, unit: str, amount: float, peer: str) -> None:
    print(f"\n{name}: {amount / ours:,.0f} {unit}, {theirs / ours:.2f}x of {peer} ({amount / theirs:,.0f})")


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_training_step(name, tokens, train_split):
    """A full training step against transformers' model of the same size on the same batch, same optimizer, one thread, fp32."""
    compute.prepare(1)
    architecture = EncoderArchitecture if name == "encoder" else DecoderArchitecture
    block = architecture(name=name, **SIZES)
    objective = objectives.build(MaskedLM(name="mlm") if name == "encoder" else CausalLM(name="clm", isolate_documents=False), tokens)
    rows = objective.batches(train_split, 32, 64, seed=0)[0]
    ours = store.build(block, tokens)
    if name == "encoder":
        config = BertConfig(
            vocab_size=tokens.vocab_size, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512,
            max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        theirs, key = BertForPreTraining(config), "ids"
        attention = (torch.arange(rows["ids"].shape[1]) < rows["lengths"][:, None]).long()
        given = {
            "input_ids": rows["ids"], "attention_mask": attention, "token_type_ids": rows["segment_ids"],
            "labels": rows["labels"], "next_sentence_label": rows["is_random"],
        }  # fmt: skip
    else:
        config = GPT2Config(
            vocab_size=tokens.vocab_size, n_embd=128, n_layer=2, n_head=2, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
        )
        theirs, key = GPT2LMHeadModel(config), "ids"
        given = {"input_ids": rows["ids"][:, :-1], "labels": rows["ids"][:, :-1]}
    steppers = [adamw(side, matrices(side), 1e-3, 0.01) for side in (ours, theirs)]

    def our_step() -> None:
        losses, _ = objective.losses(ours, rows, None)
        counts = objective.counts(rows)
        sum(loss / counts[part] for part, (loss, _) in losses.items()).backward()
        steppers[0].step()
        steppers[0].zero_grad()

    def their_step() -> None:
        theirs(**given).loss.backward()
        steppers[1].step()
        steppers[1].zero_grad()

    times = best(our_step, their_step)
    show(f"training step, {name} 2x128", *times, "tokens/s", rows[key].numel(), "transformers")


def test_masking():
    """Keyed masking against transformers' collator, 256 rows of 128 tokens."""
    vocab, rows = 8000, 256
    ids = np.random.default_rng(0).integers(5, vocab, (rows, 128))
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    specials = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    words = Tokenizer(WordLevel(specials | {f"w{i}": i for i in range(5, vocab)}, unk_token="[UNK]"))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"
    )
    collator = DataCollatorForLanguageModeling(fast, mlm_probability=0.15)
    examples = [{"input_ids": row} for row in torch.from_numpy(ids)]
    config, ordinary, keys = MaskedLM(name="mlm"), np.arange(5, vocab), np.arange(rows)
    times = best(lambda: mask(ids, config, ordinary, (1, 0), keys), lambda: collator(examples))
    show("masking", *times, "tokens/s", ids.size, "transformers' collator")


def test_encoding(built, tokens, tmp_path):
    """The encode stage against sentencepiece alone on the same text, which is its limit."""
    source = built / "data/corpora/tiny"
    texts = list(chain.from_iterable(corpora.read(source, "train")))
    size = sum(len(text.encode()) for text in texts)
    times = best(lambda: encode_split(source, "train", tokens, tmp_path, "uint16"), lambda: tokens.encode(texts, threads=2))
    show("encoding", *times, "bytes/s", size, "sentencepiece alone")
