"""Compression job: stored champion, traffic, suites in; registered variants out."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy import Engine

from outrider.assertions import Assertion, Batch, load_assertions
from outrider.dataops.compression.bench import CompressionTask
from outrider.dataops.compression.distillation import Distilling
from outrider.dataops.compression.timing import Effort
from outrider.dataops.compression.variant import PRUNINGS, SAME, STUDENT
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.references import open_if_any
from outrider.dataops.improvement import jobs
from outrider.dataops.journal.journal import Journal
from outrider.dataops.model_kinds.content import opened_source
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.models.lineage import Kind
from outrider.dataops.models.registry import Model
from outrider.dataops.payloads.folders import FOLDER
from outrider.dataops.payloads.objects import LocalObjects, ObjectStore
from outrider.dataops.state.database import now_us, write
from outrider.errors import ConfigError, NotFound
from outrider.monitor.process.stores import open_stores
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.payloads import open_payloads
from outrider.monitor.stream.stored_answers import registered
from outrider.monitor.stream.units import read_unit

from .agreement import ruler_of
from .suites import model_suites

UNIT_ROWS = 4096
LEAST_ROWS = 100
"""Fewest records for a statement on agreement."""


@dataclass(frozen=True, slots=True)
class CompressionRequest:
    rows: int = 2000
    traffic_rows: int = 20_000
    student: str | None = None
    also: tuple[Path, ...] = ()
    epochs: int = 3
    learning_rate: float = 3e-4
    with_suites: bool = True


def prepare(settings: Settings, name: str, asked: CompressionRequest) -> tuple[CompressionTask, Batch]:
    """Champion with references for variants, and records unseen by the search.

    Of the newest ``2 * rows`` of one schema every second is judged on, the others are kept for the fresh
    process, and older ones are distilled on. ConfigError where that is impossible.
    """
    if not settings.journal_path.exists():
        raise ConfigError(f"{settings.journal_path}: no journal there; `outrider serve` makes one")
    journal, engine = open_stores(settings, threading.Event())
    objects = LocalObjects(settings.data_folder / "objects")
    try:
        champion = _champion(engine, name)
        source = Source.from_json(champion.source)
        if source.kind not in ("torch", "hf"):
            raise ConfigError(
                f"{champion.id} is of kind {source.kind!r}: only torch modules and Hugging Face folders can "
                "be compressed"
            )
        wanted = 2 * asked.rows + asked.traffic_rows
        records = newest_records(settings, engine, journal, name, rows=wanted)
        cases = _cases(settings, engine, objects, name)
    finally:
        engine.dispose()
        journal.close()
    if records is None or records.rows < 2 * LEAST_ROWS:
        raise ConfigError(
            f"{0 if records is None else records.rows} stored records of {name}; at least {2 * LEAST_ROWS} "
            "are needed to measure how far a variant agrees"
        )
    judged = min(2 * asked.rows, max(2 * LEAST_ROWS, records.rows // 2))
    newest = np.arange(records.rows - judged, records.rows)
    own = settings.models[name]
    task = CompressionTask(
        source=source,
        weights=None if champion.weights is None else objects.get(champion.weights),
        name=champion.id,
        folder=settings.base,
        records=records.take(newest[::2]),
        traffic=records.slice(0, records.rows - judged),
        student=asked.student,
        given=_given(asked.also),
        ruler=ruler_of(own),
        assertions=_assertions(settings, name),
        suites=model_suites(settings, name) if asked.with_suites else (),
        cases=cases,
        distilling=Distilling(epochs=asked.epochs, learning_rate=asked.learning_rate, seed=own.retrain.seed),
        effort=Effort(),
        device=settings.worker.device,
        seed=own.retrain.seed,
        opened=lambda kept: opened_source(kept, objects, settings.data_folder / FOLDER),
    )
    return task, records.take(newest[1::2])


def newest_records(
    settings: Settings, engine: Engine, journal: Journal, name: str, *, rows: int
) -> Batch | None:
    last = journal.last_seq()
    low, high = 0, last
    while low < high:  # the last block behind which there are still enough
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if journal.count_records(middle, last, model=name) >= rows else (low, middle - 1)
        )
    payloads = open_payloads(settings, name)
    parts: list[Batch] = []
    after = low
    while (unit := read_unit(journal, name, after, max_rows=UNIT_ROWS)) is not None:
        after = unit.last_seq
        if unit.batch is None:
            continue
        batch, kept = payloads.opened(*registered(engine, unit))
        if parts and parts[-1].schema_digest != batch.schema_digest:
            parts = []
        parts += [batch] if len(kept) else []
    if not parts:
        return None
    whole = Batch.concat(parts)
    return whole.slice(max(0, whole.rows - rows))


def register_twin(
    settings: Settings,
    *,
    name: str,
    champion: str,
    source: Source,
    weights: bytes | None,
    note: str,
    asks_gate: bool,
) -> tuple[Model, str | None]:
    """Register a variant as challenger, for the worker beside the champion.

    Parameters
    ----------
    champion
        ``model@version`` that it was made from.
    weights
        Its own; None for the champion's.
    asks_gate
        Whether the trainer puts it before the promotion gate, once enough live records are judged.

    Returns
    -------
    tuple
        The version, and the job that asks the gate.
    """
    journal, engine = open_stores(settings, threading.Event())
    journal.close()
    objects: ObjectStore = LocalObjects(settings.data_folder / "objects")
    try:
        with engine.connect() as connection:
            base = models.get(connection, *champion.rsplit("@", 1))
        digest = base.weights if weights is None else objects.put(weights)
        parents: list[tuple[Kind, str, str]] = [("model", champion, "compressed from")]
        with write(engine) as connection:
            version = models.register(
                connection,
                model=name,
                version=models.next_version(connection, name),
                status="challenger",
                digest=digest or base.digest,
                weights=digest,
                now_us=now_us(),
                note=note,
                source=source.to_json(),
                made_from=parents,
            )
            job = None
            if asks_gate:
                job = jobs.add(
                    connection,
                    model=name,
                    kind="retrain",
                    params={"candidate": version.version},
                    now_us=now_us(),
                )
        return version, job
    finally:
        engine.dispose()


def _given(also: Sequence[Path]) -> dict[str, Path]:
    """Weights made elsewhere by their name in the table."""
    found: dict[str, Path] = {}
    for path in also:
        if not path.is_file():
            raise ConfigError(f"also: {path} does not exist")
        if path.stem in (*found, SAME, STUDENT, *PRUNINGS):
            raise ConfigError(f"also: {path}: there is another {path.stem!r}; give the file another name")
        found[path.stem] = path
    return found


def _champion(engine: Engine, name: str) -> Model:
    with engine.connect() as connection:
        found = models.champion(connection, name)
    if found is None:
        raise NotFound(f"model {name!r} has no champion yet: `outrider serve` registers it")
    return found


def _assertions(settings: Settings, name: str) -> Sequence[Assertion]:
    files = settings.models[name].assertions
    return [judge for file in files for judge in load_assertions(settings.path(file))]


def _cases(settings: Settings, engine: Engine, objects: ObjectStore, name: str) -> Batch | None:
    held_out = settings.models[name].gate.held_out
    if not held_out:
        return None
    with engine.connect() as connection:
        version = open_if_any(connection, held_out)
        return None if version is None else datasets.read(connection, objects, version)
