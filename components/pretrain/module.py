"""The training step of a pre-training, whatever the objective."""

import math
import time
from collections.abc import Mapping
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
from components.core.errors import SesameError
from components.core.keyed import uniform
from components.core.tracking import Run
from components.models.contract import LanguageModel
from components.objectives.contract import Objective
from components.objectives.examples.windows import Rows
from components.objectives.scoring import Sums
from components.pretrain.data import Idle, micro_batches

PROGRESS_SECONDS = 3.0
WARM_UP = 3  # steps that no speed is taken from


class Pretraining(L.LightningModule):
    """One batch of the data is one optimizer step: its micro-batches are those of all ranks together, so that every loss is the sum over
    its targets divided by their number over all micro-batches and ranks, and a step is a step.

    The host never waits for the device inside a step: how many targets there are is known where batches are made, and losses, like the
    news that one is not a number, stay on the device until they are `read`: for the log, a validation or a save. (ELMo's does: how many
    different pieces a batch has, a GPU must be asked.)
    """

    automatic_optimization = False

    def __init__(
        self, block: params.Model, model: LanguageModel, networks: dict[str, nn.Module], objective: Objective, steps: int | None, run: Run,
        bytes_as_came: float = 1.0,
    ):  # fmt: skip
        """`networks` are the objective's, trained with the model; `steps` is None for a budget in minutes;
        `bytes_as_came` of the validation text for each byte of its pieces, so that bits per byte compare across
        tokenizers that normalise it differently."""
        super().__init__()
        self.block, self.model, self.objective, self.steps, self.run = block, model, objective, steps, run
        self.bytes_as_came = bytes_as_came
        self.networks = nn.ModuleDict(networks)
        self.tokens, self.seconds = 0, 0.0
        """Tokens read and seconds trained so far, over all attempts of this run; seconds as of the last `read`."""
        self.curve: list[dict[str, float]] = []
        self.carry: list[Tensor] | None = None  # of each of this rank's micro-batches
        self.unread: list[tuple[Tensor, dict[str, float]]] = []  # loss on the device, and counts, of the steps since the last `read`
        self.recent: list[tuple[float, float, int]] = []  # loss, seconds, tokens of the steps since the last row of the curve
        self.valid: dict[str, float | None] = {}
        self.attempts: list[dict[str, int | str]] = []
        """Where each attempt of this run began, and on what."""
        self.earlier_seconds = 0.0
        self.shown, self.clock = 0.0, None
        self.warm_until = WARM_UP
        self.rate = 0.0
        """The share of the full learning rate in the last step."""
        self.timed_tokens, self.timed_seconds = 0, 0.0
        self.first_bad = torch.tensor(torch.inf)
        """The first step whose loss or gradient is not a number: neither it nor a later one changes weights, until `read` stops the run."""

    def configure_model(self) -> None:
        """Under `strategy: fsdp` each rank keeps its share of every layer and of what is left of the model (Zhao et al. 2023)."""
        if isinstance(self.trainer.strategy, ModelParallelStrategy) and not isinstance(self.model, FSDPModule):
            mesh = self.device_mesh["data_parallel"]
            for part in (*self.model.stacked(), self.model, *self.networks.values()):
                fully_shard(part, mesh=mesh)

    def configure_optimizers(self):
        return optimizers.build(self.block.optimizer, self, self.model.stacked(), self._distance)

    def _distance(self, parameter: str) -> int:
        """How far below the model's own heads a parameter stands; networks of the objective are level with them."""
        part, _, rest = parameter.partition(".")
        return self.model.num_layers + 1 - self.model.depth(rest) if part == "model" else 0

    def progress(self, steps: float) -> float:
        """Share of the budget that is spent after so many steps."""
        if self.steps is None:
            return min(1.0, self.seconds / (60 * self.block.budget.minutes))
        return steps / self.steps

    def training_step(self, batch: tuple[list[Rows], dict[str, float]], _: int) -> None:
        self.clock = self.clock or time.perf_counter()
        (micro_batches, counts), step = batch, self.global_step
        carries = self.carry or [None] * len(micro_batches)
        self.carry, sums = [], {}
        for i, rows in enumerate(micro_batches):
            # dropout is keyed by step and micro-batch: a resumed run draws the same, and so do two ranks that share the micro-batches
            torch.manual_seed(int(uniform(self.block.seed, step, self.global_rank * len(micro_batches) + i) * 2**53))
            losses, carry = self.objective.losses(self.model, rows, carries[i])
            weights = self.objective.weights
            loss = sum(weights.get(name, 1.0) * part / max(1.0, counts[name]) for name, (part, _) in losses.items())
            with self._without_sync() if i < len(micro_batches) - 1 else nullcontext():
                self.manual_backward(loss * self.trainer.world_size)  # DDP takes the mean over ranks
            self.carry.append(carry)
            for name, (part, _) in losses.items():
                sums[name] = sums.get(name, 0.0) + part.detach()
        if self.carry[0] is None:
            self.carry = None
        self._update(sum(sums.values()), step)
        self.tokens += int(counts["tokens"])
        self.unread.append((sums[self.objective.main], counts))
        # the first steps of a process compile and warm caches, and ranks that share a budget in minutes must agree on the time
        if (step + 1) % self.block.run.log_every == 0 or step + 1 == self.warm_until or self.steps is None or self._impatient():
            self.read()
        if (step + 1) % self.block.run.log_every == 0:
            self._log(step + 1)
        self._show(step + 1)
        if self.steps is None and self.progress(step + 1) >= 1:
            self.trainer.should_stop = True

    def _update(self, loss: Tensor, step: int) -> None:
        """Clip and step, unless loss or gradients are or were not finite: gradients are averaged over ranks, and all see the same."""
        optimizer, clip = self.optimizers(), self.block.optimizer.clip_norm or math.inf
        norm = nn.utils.clip_grad_norm_(self.parameters(), clip)
        if isinstance(norm, DTensor):  # each rank has its shards' part of it
            norm = norm.full_tensor()
        finite = torch.isfinite(norm) & torch.isfinite(loss)
        self.first_bad = torch.minimum(self.first_bad, torch.where(finite, torch.inf, float(step)))
        optimizer.optimizer.found_inf = self.first_bad.isfinite().float()  # the fused optimizer looks at it on the device
        middle = self.progress(self.global_step + 0.5)  # of the step: neither the first nor the last is lost to a rate of 0
        self.rate = optimizers.factor(self.block.optimizer, middle)
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * self.rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def read(self) -> None:
        """Wait for the device, and take over losses and time of the steps since the last call. Raises SesameError where one was bad."""
        if not self.unread:
            return
        losses = torch.stack([loss.double() for loss, _ in self.unread])
        found = self._over_ranks(torch.cat([losses, self.first_bad.double().isfinite()[None]])).tolist()  # waits
        passed = torch.tensor([time.perf_counter() - self.clock], dtype=torch.float64, device=self.device)
        [seconds] = (self._over_ranks(passed) / self.trainer.world_size).tolist()  # the same on every rank
        self.clock = time.perf_counter()
        if found[-1]:
            step = int(min(self.first_bad.item(), self.global_step))  # on a rank that has not seen it itself: not after this one
            raise SesameError(
                f"the loss or its gradient is not a number at step {step}; stopped before the weights took harm. The last good "
                "checkpoint is kept; lower optimizer.learning_rate or set optimizer.clip_norm"
            )
        each, main = seconds / len(self.unread), self.objective.main
        read = [(loss / max(1.0, counts[main]), each, int(counts["tokens"])) for loss, (_, counts) in zip(found, self.unread, strict=False)]
        if self.global_step >= self.warm_until + len(read):
            self.timed_tokens, self.timed_seconds = self.timed_tokens + sum(row[2] for row in read), self.timed_seconds + seconds
        self.seconds += seconds
        self.recent += read
        self.unread = []

    def _impatient(self) -> bool:
        """Whether a line of progress is due where nobody else has to be asked."""
        return self.trainer.world_size == 1 and time.perf_counter() - self.shown > PROGRESS_SECONDS

    def _without_sync(self):
        """No exchange of gradients between ranks before the last micro-batch."""
        return getattr(self.trainer.strategy, "block_backward_sync", nullcontext)()

    def _over_ranks(self, values: Tensor) -> Tensor:
        """Sums over all ranks."""
        return values if self.trainer.world_size == 1 else self.trainer.strategy.reduce(values, reduce_op="sum")

    def _lately(self) -> tuple[float, float]:
        """Mean loss and tokens a second of the last steps that were read."""
        last = self.recent[-self.block.run.log_every :]
        return sum(loss for loss, _, _ in last) / len(last), sum(tokens for _, _, tokens in last) / sum(seconds for _, seconds, _ in last)

    def _log(self, done: int) -> None:
        loss, speed = self._lately()
        # `learning_rate` of the settings: layer_decay lowers that of layers, and muon has another one for matrices
        learning_rate = self.block.optimizer.learning_rate * self.rate
        self.run.log({"train_loss": loss, "learning_rate": learning_rate, "tokens_per_second": speed, "tokens": self.tokens}, done)

    def _show(self, done: int) -> None:
        if not (self.trainer.is_global_zero and self.recent and time.perf_counter() - self.shown > PROGRESS_SECONDS):
            return
        self.shown = time.perf_counter()
        (loss, speed), share = self._lately(), self.progress(done)
        steps = f"step {done:,}{f'/{self.steps:,}' if self.steps else ''} {share:4.0%}"
        print(f"{steps}  loss {loss:.3f}  {speed:,.0f} tokens/s  {self.seconds / share - self.seconds:,.0f} s left", flush=True)

    def on_train_start(self) -> None:
        self.warm_until, self.first_bad = self.global_step + WARM_UP, self.first_bad.to(self.device)
        if self.attempts and self.trainer.is_global_zero:
            print(f"resumed at step {self.global_step:,}", flush=True)
        on = f"{self.trainer.world_size} x {device_name(self.device)}, {torch.get_num_threads()} threads, torch {torch.__version__}"
        self.attempts.append({"step": self.global_step, "on": on})
        if len(self.attempts) > 1:
            self.run.tag(attempts="; ".join(f"from step {own['step']} on {own['on']}" for own in self.attempts), same_bits=self.same_bits())

    def on_validation_epoch_start(self) -> None:
        self.read()
        self.clock = None  # what comes now is no training
        self.valid_carry, self.scored = None, []

    def validation_step(self, batch: tuple[list[Rows], dict[str, float]], _: int) -> None:
        micro_batches, counts = batch
        names = parts(counts)
        scores = torch.zeros(len(names), 2, dtype=torch.float64, device=self.device)
        for rows in micro_batches:  # one
            losses, self.valid_carry = self.objective.losses(self.model, rows, self.valid_carry)
            if not isinstance(rows, Idle):
                scores += torch.stack([torch.stack([part.double() for part in losses[name]]) for name in names])
        self.scored.append((scores, counts))

    def on_validation_epoch_end(self) -> None:
        scores = self._over_ranks(torch.stack([scores for scores, _ in self.scored])).cpu().numpy()  # (batches, parts, loss and correct)
        counts = {name: np.array([own[name] for _, own in self.scored]) for name in self.scored[0][1]}
        names, sums = parts(counts), {"bytes": counts["bytes"].sum() * self.bytes_as_came}
        for i, name in enumerate(names):
            sums |= {f"{name}.loss": scores[:, i, 0].sum(), f"{name}.correct": scores[:, i, 1].sum(), f"{name}.count": counts[name].sum()}
        self.valid = self.objective.figures(Sums(sums).figures(self.objective.main))
        main = self.objective.main
        self.valid["loss_se"] = standard_error(scores[:, names.index(main), 0], counts[main])
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

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        self.read()  # which stops where a step was bad: a save is always of good weights
        self.clock = None  # what comes now is no training
        carry = torch.cat(self.carry) if self.carry else None
        if carry is not None and self.trainer.world_size > 1:
            carry = self.all_gather(carry).flatten(0, 1)  # a rank's rows stand together
        checkpoint["pretraining"] = {
            "tokens": self.tokens, "seconds": self.seconds, "curve": self.curve, "recent": self.recent, "carry": carry,
            "timed": (self.timed_tokens, self.timed_seconds), "attempts": self.attempts,
        }  # fmt: skip

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        state = checkpoint["pretraining"]
        self.tokens, self.seconds, self.curve, self.recent = state["tokens"], state["seconds"], state["curve"], state["recent"]
        (self.timed_tokens, self.timed_seconds), self.attempts = state["timed"], state["attempts"]
        if state["carry"] is not None:
            every, own = micro_batches(self.block.trainer.accumulate, self.trainer.world_size, self.global_rank)
            self.carry = [part.to(self.device) for part in state["carry"].chunk(every)[own]]
        self.earlier_seconds = self.seconds

    def same_bits(self) -> str:
        """Whether the weights end as those of an attempt that nothing interrupts, as far as it is known beforehand."""
        if len({own["on"] for own in self.attempts}) > 1:
            return "no: sums in another order, equal but for their last bits"
        exact = self.device.type == "cpu" or self.block.trainer.deterministic
        return "yes" if exact else "not promised: kernels of this device add up in any order, unless trainer.deterministic is set"


def device_name(device: torch.device) -> str:
    """Of a GPU its kind; of a CPU what torch's kernels make use of."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({torch.backends.cpu.get_cpu_capability()})"


def parts(counts: Mapping[str, Any]) -> list[str]:
    """Of a loss, out of what is counted in a step."""
    return [name for name in counts if name not in ("tokens", "bytes")]


def standard_error(losses: np.ndarray, counts: np.ndarray) -> float | None:
    """Of the mean loss a target: targets of one batch are not independent, so it is from batch to batch, and of a
    single one it is not known. losses, counts (batches,)."""
    squares, batches = np.square(losses - counts * losses.sum() / counts.sum()).sum(), len(losses)
    return float(np.sqrt(squares * batches / (batches - 1)) / counts.sum()) if batches > 1 else None
