"""The training step of a pre-training, whatever the objective."""

import math
import time
from contextlib import nullcontext

import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch import Tensor, nn

from components import params
from components.errors import SesameError
from components.keyed import uniform
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.objectives.scoring import Sums
from components.optimizer import adamw, factor, matrices
from components.tracking import Run

PROGRESS_SECONDS = 3.0
WARM_UP = 3  # steps that no speed is taken from


class Pretraining(L.LightningModule):
    """One batch of the data is one optimizer step: its micro-batches are cut here, so that every loss is the sum over its
    targets divided by their number over all micro-batches and ranks, and a step is a step."""

    automatic_optimization = False

    def __init__(
        self, block: params.Model, model: LanguageModel, networks: dict[str, nn.Module], objective: Objective, steps: int | None, run: Run
    ):  # fmt: skip
        """`networks` are the objective's own, trained with the model; `steps` is None for a budget in minutes."""
        super().__init__()
        self.block, self.model, self.objective, self.steps, self.run = block, model, objective, steps, run
        self.networks = nn.ModuleDict(networks)
        self.tokens, self.seconds = 0, 0.0
        """Tokens read and seconds trained so far, over all attempts of this run."""
        self.curve: list[dict[str, float]] = []
        self.carry: Tensor | None = None
        self.recent: list[tuple[float, float, int]] = []  # loss, seconds, tokens of the steps since the last row of the curve
        self.valid: dict[str, float] = {}
        self.resumed_at: int | None = None
        self.earlier_seconds = 0.0
        self.shown = 0.0
        self.warm_until = WARM_UP
        self.timed_tokens, self.timed_seconds = 0, 0.0
        self.decayed = matrices(self)

    def configure_optimizers(self):
        config = self.block.optimizer
        return adamw(self, self.decayed, config.learning_rate, config.weight_decay, config.betas, config.eps)

    def progress(self, steps: float) -> float:
        """Share of the budget that is spent after so many steps."""
        if self.steps is None:
            return min(1.0, self.seconds / (60 * self.block.budget.minutes))
        return steps / self.steps

    def training_step(self, batch: dict[str, Tensor], _: int) -> None:
        started, step = time.perf_counter(), self.global_step
        # dropout is keyed by the step, so a resumed run draws the same
        torch.manual_seed(int(uniform(self.block.seed, step, self.global_rank) * 2**53))
        counts = self._over_ranks({key: float(value) for key, value in self.objective.counts(batch).items()})
        micro_batches = self.block.trainer.accumulate
        device = next(iter(batch.values())).device  # a resumed state comes from the CPU
        carries = self.carry.to(device).chunk(micro_batches) if self.carry is not None else [None] * micro_batches
        new_carries, sums = [], {}
        for i in range(micro_batches):
            rows = {key: value.chunk(micro_batches)[i] for key, value in batch.items()}
            losses, carry = self.objective.losses(self.model, rows, carries[i])
            loss = sum(part / max(1.0, counts[name]) for name, (part, _) in losses.items())
            with self._without_sync() if i < micro_batches - 1 else nullcontext():
                self.manual_backward(loss * self.trainer.world_size)  # DDP takes the mean over ranks
            new_carries.append(carry)
            for name, (part, _) in losses.items():
                sums[name] = sums.get(name, 0.0) + float(part.detach())
        self.carry = torch.cat(new_carries) if new_carries[0] is not None else None
        self._update(math.isfinite(sum(sums.values())))
        sums = self._over_ranks(sums | {"seconds": time.perf_counter() - started})
        seconds, tokens = sums["seconds"] / self.trainer.world_size, int(counts["tokens"])  # the same on every rank
        self.tokens += tokens
        self.seconds += seconds
        if step >= self.warm_until:  # the first steps of a process compile and warm caches
            self.timed_tokens, self.timed_seconds = self.timed_tokens + tokens, self.timed_seconds + seconds
        self.recent.append((sums[self.objective.main] / counts[self.objective.main], seconds, tokens))
        self._show(step + 1)
        if self.steps is None and self.progress(step + 1) >= 1:
            self.trainer.should_stop = True

    def _update(self, loss_is_finite: bool) -> None:
        """Clip and step, unless loss or gradients are not finite: on every rank alike, since gradients are averaged."""
        optimizer, clip = self.optimizers(), self.block.optimizer.clip_norm or math.inf
        if isinstance(self.trainer.strategy, FSDPStrategy):
            norm = self.trainer.strategy.model.clip_grad_norm_(clip)
        else:
            norm = nn.utils.clip_grad_norm_(self.parameters(), clip)
        if not (loss_is_finite and math.isfinite(norm)):
            raise SesameError(
                f"the loss or its gradient is not a number at step {self.global_step}; stopped before the weights took harm. The last good "
                "checkpoint is kept; lower optimizer.learning_rate or set optimizer.clip_norm"
            )
        middle = self.progress(self.global_step + 0.5)  # of the step: neither the first nor the last is lost to a rate of 0
        for group in optimizer.param_groups:
            group["lr"] = self.block.optimizer.learning_rate * factor(self.block.optimizer, middle)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def _without_sync(self):
        """No exchange of gradients between ranks before the last micro-batch."""
        return getattr(self.trainer.strategy, "block_backward_sync", nullcontext)()

    def _over_ranks(self, values: dict[str, float]) -> dict[str, float]:
        """Sums over all ranks."""
        if self.trainer.world_size == 1:
            return values
        total = self.trainer.strategy.reduce(torch.tensor(list(values.values()), dtype=torch.float64, device=self.device), reduce_op="sum")
        return dict(zip(values, total.tolist(), strict=True))

    def _show(self, done: int) -> None:
        if not self.trainer.is_global_zero:
            return
        last = self.recent[-self.block.run.log_every :]
        speed = sum(tokens for _, _, tokens in last) / sum(seconds for _, seconds, _ in last)
        loss = sum(loss for loss, _, _ in last) / len(last)
        if done % self.block.run.log_every == 0:
            learning_rate = self.optimizers().param_groups[0]["lr"]
            self.run.log({"train_loss": loss, "learning_rate": learning_rate, "tokens_per_second": speed, "tokens": self.tokens}, done)
        if time.perf_counter() - self.shown > PROGRESS_SECONDS:
            self.shown = time.perf_counter()
            share = self.progress(done)
            left = self.seconds / share - self.seconds
            steps = f"step {done:,}{f'/{self.steps:,}' if self.steps else ''} {share:4.0%}"
            print(f"{steps}  loss {loss:.3f}  {speed:,.0f} tokens/s  {left:,.0f} s left", flush=True)

    def on_train_start(self) -> None:
        self.warm_until = self.global_step + WARM_UP
        if self.resumed_at is not None and self.trainer.is_global_zero:
            print(f"resumed at step {self.resumed_at:,}", flush=True)

    def on_validation_epoch_start(self) -> None:
        self.sums, self.valid_carry, self.parts = {}, None, []

    def validation_step(self, batch: dict[str, Tensor], _: int) -> None:
        counts = self.objective.counts(batch)
        losses, self.valid_carry = self.objective.losses(self.model, batch, self.valid_carry)
        added = {"bytes": counts["bytes"]}
        for name, (loss, correct) in losses.items():
            added |= {f"{name}.loss": loss, f"{name}.correct": correct, f"{name}.count": counts[name]}
        for key, value in added.items():
            self.sums[key] = self.sums.get(key, 0.0) + float(value)
        main = self.objective.main
        self.parts.append((float(added[f"{main}.loss"]), float(added[f"{main}.count"])))

    def on_validation_epoch_end(self) -> None:
        self.valid = Sums(self._over_ranks(self.sums)).figures(self.objective.main)
        self.valid["loss_se"] = self._standard_error(self.valid["loss"])
        if not self.recent:
            return
        row = {"step": self.global_step, "tokens": self.tokens, "seconds": round(self.seconds, 2)}
        row |= {"train_loss": sum(loss for loss, _, _ in self.recent) / len(self.recent)}
        row |= self.valid
        row |= {"tokens_per_second": sum(tokens for _, _, tokens in self.recent) / sum(seconds for _, seconds, _ in self.recent)}
        self.recent = []
        self.curve.append(row)
        self.run.log(row, self.global_step)
        if self.trainer.is_global_zero:
            figures = f"valid loss {self.valid['loss']:.4f}, {self.valid['bits_per_byte']:.3f} bits/byte"
            print(f"step {self.global_step:,}: {figures}", flush=True)

    def _standard_error(self, mean: float) -> float:
        """Of the mean loss: targets of one batch are not independent, so it is from batch to batch (of a rank's rows)."""
        own = {"squares": sum((loss - count * mean) ** 2 for loss, count in self.parts), "batches": float(len(self.parts))}
        total = self._over_ranks(own | {"count": sum(count for _, count in self.parts)})
        return math.sqrt(total["squares"] * total["batches"] / max(1.0, total["batches"] - 1)) / total["count"]

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        carry = self.carry
        if carry is not None and self.trainer.world_size > 1:
            carry = self.all_gather(carry).transpose(0, 1).flatten(0, 1)  # back to the order of the rows
        checkpoint["pretraining"] = {
            "tokens": self.tokens, "seconds": self.seconds, "curve": self.curve, "recent": self.recent, "carry": carry,
            "timed": (self.timed_tokens, self.timed_seconds),
        }  # fmt: skip

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        state = checkpoint["pretraining"]
        self.tokens, self.seconds, self.curve, self.recent = state["tokens"], state["seconds"], state["curve"], state["recent"]
        self.timed_tokens, self.timed_seconds = state["timed"]
        if state["carry"] is not None:
            self.carry = state["carry"][self.global_rank :: self.trainer.world_size]
        self.resumed_at, self.earlier_seconds = checkpoint["global_step"], self.seconds
