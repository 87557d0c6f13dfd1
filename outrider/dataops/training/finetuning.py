"""Fine-tuning on corrected records, with old ones replayed against forgetting."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from outrider.assertions import Batch
from outrider.assertions.columns import is_tensor
from outrider.assertions.matching import class_numbers
from outrider.dataops.model_kinds.torch_models import State, encode

from .freezing import train_only

Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
"""Inputs of a batch, on the CPU, and a generator to inputs of the same shape."""


@dataclass(frozen=True, slots=True)
class TrainingExamples:
    """Examples for a module's training."""

    x: torch.Tensor
    """Inputs, shape (rows, …)."""
    y: torch.Tensor
    """Class numbers (int64, shape (rows,)) or values (float32)."""


def examples(
    batch: Batch, *, inputs: Sequence[str], target: str, classes: Sequence[int | str] = ()
) -> TrainingExamples:
    """Inputs and labels of a batch, as tensors.

    Raises
    ------
    ValueError
        If a label is not one of the classes, or a list.
    """
    name = f"label.{target}"
    if pa.types.is_list(batch.to_arrow().schema.field(name).type):
        raise ValueError(
            f"{name} holds lists, which torch cannot stack: train on the dataset's rows with code of your own"
        )
    if not classes:
        tensor = is_tensor(batch.to_arrow().schema.field(name).type)
        values = batch.tensor(name) if tensor else batch.column(name)
        return TrainingExamples(encode(batch, inputs), torch.from_numpy(np.array(values, dtype=np.float32)))
    labels = batch.arrow(name)
    numbers = class_numbers(labels, classes)
    if (numbers < 0).any():
        unknown = sorted({repr(value) for value in labels.filter(pa.array(numbers < 0)).to_pylist()})
        raise ValueError(
            f"{name} holds {', '.join(unknown[:3])}, which is not among the classes {list(classes)}"
        )
    return TrainingExamples(encode(batch, inputs), torch.from_numpy(numbers.astype(np.int64)))


