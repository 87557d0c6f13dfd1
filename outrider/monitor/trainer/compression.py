"""Compression of a stored champion: traffic and suites in, a registered variant out."""

import threading

import numpy as np
from sqlalchemy import Engine

from outrider.assertions import Batch, load_assertions
from outrider.dataops.compression.distillation import Distilling
from outrider.dataops.compression.ladder import CompressionTask
from outrider.dataops.compression.variant import Variant
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.references import open_if_any
from outrider.dataops.improvement import jobs
from outrider.dataops.journal.journal import Journal
from outrider.dataops.model_kinds.content import opened_source
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
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


def compression_task(
    settings: Settings,
    name: str,
    *,
    rows: int,
    traffic_rows: int,
    student: str | None = None,
    with_suites: bool = True,
) -> CompressionTask:
    """Champion with references for its variants.

    Of the newest ``2 * rows`` of one schema every second is judged on, the others are kept for the fresh
    process, and older ones are learned on.
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
        records = newest_records(settings, engine, journal, name, rows=2 * rows + traffic_rows)
        cases = _cases(settings, engine, objects, name)
    finally:
        engine.dispose()
        journal.close()
    if records is None or records.rows < 2 * LEAST_ROWS:
        raise ConfigError(
            f"{0 if records is None else records.rows} stored records of {name}; at least {2 * LEAST_ROWS} "
            "are needed to measure how far a variant agrees"
        )
    learned = min(traffic_rows, records.rows // 2)
    judged = min(2 * rows, max(2 * LEAST_ROWS, records.rows - learned))
    newest = np.arange(records.rows - judged, records.rows)
    own = settings.models[name]
    return CompressionTask(
        source=source,
        weights=None if champion.weights is None else objects.get(champion.weights),
        name=champion.id,
        folder=settings.base,
        records=records.take(newest[::2]),
        unseen=records.take(newest[1::2]),
        traffic=records.slice(0, records.rows - judged),
        student=student,
        ruler=ruler_of(own),
        assertions=[judge for file in own.assertions for judge in load_assertions(settings.path(file))],
        suites=model_suites(settings, name) if with_suites else (),
        cases=cases,
        distilling=Distilling(own.retrain.epochs, own.retrain.learning_rate, own.retrain.seed),
        device=settings.worker.device,
        opened=lambda kept: opened_source(kept, objects, settings.data_folder / FOLDER),
    )


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


def register_variant(
    settings: Settings, name: str, variant: Variant, *, champion: str, asks_gate: bool
) -> dict[str, str]:
    """Register a variant as challenger of ``model@version``; ``registered`` version, and ``job`` of the gate.

    With ``asks_gate`` the trainer puts it before the promotion gate, once enough live records are judged.
    """
    journal, engine = open_stores(settings, threading.Event())
    journal.close()
    objects = LocalObjects(settings.data_folder / "objects")
    try:
        with engine.connect() as connection:
            base = models.get(connection, *champion.rsplit("@", 1))
        digest = base.weights if variant.weights is None else objects.put(variant.weights)
        with write(engine) as connection:
            version = models.register(
                connection,
                model=name,
                version=models.next_version(connection, name),
                status="challenger",
                digest=digest or base.digest,
                weights=digest,
                now_us=now_us(),
                note=f"{variant.name} of {champion}",
                source=variant.source.to_json(),
                made_from=[("model", champion, "compressed from")],
            )
            found = {"registered": version.version}
            if asks_gate:
                asked = {"candidate": version.version}
                found["job"] = jobs.add(connection, model=name, kind="retrain", params=asked, now_us=now_us())
        return found
    finally:
        engine.dispose()


def _champion(engine: Engine, name: str) -> Model:
    with engine.connect() as connection:
        found = models.champion(connection, name)
    if found is None:
        raise NotFound(f"model {name!r} has no champion yet: `outrider serve` registers it")
    return found


def _cases(settings: Settings, engine: Engine, objects: ObjectStore, name: str) -> Batch | None:
    held_out = settings.models[name].gate.held_out
    if not held_out:
        return None
    with engine.connect() as connection:
        version = open_if_any(connection, held_out)
        return None if version is None else datasets.read(connection, objects, version)
