"""transformers' own pre-training on our text under our recipe, to hold our losses against. By hand, in a project's folder:

    sesame export MODEL --out FOLDER
    python -m tests.benchmarks.trainer_losses FOLDER MODEL

Both models are asked about the same tokens of the validation text, ours after its export. MODEL is a BERT of full sentences or a GPT
that sees across documents (`isolate_documents: false`), in a form that transformers has, with AdamW under the linear schedule. The Trainer
shuffles rows of the same text: of a BERT `[CLS]`, text with a `[SEP]` behind each document, `[SEP]`.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, Trainer, TrainingArguments

from components import params
from components.core import compute
from components.text import encode
from components.text.tokenizer import CLS, MASK, SEP, SPECIALS

IGNORED = -100


def rows(encoding: str, split: str, length: int, masked: bool) -> torch.Tensor:
    """The tokens of a split in rows, (rows, length)."""
    tokens = np.concatenate([shard.tokens for shard in encode.load(Path("data/encoded", encoding), split).shards]).astype(np.int64)
    if not masked:
        return torch.from_numpy(tokens[: len(tokens) // length * length]).view(-1, length)
    ends_document = np.append(tokens[1:], CLS) == CLS
    tokens = tokens[(tokens != CLS) & ((tokens != SEP) | ends_document)]
    inside = torch.from_numpy(tokens[: len(tokens) // (length - 2) * (length - 2)]).view(-1, length - 2)
    return torch.cat([torch.full((len(inside), 1), CLS), inside, torch.full((len(inside), 1), SEP)], dim=1)


class Collator:
    """BERT's masks (Devlin et al. 2019, section 3.1), drawn anew for each batch; of a left-to-right model all tokens but the first of a
    document, which ours does not predict."""

    def __init__(self, probability: float | None, vocab_size: int):
        self.probability, self.vocab_size = probability, vocab_size

    def __call__(self, examples: list[dict]) -> dict[str, torch.Tensor]:
        ids = torch.stack([example["input_ids"] for example in examples])
        if self.probability is None:
            return {"input_ids": ids, "labels": ids.masked_fill(ids == CLS, IGNORED)}
        chosen = (torch.rand(ids.shape) < self.probability) & (ids >= len(SPECIALS))
        action = torch.rand(ids.shape)
        drawn = torch.randint(len(SPECIALS), self.vocab_size, ids.shape)
        shown = torch.where(action < 0.8, MASK, torch.where(action < 0.9, drawn, ids))
        return {"input_ids": torch.where(chosen, shown, ids), "labels": torch.where(chosen, ids, IGNORED)}


@torch.no_grad()
def loss(network: torch.nn.Module, valid: torch.Tensor, masked: bool) -> float:
    """Nats of a token: of those in every seventh column, which are hidden together, or of each from those before it."""
    network.eval()
    sums = torch.zeros(2)
    for ids in valid.split(64):
        hidden = torch.zeros_like(ids, dtype=torch.bool)
        hidden[:, 3::7] = True
        hidden &= ids >= len(SPECIALS)
        logits = network(input_ids=torch.where(hidden, MASK, ids) if masked else ids).logits
        labels = torch.where(hidden, ids, IGNORED) if masked else ids.masked_fill(ids == CLS, IGNORED)[:, 1:]
        each = cross_entropy((logits if masked else logits[:, :-1]).flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=IGNORED)
        sums += torch.tensor([float(each), float((labels != IGNORED).sum())])
    return float(sums[0] / sums[1])


def main(folder: str, model: str) -> None:
    block = params.load().models[model]
    masked, length, settings = block.objective.name == "mlm", block.architecture.max_length, block.optimizer
    plain = block.objective.inputs == "full_sentences" if masked else not block.objective.isolate_documents
    if (settings.name, settings.schedule, plain) != ("adamw", "linear", True):
        sys.exit("the Trainer is only set up for rows across documents, and AdamW under the linear schedule")
    compute.prepare(block.trainer.threads)
    auto = AutoModelForMaskedLM if masked else AutoModelForCausalLM
    train, valid = (rows(block.encoding, split, length, masked) for split in ("train", "valid"))
    ours = auto.from_pretrained(folder, dtype=torch.float32)
    print(f"{model}: {sum(weights.numel() for weights in ours.parameters()):,} weights, loss {loss(ours, valid, masked):.3f}", flush=True)

    torch.manual_seed(block.seed)
    theirs = auto.from_config(AutoConfig.from_pretrained(folder))
    probability = block.objective.mlm_probability if masked else None
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(
            out, per_device_train_batch_size=block.batch_size, max_steps=block.budget.tokens // (block.batch_size * length),
            learning_rate=settings.learning_rate, warmup_steps=settings.warmup, weight_decay=settings.weight_decay, seed=block.seed,
            adam_beta1=settings.betas[0], adam_beta2=settings.betas[1], adam_epsilon=settings.eps, max_grad_norm=settings.clip_norm,
            use_cpu=True, bf16=compute.precision("auto", "cpu") == "bf16-mixed", report_to=[], save_strategy="no",
            logging_strategy="no", disable_tqdm=True, remove_unused_columns=False,
        )  # fmt: skip
        examples = [{"input_ids": row} for row in train]
        Trainer(theirs, arguments, Collator(probability, ours.config.vocab_size), train_dataset=examples).train()
    print(f"transformers: loss {loss(theirs, valid, masked):.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
