"""From a task and a learner to a trained model."""

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.errors import ValidationRefused

from .checkpoints import CheckpointFile
from .feed import RowFeed
from .learned_rows import LearnedRows, balanced_weights, check_rows, learned_rows, named_weights
from .loop import Augment, TrainingLoop, mean_one
from .options import TrainingOptions
from .order import EpochOrder, Places, quotas
from .ranks import Ranks
from .run_record import file_digests
from .trainer import ModelLearner, Report, TrainedModel, TrainingTask

log = logging.getLogger(__name__)


def improve(
    learner: ModelLearner,
    task: TrainingTask,
    report: Report,
    *,
    augment: Augment | None = None,
    columns: Sequence[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TrainedModel:
    """Epochs see all fresh rows and ``replay_ratio`` times as many old ones."""
    options = TrainingOptions.of(task.options)
    classes = task.source.classes if task.source.task == "classification" else ()
    given = [rows for rows in (task.fresh, task.replay) if rows is not None]
    learned = [learned_rows(rows, task, options) for rows in given if len(rows)]
    warnings = check_rows(learned, classes, options.min_rows)
    for warning in warnings:
        log.warning("%s: %s", task.model, warning)
    fresh = learned[0] if task.fresh is not None and len(task.fresh) else None
    old = learned[-1] if task.replay is not None and len(task.replay) else None
    order, stop = _order(fresh, old, len(classes), options, task.seed)
    weights = _weights(learned, order, classes, options)
    files = [part.rows for part in learned]
    every = np.concatenate([order.fresh, order.old, stop])
    feed = RowFeed(
        learner,
        files,
        every,
        columns=columns or _columns(task, learned),
        model=task.model,
        weights=weights,
    )
    loop = TrainingLoop(
        learner,
        feed,
        order,
        options,
        stop=stop,
        report=report,
        checkpoints=CheckpointFile(task.work, task_digest(task)),
        augment=augment,
        ranks=Ranks.of_environment(),
        clock=clock,
    )
    ran = loop.run()
    made = learner.trained(task.work)
    facts: dict[str, Any] = {
        "learned": [part.facts for part in learned],
        "replayed_by_class": list(order.drawn),
    }
    if not classes or old is None or options.rehearsal == "uniform":
        del facts["replayed_by_class"]
    facts |= {"warnings": warnings} if warnings else {}
    note = f"{made.note}, {ran['epochs']} epochs".removeprefix(", ")
    return dataclasses.replace(made, note=note, figures={**made.figures, **facts, **ran})


def task_digest(task: TrainingTask) -> str:
    """Digest of all that the weights after each step depend on."""
    weights = None if task.weights is None else hashlib.sha256(task.weights).hexdigest()
    of_rows = [None if rows is None else [rows.id, rows.digest] for rows in (task.fresh, task.replay)]
    inputs: list[Any] = [
        task.model,
        task.champion,
        task.registered.to_json(),
        weights,
        *of_rows,
        task.target,
        task.seed,
    ]
    own = {key: value for key, value in task.options.items() if key != "checkpoint_s"}
    code = file_digests(task.source, task.options, task.base)
    inputs += [own, code, torch.__version__, torch.device(task.device).type]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def _order(
    fresh: LearnedRows | None, old: LearnedRows | None, classes: int, options: TrainingOptions, seed: int
) -> tuple[EpochOrder, Places]:
    """Order of the epochs, and the early-stopping rows, numbered over both files."""
    none = np.empty(0, np.int64)
    base = 0 if fresh is None else len(fresh.rows)
    new = none if fresh is None else fresh.places
    replayed = none if old is None else old.places
    wanted = round(options.replay_ratio * len(new)) if len(new) else len(replayed)
    strata = np.zeros(len(replayed), np.int64)
    if old is not None and old.classes is not None and options.rehearsal != "uniform":
        strata = old.classes[old.places]
    drawn = quotas(np.bincount(strata, minlength=max(classes, 1)), wanted, options.rehearsal)
    order = EpochOrder(new, base + replayed, strata, drawn, seed)
    stop = none if fresh is None else fresh.stop
    if old is not None:
        few = round(options.replay_ratio * len(stop)) if len(stop) else len(old.stop)
        chosen = np.random.Philox(key=0).random_raw(len(old.stop)).argsort(kind="stable")[:few]
        stop = np.concatenate([stop, base + np.sort(old.stop[chosen])])
    if options.stop_share and not len(stop):
        raise ValidationRefused(
            f"retrain.stop_share = {options.stop_share:g} leaves no row to stop by, of "
            f"{len(new) + len(replayed)} to learn from: a larger share, more rows, or 0 expected"
        )
    return order, stop


def _weights(
    learned: Sequence[LearnedRows],
    order: EpochOrder,
    classes: Sequence[int | str],
    options: TrainingOptions,
) -> NDArray[np.float32] | None:
    """Mean one over an epoch; None if all are equal."""
    if all(part.weights is None for part in learned) and not (options.class_weights and classes):
        return None
    parts = [
        np.ones(len(part.rows), np.float32) if part.weights is None else part.weights for part in learned
    ]
    weights = np.concatenate(parts)
    if options.class_weights and classes:
        numbers = np.concatenate([part.classes for part in learned if part.classes is not None])
        if options.class_weights == "balanced":
            counts = np.bincount(numbers[order.fresh], minlength=len(classes)).astype(np.float64)
            each = np.bincount(numbers[order.old], minlength=len(classes))
            counts += (
                np.asarray(order.drawn)
                if options.rehearsal != "uniform"
                else each * (sum(order.drawn) / max(1, each.sum()))
            )
            by_class = balanced_weights(counts)
        else:
            by_class = named_weights(options.class_weights, classes)
        weights = weights * by_class[numbers].astype(np.float32)
    return mean_one(weights, order)


def _columns(task: TrainingTask, learned: Sequence[LearnedRows]) -> list[str]:
    inputs = [f"inputs.{name.removeprefix('inputs.')}" for name in task.source.inputs]
    if not inputs:
        names = dict.fromkeys(name for part in learned for name in part.rows.columns)
        inputs = [name for name in names if name.startswith("inputs.")]
    return [*inputs, f"label.{task.target}"]