def reinitialise(architecture: Callable[[], torch.nn.Module], *, seed: int) -> torch.nn.Module:
    """A module with fresh weights that depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return architecture()


def fine_tune(
    module: torch.nn.Module,
    fresh: TrainingExamples,
    replay: TrainingExamples | None,
    *,
    epochs: int,
    learning_rate: float,
    replay_ratio: float,
    batch_rows: int,
    seed: int,
    augment: Augment | None = None,
    average: float = 0.0,
    trains: Sequence[str] = (),
    device: str | torch.device = "cpu",
    progress: Callable[[int, float], None] | None = None,
) -> State:
    """Train the module itself on fresh examples, replaying old ones.

    A batch of a single row, which batch normalisation cannot take, joins the batch before; where there is no
    other, layers normalise by what they have seen.

    Each epoch sees every fresh example once and ``replay_ratio`` times as many replayed ones, drawn anew
    without replacement (all of them when there are fewer). Adam, with its rate falling to zero as a half
    cosine, so that the last steps do not leave the module at a random point.

    Parameters
    ----------
    replay_ratio
        Replayed rows per fresh row, >= 0. Without fresh rows an epoch sees all replayed rows.
    augment
        Changes the inputs of every batch, fresh and replayed ones alike.
    average
        Share of the last steps whose weights are averaged into the result, in [0, 1); 0 takes the last ones.
    trains
        Names of the parameters or submodules that may change, see
        `outrider.dataops.training.freezing`; none for all.
    progress
        Called after each epoch with its number (from 1) and its mean loss.

    Returns
    -------
    dict
        State of the trained module, on the CPU. Equal for equal arguments on the CPU.

    References
    ----------
    Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018; here the
    weights of every step are averaged, while the rate still falls.
    """
    if epochs < 1 or batch_rows < 1:
        raise ValueError(f"epochs and batch_rows must be >= 1, got {epochs} and {batch_rows}")
    old = 0 if replay is None else len(replay.y)
    if len(fresh.y) + old == 0:
        raise ValueError("there is nothing to learn from: neither a fresh nor a replayed example")
    drawn = _drawn(old, len(fresh.y), replay_ratio)
    both = _stacked(fresh, replay)
    x, y = both.x if augment is not None else both.x.to(device), both.y.to(device)
    normalised = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
    steps = epochs * len(_chunks(torch.arange(len(fresh.y) + drawn), batch_rows, bool(normalised)))
    loss_of = torch.nn.functional.cross_entropy if y.dtype == torch.int64 else _squared_error
    trained = train_only(module.to(device), trains)
    optimiser = torch.optim.Adam(trained, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=steps)
    draw = torch.Generator().manual_seed(seed)
    last = None if average == 0 else _RunningMean(trained)
    first_averaged = steps - max(1, round(steps * average))
    step = 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # for dropout
        for epoch in range(1, epochs + 1):
            rows = _epoch_rows(len(fresh.y), old, drawn, draw)
            total = 0.0
            for chunk in _chunks(rows, batch_rows, bool(normalised)):
                inputs = x[chunk.to(x.device)]
                if augment is not None:
                    inputs = augment(inputs, draw).to(device)
                optimiser.zero_grad()
                with _stored_statistics(normalised if len(chunk) == 1 else ()):
                    out = module(inputs)
                loss = loss_of(out, y[chunk.to(y.device)])
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation here
                optimiser.step()
                schedule.step()
                total += float(loss.detach()) * len(chunk)
                if last is not None and step >= first_averaged:
                    last.add()
                step += 1
            if progress is not None:
                progress(epoch, total / len(rows))
    if last is not None:
        last.store()
    module.eval()
    return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}


def _stacked(fresh: TrainingExamples, replay: TrainingExamples | None) -> TrainingExamples:
    if replay is None:
        return fresh
    return TrainingExamples(torch.cat([fresh.x, replay.x]), torch.cat([fresh.y, replay.y]))


def _drawn(old: int, fresh: int, replay_ratio: float) -> int:
    """Old rows that an epoch sees."""
    return min(old, round(replay_ratio * fresh)) if fresh else old


def _epoch_rows(fresh: int, old: int, drawn: int, draw: torch.Generator) -> torch.Tensor:
    """All fresh rows and ``drawn`` of the old ones behind them, in random order."""
    replayed = fresh + torch.randperm(old, generator=draw)[:drawn]
    rows = torch.cat([torch.arange(fresh), replayed])
    return rows[torch.randperm(len(rows), generator=draw)]


def _chunks(rows: torch.Tensor, batch_rows: int, normalised: bool) -> list[torch.Tensor]:
    """Rows in batches; where they are normalised over a batch, one that is left over joins the one before."""
    chunks = list(torch.split(rows, batch_rows))
    if normalised and len(chunks) > 1 and len(chunks[-1]) == 1 < batch_rows:
        chunks[-2:] = [torch.cat(chunks[-2:])]
    return chunks


@contextmanager
def _stored_statistics(layers: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Let layers normalise by what they have seen: one row has no variance."""
    changed = [layer for layer in layers if layer.training]
    for layer in changed:
        layer.eval()
    yield
    for layer in changed:
        layer.train()


class _RunningMean:
    """Mean of parameters over the steps at which it was told to look."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._sums = [torch.zeros_like(p) for p in self._parameters]
        self._steps = 0

    def add(self) -> None:
        """Take the parameters as they are now."""
        self._steps += 1
        with torch.no_grad():
            for total, parameter in zip(self._sums, self._parameters, strict=True):
                total.add_(parameter)

    def store(self) -> None:
        """Make the mean the parameters."""
        with torch.no_grad():
            for parameter, total in zip(self._parameters, self._sums, strict=True):
                parameter.copy_(total / self._steps)


def _squared_error(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(out.reshape(y.shape), y)
