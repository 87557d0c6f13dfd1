"""Training loop: any learner, over streamed rows, resumable within an epoch.

Adam with a half-cosine rate. All random numbers derive from seed and number of the epoch or step alone, so a
checkpoint stores no generator. Averaging: Izmailov et al., "Averaging Weights Leads to Wider Optima and
Better Generalization", UAI 2018; here while the rate still falls.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.modules.batchnorm import _BatchNorm

from outrider.errors import TrainingFailed

from .checkpoints import Checkpoint, CheckpointFile
from .feed import EncodedStep, RowFeed
from .options import TrainingOptions
from .order import EpochOrder, Places, step_ends
from .ranks import Ranks
from .trainer import MeanLearner, ModelLearner, Progress, Report, StepExamples

log = logging.getLogger(__name__)
Augment = Callable[[StepExamples, torch.Generator], StepExamples]
"""Examples of a step, on the CPU, and a generator to examples of the same shapes."""
REPORT_S = 1.0
_LOSSES = 64
"""Losses that are read from the device at once."""
_MASK = 2**64 - 1


@dataclass(slots=True)
class _State:
    """Position of a run, as stored in a checkpoint."""

    epoch: int = 1
    step: int = 0
    total: float = 0.0
    """Sum of this epoch's losses over its rows."""
    rows: int = 0
    averaged: int = 0
    """Steps whose weights are in the mean."""
    losses: list[float] = field(default_factory=list)
    """Mean of each finished epoch."""
    stop_losses: list[float] = field(default_factory=list)
    best_epoch: int = 0
    resumed: int = 0
    """Times that the run continued from a checkpoint."""


