"""The training step of a pre-training, whatever the objective."""

import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from components import optimizers, params
from components.core.errors import Diverged
from components.core.keyed import uniform
from components.core.tracking import Run
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.objectives.examples.batches import Tensors
from components.objectives.scoring import LossTotals
from components.pretrain.data import DummyBatch, micro_batches

PROGRESS_SECONDS = 3.0
WARM_UP = 3
"""Steps at the start of a process that are left out of the measured speed: they compile and fill caches."""


class Pretraining(L.LightningModule):
    """One batch of the data is one optimizer step, split into the micro-batches of all ranks.

    Each loss is summed over the targets and divided by their number over all micro-batches and ranks, so that the result does not
    depend on how a step is split. The host never waits for the device inside a step: the number of targets is known when a batch is
    built, and losses, also non-finite ones, stay on the device until `read` fetches them for the log, a validation or a checkpoint.
    (ELMo is the exception: only the GPU knows how many different tokens a batch has.)
    """

    automatic_optimization = False

    def __init__(
        self, config: params.Model, model: LanguageModel, networks: dict[str, nn.Module], objective: Objective, steps: int | None, run: Run,
        raw_bytes_ratio: float = 1.0, phase_starts: Sequence[int] = (0,),
    ):  # fmt: skip
        """`networks` are the objective's auxiliary networks, trained with the model; `steps` is None for a budget in minutes.
        `raw_bytes_ratio` is the number of bytes of the raw validation text per byte of its tokens, so that bits per byte compare
        across tokenizers that normalise it differently. `phase_starts` are the first steps of the phases."""
        super().__init__()
        self.config, self.model, self.objective, self.steps, self.run = config, model, objective, steps, run
        self.raw_bytes_ratio, self.phase_starts = raw_bytes_ratio, phase_starts
        self.networks = nn.ModuleDict(networks)
        self.tokens, self.seconds = 0, 0.0
        """Tokens read and seconds trained so far, over all attempts of this run; seconds as of the last `read`."""
        self.curve: list[dict[str, float]] = []
        self.carry: list[Tensor] | None = None  # of each of this rank's micro-batches
        self.unread: list[tuple[Tensor, dict[str, float]]] = []  # loss on the device and counts of each step since the last `read`
        self.recent: list[tuple[float, float, int]] = []  # loss, seconds and tokens of each step since the last row of the curve
        self.latest: deque[tuple[float, float, int]] = deque(maxlen=config.run.log_every)  # the same of the last steps
        self.valid: dict[str, float | None] = {}
        self.attempts: list[dict[str, int | str]] = []
        """The first step and the hardware of each attempt of this run."""
        self.earlier_seconds = 0.0
        self.last_progress = 0.0  # time of the last printed line
        self.clock: float | None = None  # start of the time that is not yet added to `seconds`
        self.warm_until = WARM_UP
        self.rate = 0.0
        """The share of the full learning rate in the last step."""
        self.timed_tokens, self.timed_seconds = 0, 0.0
        self.first_bad = torch.tensor(torch.inf)
        """The first step with a non-finite loss or gradient: from it on no step changes the weights, until `read` stops the run."""

    def configure_model(self) -> None:
        """Under `strategy: fsdp`, shard every layer, the rest of the model, and the networks over the ranks (Zhao et al. 2023)."""
        if isinstance(self.trainer.strategy, ModelParallelStrategy) and not isinstance(self.model, FSDPModule):
            mesh = self.device_mesh["data_parallel"]
            for module in (*self.model.stacked(), self.model, *self.networks.values()):
                fully_shard(module, mesh=mesh)

    def configure_optimizers(self):
        return optimizers.build(self.config.optimizer, self, self.model.stacked(), self._distance)

    def _distance(self, parameter: str) -> int:
        """Return the number of layers from the model's heads down to a parameter; 0 for the objective's networks."""
        module, _, name = parameter.partition(".")
        return self.model.num_layers + 1 - self.model.depth(name) if module == "model" else 0

    def progress(self, steps: float) -> float:
        """Return the share of the budget that is used after so many steps. The steps of a phase cost the same, those of phases do not."""
        if self.steps is None:
            return min(1.0, self.seconds / (60 * self.config.budget.minutes))
        shares = [phase.share for phase in self.config.phases]
        shares.append(1 - sum(shares))
        number = bisect_right(self.phase_starts, steps) - 1
        start, end = self.phase_starts[number], (*self.phase_starts[1:], self.steps)[number]
        return sum(shares[:number]) + shares[number] * (steps - start) / max(1, end - start)

    def training_step(self, batch: tuple[list[Tensors], dict[str, float]], _: int) -> None:
        self.clock = self.clock or time.perf_counter()
        (micro_batches, counts), step = batch, self.global_step
        carries = self.carry or [None] * len(micro_batches)
        self.carry, totals = [], {}
        for i, tensors in enumerate(micro_batches):
            # dropout is keyed by step and micro-batch: a resumed run draws the same numbers, and so do two ranks that share the step
            torch.manual_seed(int(uniform(self.config.seed, step, self.global_rank * len(micro_batches) + i) * 2**53))
            losses, carry = self.objective.losses(self.model, tensors, carries[i])
            weights = self.objective.weights
            loss = sum(weights.get(name, 1.0) * term / max(1.0, counts[name]) for name, (term, _) in losses.items())
            with self._without_sync() if i < len(micro_batches) - 1 else nullcontext():
                self.manual_backward(loss * self.trainer.world_size)  # DDP takes the mean over ranks
            self.carry.append(carry)
            for name, (term, _) in losses.items():
                totals[name] = totals.get(name, 0.0) + term.detach()
        if self.carry[0] is None:
            self.carry = None
        self._update(sum(totals.values()), step)
        self.tokens += int(counts["tokens"])
        self.unread.append((totals[self.objective.main], counts))
        log_due = (step + 1) % self.config.run.log_every == 0 or step + 1 == self.steps
        timed_budget = self.steps is None
        # read after the warm-up to time the steps after it, and always for a budget in minutes, since all ranks must agree on the time
        if log_due or step + 1 == self.warm_until or timed_budget or self._progress_due():
            self.read()
        if log_due:
            self._log(step + 1)
        self._print_progress(step + 1)
        if timed_budget and self.progress(step + 1) >= 1:
            self.trainer.should_stop = True

    def _update(self, loss: Tensor, step: int) -> None:
        """Clip and step, unless loss or gradients are not finite, in this step or before. (All ranks see the same averaged gradients.)"""
        optimizer, clip = self.optimizers(), self.config.optimizer.clip_norm or math.inf
        norm = nn.utils.clip_grad_norm_(self.parameters(), clip)
        if isinstance(norm, DTensor):  # each rank has the norm of its shards
            norm = norm.full_tensor()
        finite = torch.isfinite(norm) & torch.isfinite(loss)
        self.first_bad = torch.minimum(self.first_bad, torch.where(finite, torch.inf, float(step)))
        optimizer.optimizer.found_inf = self.first_bad.isfinite().float()  # which the fused optimizer reads on the device
        middle = self.progress(self.global_step + 0.5)  # of the step, so that neither the first nor the last one has a rate of 0
        self.rate = optimizers.factor(self.config.optimizer, middle)
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * self.rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def read(self) -> None:
        """Wait for the device; fetch losses and time of the steps since the last call. Raise Diverged if a loss was not finite."""
        if not self.unread:
            return
        losses = torch.stack([loss.double() for loss, _ in self.unread])
        *losses, bad = self._over_ranks(torch.cat([losses, self.first_bad.double().isfinite()[None]])).tolist()  # waits
        elapsed = torch.tensor([time.perf_counter() - self.clock], dtype=torch.float64, device=self.device)
        [seconds] = (self._over_ranks(elapsed) / self.trainer.world_size).tolist()  # the same on every rank
        self.clock = time.perf_counter()
        if bad:
            step = int(min(self.first_bad.item(), self.global_step))  # this rank may not have seen it: at most the current step
            raise Diverged(
                f"the loss or its gradient is not a number at step {step}; stopped before it changed the weights. The last good "
                "checkpoint is kept; lower optimizer.learning_rate or set optimizer.clip_norm"
            )
        per_step, main = seconds / len(self.unread), self.objective.main
        read = [
            (loss / max(1.0, counts[main]), per_step, int(counts["tokens"])) for loss, (_, counts) in zip(losses, self.unread, strict=True)
        ]
        if self.global_step >= self.warm_until + len(read):
            self.timed_tokens += sum(tokens for _, _, tokens in read)
            self.timed_seconds += seconds
        self.seconds += seconds
        self.recent += read
        self.latest += read
        self.unread = []

    def _progress_due(self) -> bool:
        """Return whether a line of progress is due on a single process; several would have to agree first."""
        return self.trainer.world_size == 1 and time.perf_counter() - self.last_progress > PROGRESS_SECONDS

    def _without_sync(self):
        """Suppress the exchange of gradients between ranks before the last micro-batch."""
        return getattr(self.trainer.strategy, "block_backward_sync", nullcontext)()

    def _over_ranks(self, values: Tensor) -> Tensor:
        """Sum over all ranks."""
        return values if self.trainer.world_size == 1 else self.trainer.strategy.reduce(values, reduce_op="sum")

    def _recent_speed(self) -> tuple[float, float]:
        """Return mean loss and tokens per second of the last `log_every` steps that were read."""
        return sum_of(self.latest, 0) / len(self.latest), sum_of(self.latest, 2) / sum_of(self.latest, 1)

    def _log(self, step: int) -> None:
        loss, speed = self._recent_speed()
        # relative to `learning_rate` of the settings: layer_decay lowers the rate of layers, and muon has another one for matrices
        learning_rate = self.config.optimizer.learning_rate * self.rate
        self.run.log({"train_loss": loss, "learning_rate": learning_rate, "tokens_per_second": speed, "tokens": self.tokens}, step)

    def _print_progress(self, step: int) -> None:
        if not (self.trainer.is_global_zero and self.latest and time.perf_counter() - self.last_progress > PROGRESS_SECONDS):
            return
        self.last_progress = time.perf_counter()
        (loss, speed), share = self._recent_speed(), self.progress(step)
        steps = f"step {step:,}{f'/{self.steps:,}' if self.steps else ''} {share:4.0%}"
        print(f"{steps}  loss {loss:.3f}  {speed:,.0f} tokens/s  {self.seconds / share - self.seconds:,.0f} s left", flush=True)

    def on_train_start(self) -> None:
        self.warm_until, self.first_bad = self.global_step + WARM_UP, self.first_bad.to(self.device)
        if self.attempts and self.trainer.is_global_zero:
            print(f"resumed at step {self.global_step:,}", flush=True)
        precision = str(self.trainer.precision)
        hardware = f"{self.trainer.world_size} x {device_name(self.device)}, {torch.get_num_threads()} threads"
        number, _ = micro_batches(self.config.trainer.accumulate, self.trainer.world_size, self.global_rank)
        attempt = {"step": self.global_step, "on": f"{hardware}, {precision}, torch {torch.__version__}"}
        self.attempts.append(attempt | {"precision": precision, "micro_batches": number})
        if len(self.attempts) > 1:
            attempts = "; ".join(f"from step {attempt['step']} on {attempt['on']}" for attempt in self.attempts)
            self.run.tag(attempts=attempts, same_bits=self.same_bits())

    def on_validation_epoch_start(self) -> None:
        self.read()
        self.clock = None  # what follows is not training time
        self.valid_carry = None
        self.valid_losses: list[tuple[Tensor, dict[str, float]]] = []

    def validation_step(self, batch: tuple[list[Tensors], dict[str, float]], _: int) -> None:
        micro_batches, counts = batch
        names = loss_terms(counts)
        sums = torch.zeros(len(names), 2, dtype=torch.float64, device=self.device)
        for tensors in micro_batches:  # one
            losses, self.valid_carry = self.objective.losses(self.model, tensors, self.valid_carry)
            if not isinstance(tensors, DummyBatch):
                sums += torch.stack([torch.stack([value.double() for value in losses[name]]) for name in names])
        self.valid_losses.append((sums, counts))

    def on_validation_epoch_end(self) -> None:
        self.summarise_validation()
        if self.recent:
            self.add_row()

    def summarise_validation(self) -> None:
        """Fill `valid` from the losses of the validation steps."""
        sums = self._over_ranks(torch.stack([sums for sums, _ in self.valid_losses])).cpu().numpy()  # (batches, terms, loss and correct)
        counts = {name: np.array([of_batch[name] for _, of_batch in self.valid_losses]) for name in self.valid_losses[0][1]}
        names, totals = loss_terms(counts), {"bytes": counts["bytes"].sum() * self.raw_bytes_ratio}
        for i, name in enumerate(names):
            totals |= {f"{name}.loss": sums[:, i, 0].sum(), f"{name}.correct": sums[:, i, 1].sum(), f"{name}.count": counts[name].sum()}
        main = self.objective.main
        self.valid = self.objective.validation_metrics(LossTotals(totals).metrics(main))
        self.valid["loss_se"] = standard_error(sums[:, names.index(main), 0], counts[main])

    def add_row(self) -> None:
        """Add a row to the curve: what was trained since the last one, and `valid`."""
        row = {"step": self.global_step, "tokens": self.tokens, "seconds": round(self.seconds, 2)}
        row |= {"train_loss": sum_of(self.recent, 0) / len(self.recent)}
        row |= self.valid
        row |= {"tokens_per_second": sum_of(self.recent, 2) / sum_of(self.recent, 1)}
        self.recent = []
        self.curve.append(row)
        # without the row's training loss and speed: under the names that `_log` gives to means over the last `log_every`
        # steps, means over all steps since the last row would be a bump
        self.run.log(self.valid | {"seconds": self.seconds}, self.global_step)
        if self.trainer.is_global_zero:
            shown = f"valid loss {self.valid['loss']:.4f}, {self.valid['bits_per_byte']:.3f} bits/byte"
            print(f"step {self.global_step:,}: {shown}", flush=True)

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        self.read()  # raises after a bad step, so that a checkpoint always has good weights
        self.clock = None  # what follows is not training time
        carry = torch.cat(self.carry) if self.carry else None
        if carry is not None and self.trainer.world_size > 1:
            carry = self.all_gather(carry).flatten(0, 1)  # each rank's sequences in turn
        checkpoint["pretraining"] = {
            "tokens": self.tokens, "seconds": self.seconds, "curve": self.curve, "recent": self.recent, "carry": carry,
            "latest": list(self.latest),
            "timed": (self.timed_tokens, self.timed_seconds), "attempts": self.attempts,
        }  # fmt: skip

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        state = checkpoint["pretraining"]
        self.tokens, self.seconds, self.curve, self.recent = state["tokens"], state["seconds"], state["curve"], state["recent"]
        self.latest.extend(state["latest"])
        (self.timed_tokens, self.timed_seconds), self.attempts = state["timed"], state["attempts"]
        if state["carry"] is not None:
            total, share = micro_batches(self.config.trainer.accumulate, self.trainer.world_size, self.global_rank)
            self.carry = [carry.to(self.device) for carry in state["carry"].chunk(total)[share]]
        self.earlier_seconds = self.seconds

    def same_bits(self) -> str:
        """Say whether the final weights equal those of an uninterrupted run bit by bit, as far as this is known beforehand."""
        for key, change in CHANGES.items():
            if len({attempt[key] for attempt in self.attempts}) > 1:
                return f"no: {change}"
        exact = self.device.type == "cpu" or self.config.trainer.deterministic
        return "yes" if exact else "not promised: kernels of this device add up in any order, unless trainer.deterministic is set"


CHANGES = {
    "precision": "in another precision",
    "micro_batches": "sums in another order, and dropout and ELECTRA's tokens are drawn for another number of "
    "micro-batches",
    "on": "sums in another order, equal but for their last bits",
}
"""What of an attempt may be another than before, and what that does to the weights."""


def device_name(device: torch.device) -> str:
    """Return the model of a GPU, or the instruction set that torch's kernels use on a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({torch.backends.cpu.get_cpu_capability()})"


def loss_terms(counts: Mapping[str, Any]) -> list[str]:
    """Return the loss terms among the names that are counted in a step."""
    return [name for name in counts if name not in ("tokens", "bytes")]


def sum_of(rows: Iterable[tuple[float, ...]], column: int) -> float:
    return sum(row[column] for row in rows)


def standard_error(losses: np.ndarray, counts: np.ndarray) -> float | None:
    """Return the standard error of the mean loss per target, from the variance between batches; None for a single batch.

    Targets of one batch are not independent. losses, counts (batches,).
    """
    squares, batches = np.square(losses - counts * losses.sum() / counts.sum()).sum(), len(losses)
    return float(np.sqrt(squares * batches / (batches - 1)) / counts.sum()) if batches > 1 else None
