"""Fine-tuning against transformers' Trainer: one model, batch size, lengths and precision, examples/s in the same run."""

import tempfile
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning import Fabric
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from components import params
from components.core import compute
from components.finetune import kinds, loop
from components.finetune.data import Encoded
from components.finetune.methods.full import Full
from components.models import store
from components.models.encoder.config import EncoderArchitecture
from tests.benchmarks.record import record

VOCABULARY, EXAMPLES, BATCH, LONGEST, ROUNDS = 8192, 768, 32, 128, 3
SIZES = {"num_layers": 2, "hidden_size": 128, "num_heads": 2, "intermediate_size": 512, "max_length": LONGEST}
TASK = params.Task(
    licence="none", kind="classification", labels=["no", "yes"], metrics=["accuracy"], table={"format": "tsv", "text_a": 0, "label": 1},
    train={"source": {"kind": "files", "paths": ["none"]}}, dev={"share": 0.1},
)  # fmt: skip
RECIPE = params.Recipe(method="full", learning_rate=1e-4, epochs=1, batch_size=BATCH, max_length=LONGEST)


class Padded(Dataset):
    """Rows for the Trainer, padded to `width` or, with None, by its collator."""

    def __init__(self, rows: list[torch.Tensor], labels: list[int], width: int | None):
        self.rows, self.labels, self.width = rows, labels, width

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict:
        size = self.width or len(self.rows[i])
        ids = torch.zeros(size, dtype=torch.long)
        ids[: len(self.rows[i])] = self.rows[i]
        return {"input_ids": ids, "attention_mask": (torch.arange(size) < len(self.rows[i])).long(), "labels": self.labels[i]}


def collate(rows: list[dict]) -> dict:
    """To the batch's longest."""
    batch = {key: torch.nn.utils.rnn.pad_sequence([row[key] for row in rows], batch_first=True) for key in ("input_ids", "attention_mask")}
    return batch | {"labels": torch.tensor([row["labels"] for row in rows])}


def theirs(rows: list[torch.Tensor], labels: list[int], width: int | None, bf16: bool) -> float:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=VOCABULARY, num_hidden_layers=2, hidden_size=128, num_attention_heads=2, intermediate_size=512,
        max_position_embeddings=LONGEST,
    ))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=1e-4, warmup_steps=0.1, use_cpu=True, bf16=bf16,
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=Padded(rows, labels, width), data_collator=collate)
        started = time.perf_counter()
        trainer.train()
        return time.perf_counter() - started


def ours(rows: list[torch.Tensor], labels: list[int], precision: str) -> float:
    torch.manual_seed(0)
    tokens = SimpleNamespace(vocab_size=VOCABULARY)
    kind = kinds.build(TASK, RECIPE)
    model = store.build(EncoderArchitecture(name="encoder", **SIZES), tokens)
    module = Full(model, tokens, RECIPE, kind, pair=False)
    data = Encoded([[row] for row in rows], [[torch.zeros_like(row)] for row in rows], labels)
    started = time.perf_counter()
    loop.fit(Fabric(accelerator="cpu", precision=precision), module, kind, data, RECIPE, 0, lambda epoch, loss: None)
    return time.perf_counter() - started


@pytest.mark.timeout(1800)
def test_fine_tuning_against_the_trainer():
    compute.prepare(1)
    precision = compute.precision("auto", "cpu")
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(3.0, 0.5, EXAMPLES), 5, LONGEST).astype(int)  # as sentences of GLUE: median 20 tokens
    rows, labels = [torch.from_numpy(rng.integers(5, VOCABULARY, size)) for size in lengths], rng.integers(0, 2, EXAMPLES).tolist()
    sides = {
        "ours, length buckets": lambda: ours(rows, labels, precision),
        "Trainer, padded to the maximum": lambda: theirs(rows, labels, LONGEST, precision == "bf16-mixed"),
        "Trainer, padded to the batch's longest": lambda: theirs(rows, labels, None, precision == "bf16-mixed"),
    }
    times = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            times[name].append(side())
    own = EXAMPLES / min(times.pop("ours, length buckets"))
    for name, found in times.items():
        about = f"fine-tuning BERT 2 x 128, batch {BATCH}, {lengths.mean():.0f} tokens on average, {precision}, 1 thread"
        record(f"{about}, {name}", own, EXAMPLES / min(found), "examples/s", name)