class TrainingLoop:
    """A single-row batch joins the previous one, as batch normalisation needs two."""

    def __init__(
        self,
        learner: ModelLearner,
        feed: RowFeed,
        order: EpochOrder,
        options: TrainingOptions,
        *,
        stop: Places,
        report: Report,
        checkpoints: CheckpointFile | None = None,
        augment: Augment | None = None,
        ranks: Ranks = Ranks(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._learner, self._feed, self._order, self._options = learner, feed, order, options
        self._stop, self._report, self._augment, self._clock = stop, report, augment, clock
        self._ranks = ranks
        self._checkpoints = checkpoints
        module = learner.module
        self._trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._normalised = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
        ends = step_ends(order.rows, options.batch_rows, joins_single=bool(self._normalised))
        self._ends = ends
        self._steps = options.epochs * len(ends)
        self._optimiser = torch.optim.Adam(list(self._trained.values()), lr=options.learning_rate)
        self._first_averaged = self._steps - max(1, round(self._steps * options.average))
        self._mean = [torch.zeros_like(p) for p in self._trained.values()] if options.average else []
        self._best: dict[str, torch.Tensor] = {}
        self._at = _State()
        self._pending: list[tuple[torch.Tensor, int]] = []
        self._augmenting = torch.Generator()

    def run(self) -> dict[str, Any]:
        self._restore()
        self._began = self._saved = self._clock()
        self._done = 0
        self._reported = -math.inf
        with torch.random.fork_rng(devices=_cuda_devices(self._learner.module)):
            self._generators = _generators(self._learner.module)
            step_losses = self._ranks.wrapped(self._learner)
            if isinstance(self._learner, MeanLearner) and self._ranks.ranks == 1 and self._feed.is_even:
                step_losses = self._learner.mean_loss
            while self._at.epoch <= self._options.epochs and not self._is_over():
                self._epoch(step_losses)
            self._keep_best()
        self._check_weights()
        self._report_progress(force=True)
        at = self._at
        facts: dict[str, Any] = {"epochs": len(at.losses), "steps": self._step_number, "losses": at.losses}
        if len(self._stop):
            facts |= {"stop_losses": at.stop_losses, "best_epoch": at.best_epoch}
        return facts | ({"resumed": at.resumed} if at.resumed else {})

    # ---- one epoch --------------------------------------------------------------------------------------

    def _epoch(self, step_losses: Callable[[StepExamples], torch.Tensor]) -> None:
        at = self._at
        order, ends = self._ranks.share(self._order.epoch(at.epoch), self._ends)
        starts = [0, *self._ends]
        for step in self._feed.steps(order, ends, at.step):
            self._step(step, step_losses, self._ends[at.step] - starts[at.step])
            at.step += 1
            self._after_step()
        self._read_losses()
        at.losses.append(at.total / max(1, at.rows))
        if len(self._stop):
            self._judge()
        at.epoch, at.step, at.total, at.rows = at.epoch + 1, 0, 0.0, 0

    def _step(
        self, step: EncodedStep, step_losses: Callable[[StepExamples], torch.Tensor], rows: int
    ) -> None:
        number = self._step_number
        examples = step.examples
        if self._augment is not None:
            self._augmenting.manual_seed(_mixed(self._order.seed, number, 2 + 2 * self._ranks.rank))
            examples = self._augment(examples, self._augmenting)
        luck = _mixed(self._order.seed, number, 1 + 2 * self._ranks.rank)
        for generator in self._generators:
            generator.manual_seed(luck)
        rate = self._options.learning_rate * 0.5 * (1 + math.cos(math.pi * number / self._steps))
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.zero_grad()
        if examples.rows == 1 and self._normalised:
            with _stored_statistics(self._normalised):
                losses = step_losses(examples)
        else:
            losses = step_losses(examples)
        if step.weights is not None:
            losses = losses * step.weights.to(losses.device)
        loss = losses if losses.ndim == 0 else self._ranks.mean(losses, rows)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation here
        self._optimiser.step()
        self._pending.append((loss.detach(), rows))
        if self._mean and number >= self._first_averaged:
            with torch.no_grad():
                for total, parameter in zip(self._mean, self._trained.values(), strict=True):
                    total.add_(parameter)
            self._at.averaged += 1

    def _after_step(self) -> None:
        self._done += 1
        now = self._clock()
        is_due = self._checkpoints is not None and now - self._saved >= self._options.checkpoint_s
        is_reporting = now - self._reported >= REPORT_S
        if is_due or is_reporting or len(self._pending) >= _LOSSES:
            self._read_losses()
        if is_due:
            self._save()
        if is_reporting:
            self._report_progress()

    @property
    def _step_number(self) -> int:
        return (self._at.epoch - 1) * len(self._ends) + self._at.step

    def _read_losses(self) -> None:
        if not self._pending:
            return
        values = torch.stack([loss for loss, _ in self._pending]).tolist()
        first = self._step_number - len(values) + 1
        for number, (value, (_, rows)) in enumerate(zip(values, self._pending, strict=True), first):
            if not math.isfinite(value):
                raise TrainingFailed(
                    f"the loss of step {number} of {self._steps} (epoch {self._at.epoch}) is {value}: "
                    "a lower retrain.learning_rate, or finite inputs, expected"
                )
            self._at.total += value * rows
            self._at.rows += rows
        self._pending.clear()

    def _report_progress(self, *, force: bool = False) -> None:
        """An exception of the receiver ends the run, after a checkpoint."""
        now, at = self._clock(), self._at
        self._reported = now
        if self._ranks.rank:
            return
        is_between = not at.rows and at.losses
        loss = at.losses[-1] if is_between else at.total / max(1, at.rows)
        elapsed = max(now - self._began, 1e-9)
        left = 0 if force else self._steps - self._step_number
        rows_s = self._done * self._order.rows / len(self._ends) / elapsed
        eta_s = left * elapsed / max(1, self._done)
        epoch = min(at.epoch, self._options.epochs) if not force else len(at.losses)
        progress = Progress(epoch, self._options.epochs, self._step_number, self._steps, loss, rows_s, eta_s)
        try:
            self._report(progress)
        except BaseException:
            if not force and self._checkpoints is not None:
                self._save()
            raise

    # ---- stopping early ---------------------------------------------------------------------------------

    def _judge(self) -> None:
        loss = self._stop_loss()
        at = self._at
        at.stop_losses.append(loss)
        if not at.best_epoch or loss < at.stop_losses[at.best_epoch - 1]:
            at.best_epoch = len(at.stop_losses)
            self._best = {name: tensor.detach().clone() for name, tensor in self._changing().items()}

    def _is_over(self) -> bool:
        at = self._at
        return bool(len(self._stop)) and len(at.stop_losses) - at.best_epoch >= self._options.stop_patience

    def _keep_best(self) -> None:
        """The module gets the mean of the last steps, or the best epoch's weights if better."""
        if self._at.averaged:
            with torch.no_grad():
                for parameter, total in zip(self._trained.values(), self._mean, strict=True):
                    parameter.copy_(total / self._at.averaged)
        if not len(self._stop):
            return
        best = self._at.stop_losses[self._at.best_epoch - 1]
        if not self._at.averaged or self._stop_loss() > best:
            with torch.no_grad():
                for name, tensor in self._changing().items():
                    tensor.copy_(self._best[name])

    def _stop_loss(self) -> float:
        """Mean loss on the early-stopping rows, in evaluation mode."""
        training = [part for part in self._learner.module.modules() if part.training]
        self._learner.module.eval()
        total = 0.0
        ends = step_ends(len(self._stop), self._options.batch_rows, joins_single=False)
        with torch.no_grad():
            for step in self._feed.steps(self._stop, ends):
                losses = self._learner.losses(step.examples)
                if step.weights is not None:
                    losses = losses * step.weights.to(losses.device)
                total += float(losses.sum())
        for part in training:
            part.training = True
        loss = self._ranks.agreed(total / len(self._stop))
        if not math.isfinite(loss):
            raise TrainingFailed(
                f"the loss on the rows to stop by is {loss} after step {self._step_number} of {self._steps}: "
                "a lower retrain.learning_rate, or finite inputs, expected"
            )
        return loss

    # ---- checkpoints ------------------------------------------------------------------------------------

    def _changing(self) -> dict[str, torch.Tensor]:
        return self._trained | dict(self._learner.module.named_buffers())

    def _save(self) -> None:
        self._saved = self._clock()
        if self._checkpoints is None or self._ranks.rank:
            return
        tensors = {f"module.{name}": tensor for name, tensor in self._changing().items()}
        tensors |= {f"mean.{at}": total for at, total in enumerate(self._mean)}
        tensors |= {f"best.{name}": tensor for name, tensor in self._best.items()}
        for at, values in self._optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{at}.{name}": tensor for name, tensor in values.items()}
        state = {name: getattr(self._at, name) for name in _State.__slots__}
        self._checkpoints.write(Checkpoint(tensors, state))
        self._saved = self._clock()

    def _restore(self) -> None:
        found = None if self._checkpoints is None else self._checkpoints.read()
        if found is None:
            return
        self._at = replace(_State(**found.state), resumed=found.state["resumed"] + 1)
        kept = found.part("module.")
        with torch.no_grad():
            for name, tensor in self._changing().items():
                tensor.copy_(kept[name])
            for at, total in enumerate(self._mean):
                total.copy_(found.tensors[f"mean.{at}"])
        device = next(iter(self._trained.values())).device
        self._best = {name: tensor.to(device) for name, tensor in found.part("best.").items()}
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in found.part("optimiser.").items():
            number, _, key = name.partition(".")
            state.setdefault(int(number), {})[key] = tensor
        self._optimiser.load_state_dict(self._optimiser.state_dict() | {"state": state})
        log.info(
            "training goes on at step %d of %d (epoch %d)", self._step_number, self._steps, self._at.epoch
        )

    def _check_weights(self) -> None:
        for name, tensor in self._changing().items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise TrainingFailed(
                    f"{name} holds values that are not finite after step {self._step_number} of "
                    f"{self._steps}: a lower retrain.learning_rate, or finite inputs, expected"
                )


@contextmanager
def _stored_statistics(layers: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Layers normalise by running statistics: one row has no variance."""
    changed = [layer for layer in layers if layer.training]
    for layer in changed:
        layer.eval()
    yield
    for layer in changed:
        layer.train()


def _mixed(seed: int, number: int, purpose: int) -> int:
    """Seed of a step (SplitMix64), far from those of its neighbours."""
    value = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + purpose) & _MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = ((value ^ (value >> shift)) * factor) & _MASK
    return (value ^ (value >> 31)) >> 1  # torch takes 63 bits


def _generators(module: torch.nn.Module) -> list[torch.Generator]:
    return [torch.default_generator, *(torch.cuda.default_generators[at] for at in _cuda_devices(module))]


def _cuda_devices(module: torch.nn.Module) -> list[int]:
    devices = {p.device for p in module.parameters() if p.device.type == "cuda"}
    return sorted({device.index or 0 for device in devices})


def mean_one(weights: NDArray[np.float32], order: EpochOrder) -> NDArray[np.float32]:
    """Scaled to mean one over an epoch."""
    total = float(weights[order.fresh].sum())
    sizes = np.bincount(order.strata, minlength=len(order.drawn))
    sums = np.bincount(order.strata, weights=weights[order.old], minlength=len(order.drawn))
    total += float(sum(s / n * k for s, n, k in zip(sums, sizes, order.drawn, strict=True) if n))
    return (weights * (order.rows / total)).astype(np.float32) if total > 0 else weights
