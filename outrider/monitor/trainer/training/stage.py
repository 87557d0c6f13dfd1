"""Training stage of a job: stored rows, task, trainer, trained model."""

import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.changes import StaleParent
from outrider.dataops.datasets.references import open_if_any
from outrider.dataops.datasets.versions import Version
from outrider.dataops.loaders.arrow_cache import FOLDER
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.content import closed_source, keep_files
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.models.lineage import Kind
from outrider.dataops.training.dataset_rows import dataset_rows
from outrider.dataops.training.learned_rows import held_out_among
from outrider.dataops.training.run_record import digest_of, run_record
from outrider.dataops.training.trainer import Report, TrainedModel, TrainingTask
from outrider.dataops.training.trainers import train_version
from outrider.errors import Erased, NotFound, ValidationRefused
from outrider.monitor.settings.model_sections import ModelSettings, RetrainSettings
from outrider.monitor.settings.sources import opened
from outrider.monitor.trainer.context import JobContext
from outrider.parts import missing_parts

log = logging.getLogger(__name__)
OPTIONS = (
    "epochs", "learning_rate", "replay_ratio", "batch_rows", "augment", "average", "trains", "seed",
    "method", "objective", "beta", "architecture", "trainer", "lora", "distill",
    "rehearsal", "class_weights", "slice_weights", "weak_weight", "stop_share", "stop_patience", "min_rows",
)  # fmt: skip
"""Settings of ``[models.*.retrain]`` that training reads."""
_KEPT_S = 7 * 86_400.0
"""Age from which the folder of an abandoned run is removed."""


@dataclass(frozen=True, slots=True)
class LearnedVersions:
    fresh: Version | None
    replay: Version | None
    champion: models.Model | None

    @property
    def parents(self) -> list[tuple[Kind, str, str]]:
        found: list[tuple[Kind, str, str]] = []
        found += [("dataset", self.fresh.id, "fresh")] if self.fresh else []
        found += [("dataset", self.replay.id, "replay")] if self.replay else []
        return found + ([("model", self.champion.id, "weights")] if self.champion else [])

    def check_whole(self, connection: Connection) -> None:
        """Restart training where rows were erased meanwhile."""
        for version in (self.fresh, self.replay):
            if version is not None and datasets.is_erased_from(connection, version):
                raise StaleParent(f"rows were erased from {version.id} while it was learned from")


@dataclass(frozen=True, slots=True)
class KeptModel:
    source: Source
    weights: str | None


@dataclass(frozen=True, slots=True)
class Trained:
    model: TrainedModel
    run: dict[str, Any] = field(default_factory=dict)


def work_folder(context: JobContext, job: str) -> Path:
    return context.settings.data_folder / "run" / "training" / job


def options_json(options: RetrainSettings) -> dict[str, Any]:
    return options.model_dump(mode="json", include=set(OPTIONS))


def training_task(
    context: JobContext,
    connection: Connection,
    learned: LearnedVersions,
    *,
    job: str,
    source: Source,
    settings: ModelSettings,
    model: str,
    options: dict[str, Any],
) -> TrainingTask:
    """Task of the stored versions, their rows mapped.

    ValidationRefused where there are none, or one judges candidates.
    """
    own = context.objects, context.settings.data_folder / FOLDER

    def mapped(version: Version | None, part: str | None) -> MappedRows | None:
        if version is None:
            return None
        rows = dataset_rows(connection, own[0], version, part=part, cache=own[1])
        return rows if len(rows) else None  # all were withdrawn, or are of the other part

    fresh, replay = mapped(learned.fresh, "train"), mapped(learned.replay, "train")
    if fresh is None and replay is None:
        raise ValidationRefused("there is no row to train on, neither fresh nor replayed")
    judging = [mapped(version, None) for version in _judging(connection, settings)]
    judging += [mapped(version, "held_out") for version in (learned.fresh, learned.replay)]
    champion = learned.champion
    has_weights = champion is not None and champion.weights is not None
    return TrainingTask(
        model=model,
        champion=None if champion is None else champion.id,
        source=opened(context.settings, model, source),
        stored=source,
        weights=context.objects.get(str(champion.weights)) if champion is not None and has_weights else None,
        fresh=fresh,
        replay=replay,
        target=settings.target,
        options=options,
        seed=int(options["seed"]),
        base=context.settings.base,
        work=work_folder(context, job),
        device=_device(context.settings.worker.device),
        judging=tuple(rows for rows in judging if rows is not None),
    )


def _device(setting: str) -> str:
    if missing_parts(["torch"]):
        return "cpu"
    from outrider.dataops.model_kinds.torch_models import pick_device

    return str(pick_device(setting))


def train(task: TrainingTask, report: Report, *, is_leak_refused: bool) -> Trained:
    """Train after the checks of every kind of model; ValidationRefused where a row judges candidates too."""
    learned = [rows for rows in (task.fresh, task.replay) if rows is not None]
    leaks = held_out_among(learned, task.judging)
    if leaks and is_leak_refused:
        raise ValidationRefused(
            f"rows to learn from judge candidates too: {'; '.join(leaks)}; take them out of one of them, "
            "or set retrain.move_leaks = 'none'"
        )
    run = run_record(task)
    began = time.monotonic()
    made = train_version(task, report)
    run["digest"] = digest_of(made)
    run["figures"] = dict(made.figures) | {"seconds": round(time.monotonic() - began, 3)}
    if leaks:
        run["figures"]["warnings"] = [*run["figures"].get("warnings", []), *leaks]
    return Trained(made, run)


def keep_trained(context: JobContext, made: TrainedModel, task: TrainingTask) -> KeptModel:
    source = closed_source(made.source, task.source, task.registered)
    if made.files:
        source = keep_files(context.objects, source, made.files)
    weights = None if made.weights is None else context.objects.put(made.weights)
    return KeptModel(replace(source, adapted_from=_adapted_from(source, task), shares=()), weights)


def _adapted_from(source: Source, task: TrainingTask) -> str | None:
    """Champion where both have one architecture, so that they share a trunk."""
    is_alike = (source.kind, source.reference) == (task.source.kind, task.source.reference)
    return task.champion if is_alike else None


def forget(context: JobContext, job: str) -> None:
    shutil.rmtree(work_folder(context, job), ignore_errors=True)
    before = time.time() - _KEPT_S
    for folder in work_folder(context, job).parent.glob("*"):
        try:
            if folder.stat().st_mtime < before:
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            continue


def _judging(connection: Connection, settings: ModelSettings) -> Sequence[Version]:
    found = []
    for reference in settings.gate.judging:
        try:
            version = open_if_any(connection, reference)
        except (Erased, NotFound):  # said by the gate
            continue
        found += [] if version is None else [version]
    return found
