"""Pre-training against transformers: the step alone and the whole loop, on the same text, in the same precision, at two sizes."""

import tempfile

import pytest
import torch
from torch.optim import AdamW
from torch.utils.data import Dataset
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
    XLNetConfig,
    XLNetLMHeadModel,
)

from components import objectives, params
from components.core import compute
from components.core.tracking import Run
from components.models import store
from components.objectives.examples.masked import scatter_targets
from components.objectives.scoring import IGNORED
from components.optimizers import parameter_groups
from components.optimizers.muon import config
from components.optimizers.muon import optimizer as muon
from components.pretrain.cost import matmul_peak, training_flops
from components.pretrain.data import PretrainData
from components.pretrain.module import Pretraining
from components.pretrain.trainer import lightning_trainer
from components.text.tokenizer import CLS, PAD
from tests.benchmarks.made import PIECES, VOCABULARY, collator, made_text
from tests.benchmarks.record import best, record

ROWS, LENGTH, STEPS = 32, 64, 40
SIZES = {"2 x 128, 1 thread": (2, 128, 1), "4 x 256, 2 threads": (4, 256, 2)}
FAMILY = {
    "albert": {"name": "encoder", "embedding_size": 32, "shared_layers": "all"},
    # theirs has no decoder with absolute positions
    "deberta": {"shared_projections": True, "norm_positions": True, "position_buckets": 32, "mask_decoder": False},
}  # fmt: skip
PRECISION = compute.precision("auto", "cpu")
BF16 = PRECISION == "bf16-mixed"


def ours(name: str, layers: int, hidden: int, threads: int) -> params.Model:
    """Our block: a masked LM without pairs, as transformers' collator knows no other, or a left-to-right one."""
    sizes = {"num_layers": layers, "hidden_size": hidden, "num_heads": hidden // 64, "intermediate_size": 4 * hidden, "max_length": LENGTH}
    objective = {
        "decoder": {"name": "clm", "isolate_documents": False}, "xlnet": {"name": "permutation", "memory": LENGTH // 2},
        "encoder_decoder": {"name": "denoising", "noise": {"kind": "whole", "infilled": 0.3}},
    }.get(name, {"name": "mlm", "next_sentence": False})  # fmt: skip
    return params.Model.model_validate({
        "encoding": "none", "architecture": {"name": name, **sizes} | FAMILY.get(name, {}), "objective": objective,
        "optimizer": {"learning_rate": 1e-3},
        "budget": {"steps": STEPS}, "batch_size": ROWS, "trainer": {"threads": threads}, "run": {"accelerator": "cpu"},
    })  # fmt: skip


def theirs(name: str, layers: int, hidden: int) -> torch.nn.Module:
    heads = hidden // 64
    sizes = {
        "vocab_size": VOCABULARY, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": 4 * hidden, "max_position_embeddings": LENGTH,
    }  # fmt: skip
    if name == "albert":
        dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
        return AlbertForMaskedLM(AlbertConfig(**sizes, **dropout, embedding_size=FAMILY[name]["embedding_size"], hidden_act="gelu"))
    if name == "deberta":
        return DebertaV2ForMaskedLM(DebertaV2Config(
            **sizes, relative_attention=True, pos_att_type="p2c|c2p", position_biased_input=False, share_att_key=True,
            norm_rel_ebd="layer_norm", position_buckets=FAMILY[name]["position_buckets"],
        ))  # fmt: skip
    if name == "xlnet":
        return XLNetLMHeadModel(XLNetConfig(
            vocab_size=VOCABULARY, d_model=hidden, n_layer=layers, n_head=heads, d_inner=4 * hidden, mem_len=LENGTH // 2,
        ))  # fmt: skip
    if name == "encoder_decoder":
        return BartForConditionalGeneration(BartConfig(
            vocab_size=VOCABULARY, d_model=hidden, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads,
            decoder_attention_heads=heads, encoder_ffn_dim=4 * hidden, decoder_ffn_dim=4 * hidden, max_position_embeddings=LENGTH,
            attention_dropout=0.1, activation_dropout=0.1, pad_token_id=PAD, decoder_start_token_id=CLS,
        ))  # fmt: skip
    if name == "encoder":
        return BertForMaskedLM(BertConfig(**sizes))
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=hidden, n_layer=layers, n_head=heads, n_positions=LENGTH))


def batches(block: params.Model):
    objective = objectives.build(block.objective, PIECES)
    return objective, objective.batches(made_text(500_000), ROWS, LENGTH, seed=1)


@pytest.mark.parametrize(("name", "size"), [(name, size) for name in ("encoder", "decoder") for size in SIZES] + [
    (name, "2 x 128, 1 thread") for name in ("albert", "deberta", "xlnet", "encoder_decoder")
])  # fmt: skip
def test_step(name, size):
    """Forward, backward, clipping and AdamW over ten batches that both get, dropout on; and ours as a share of the matmul peak."""
    layers, hidden, threads = SIZES[size]
    compute.prepare(threads)
    block = ours(name, layers, hidden, threads)
    objective, read = batches(block)
    models = [store.build(block.architecture, PIECES), theirs(name, layers, hidden)]
    steppers = [AdamW(parameter_groups(model, 1e-3, 0.01), fused=True) for model in models]
    given = [read[step] for step in range(10)]

    def run(side: int, loss_of) -> None:
        for batch in given:
            with torch.autocast("cpu", torch.bfloat16, enabled=BF16):
                loss = loss_of(batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(models[side].parameters(), 1.0)
            steppers[side].step()
            steppers[side].zero_grad()

    def our_loss(batch):
        losses, _ = objective.losses(models[0], batch.tensors, None)
        return sum(loss / batch.counts[part] for part, (loss, _) in losses.items())

    def their_loss(batch):
        rows = batch.tensors
        if name == "xlnet":
            return permuted(models[1], rows)
        if name == "decoder":
            return models[1](input_ids=rows["ids"][:, :-1], labels=rows["ids"][:, :-1]).loss
        if name == "encoder_decoder":
            attended = (torch.arange(rows["ids"].shape[1]) < rows["lengths"][:, None]).long()
            labels = torch.where(rows["targets"] == PAD, IGNORED, rows["targets"])
            return models[1](input_ids=rows["ids"], attention_mask=attended, labels=labels).loss
        width = rows["ids"].shape[1]
        labels = scatter_targets(torch.full_like(rows["ids"], IGNORED), rows["positions"], rows["labels"], rows["labels"])
        attended = (torch.arange(width) < rows["lengths"][:, None]).long()
        return models[1](input_ids=rows["ids"], attention_mask=attended, labels=labels.contiguous()).loss

    tokens = sum(batch.counts["tokens"] for batch in given)
    seconds = best(lambda: run(0, our_loss), lambda: run(1, their_loss), rounds=4)
    record(f"training step, {name} {size}", tokens / seconds[0], tokens / seconds[1], "tokens/s", "transformers' model")
    batch = given[0]
    flops = training_flops(models[0], objective, batch.tensors, objective.untrained(models[0])) / batch.counts["tokens"]
    peak = matmul_peak(torch.device("cpu"), torch.bfloat16 if BF16 else torch.float32, 2.0)
    record(f"share of the matmul peak, {name} {size}", flops * tokens / seconds[0] / 1e9, peak / 1e9, "GFLOP/s", "a matmul of 1024")


@pytest.mark.parametrize("size", SIZES)
def test_update_by_muon(size):
    """One update of all weights by Muon, beside torch's Muon for the matrices with AdamW for the rest, and beside AdamW alone."""
    layers, hidden, threads = SIZES[size]
    compute.prepare(threads)
    block = ours("decoder", layers, hidden, threads)
    models = [store.build(block.architecture, PIECES) for _ in range(3)]
    for model in models:
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
    stacked = {id(weight) for layer in models[1].stacked() for weight in layer.parameters() if weight.ndim == 2}
    apart = [[weight for weight in models[1].parameters() if (id(weight) in stacked) == inside] for inside in (True, False)]
    theirs = [torch.optim.Muon(apart[0]), AdamW(apart[1], fused=True)]
    settings = config.Muon(name="muon", learning_rate=1e-3)
    own = muon.build(settings, models[0], models[0].stacked(), lambda _: 0)
    adamw = AdamW(parameter_groups(models[2], 1e-3, 0.01), fused=True)
    seconds = best(own.step, lambda: [optimizer.step() for optimizer in theirs], adamw.step)
    record(f"update by Muon, {size}", 1 / seconds[0], 1 / seconds[1], "updates/s", "torch's Muon and AdamW")
    record(f"update by Muon against AdamW, {size}", 1 / seconds[0], 1 / seconds[2], "updates/s", "AdamW")


def permuted(model: torch.nn.Module, rows: dict[str, torch.Tensor]) -> torch.Tensor:
    """What transformers' XLNet makes of the same orders, over a memory of zeros as ours begins with."""
    ids, order = rows["ids"], rows["order"]
    hidden_from = (order[:, None] >= order[:, :, None]) & (order[:, None] > 0)
    mapping = torch.zeros(*rows["positions"].shape, ids.shape[1]).scatter(2, rows["positions"][:, :, None], 1)
    memory = [torch.zeros(LENGTH // 2, len(ids), model.config.d_model) for _ in range(model.config.n_layer)]
    asked = {"perm_mask": hidden_from.float(), "target_mapping": mapping, "labels": rows["labels"]}
    return model(ids, **asked, token_type_ids=(ids == CLS).cumsum(1), mems=memory, use_mems=True).loss


class Blocks(Dataset):
    """The rows of our batches without masks, for the Trainer's own collator."""

    def __init__(self, rows: list[list[int]]):
        self.tensors = rows

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, i: int) -> dict:
        return {"input_ids": self.tensors[i]}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_whole_loop(name, size):
    """From text to trained weights: ours through Lightning, theirs through the Trainer with its collator, padded to the batch's longest."""
    layers, hidden, threads = SIZES[size]
    compute.prepare(threads)
    block = ours(name, layers, hidden, threads)
    _, read = batches(block)
    tokens, plain = sum(read[step].counts["tokens"] for step in range(STEPS)), []
    for step in range(STEPS):
        rows = read[step].tensors
        if name == "decoder":
            plain += rows["ids"][:, :-1].tolist()
        else:
            plain += [row[:length] for row, length in zip(rows["ids"].tolist(), rows["lengths"].tolist(), strict=True)]

    def our_loop() -> None:
        objective, read = batches(block)
        module = Pretraining(block, store.build(block.architecture, PIECES), {}, objective, STEPS, Run(None))
        trainer = lightning_trainer(block, STEPS, [])
        trainer.limit_val_batches = 0
        trainer.fit(module, PretrainData(read, read, 1, 1, 0))

    def their_loop() -> None:
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, per_device_train_batch_size=ROWS, max_steps=STEPS, learning_rate=1e-3, use_cpu=True, bf16=BF16, report_to=[],
                save_strategy="no", logging_steps=20, disable_tqdm=True, max_grad_norm=1.0,
            )  # fmt: skip
            Trainer(theirs(name, layers, hidden), arguments, train_dataset=Blocks(plain), data_collator=collator(name == "encoder")).train()

    seconds = best(our_loop, their_loop, rounds=2)
    record(f"whole loop, {name} {size}", tokens / seconds[0], tokens / seconds[1], "tokens/s", "transformers' Trainer")
