"""Leaks between rows of a commit and other rows, learned or judging."""

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection

from outrider.assertions import Batch
from outrider.dataops.datasets import collect as flagged
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.leak_moves import KnownRows, LeakReport, Rows, Settled, settle
from outrider.dataops.datasets.leaks import find_leaks, find_repeats, sides
from outrider.dataops.datasets.references import name_of, open_if_any
from outrider.dataops.datasets.versions import Provenance, Version
from outrider.dataops.loaders.arrow_cache import FOLDER
from outrider.dataops.loaders.indexed_rows import IndexedVersion
from outrider.monitor.settings.model_sections import ModelSettings

from .context import JobContext

READ_WHOLE_ROWS = 10_000
"""Rows that are read faster than indexed."""


def settled(
    context: JobContext,
    connection: Connection,
    settings: ModelSettings,
    dataset: str,
    batch: Batch,
    provenance: Sequence[Provenance],
    *,
    corrected: frozenset[str],
) -> Settled:
    """Check new rows against earlier, replayed and judging rows; rows with corrected labels stay."""
    stays = np.isin(batch.keys, list(corrected))
    fresh = batch.take(~stays)
    learned: dict[str, Rows] = {}
    judged: dict[str, Rows] = {}
    before = datasets.newest(connection, dataset)
    if before is not None:
        for name, part, among in (("train", "train", learned), ("held out", "held_out", judged)):
            rows = _rows(context, connection, before, part=part, without=fresh.keys.tolist())
            among[f"{before.id} {name}"] = rows
    own = (*learned, *judged)
    named: list[tuple[str | None, dict[str, Rows]]] = [(settings.retrain.replay, learned)]
    for reference, among in (*named, *((one, judged) for one in settings.gate.judging)):
        if (version := open_if_any(connection, reference)) is not None:
            among[version.id] = _rows(context, connection, version)
    found = settle(
        fresh,
        [origin for origin, known in zip(provenance, stays, strict=True) if not known],
        KnownRows(learned, judged, own),
        declared=settings.declared_inputs,
        moves=settings.retrain.move_leaks,
    )
    if not stays.any():
        return found
    known = [origin for origin, is_known in zip(provenance, stays, strict=True) if is_known]
    whole = Batch.concat([batch.take(stays), found.batch])
    return Settled(whole, [*known, *found.provenance], found.report)


def _rows(
    context: JobContext,
    connection: Connection,
    version: Version,
    *,
    part: str | None = None,
    without: Sequence[str] = (),
) -> Rows:
    """Rows of a version, read at once where few, else by the indexes of its objects."""
    if version.rows > READ_WHOLE_ROWS:
        return IndexedVersion(
            connection,
            context.objects,
            version,
            part=part,
            without=without,
            cache=context.settings.data_folder / FOLDER,
        )
    rows = datasets.read(connection, context.objects, version, part=part)
    return rows.take(~np.isin(rows.keys, np.asarray(without, dtype=object)))


def imported_leaks(
    context: JobContext, connection: Connection, settings: ModelSettings, dataset: str, batch: Batch
) -> LeakReport:
    """Leaks of an imported table: of a replayed one into judging rows, of a judging one into learned rows."""
    others: Sequence[str | None] = ()
    part = None
    if dataset == name_of(settings.retrain.replay or ""):
        others, part = settings.gate.judging, "held_out"
    elif dataset in map(name_of, settings.gate.judging):
        others, part = (settings.retrain.replay,), "train"
    known: dict[str, Batch] = {}
    for other in others:
        known |= {} if name_of(other or "") == dataset else _newest(context, connection, other)
    collected = datasets.newest(connection, flagged.dataset_of(batch.model)) if part else None
    if collected is not None:
        rows = datasets.read(connection, context.objects, collected, part=part)
        known[f"{collected.id} {str(part).replace('_', ' ')}"] = rows
    own, *rest = sides({dataset: batch} | known, settings.declared_inputs)
    leaks = [leak for side in rest for leak in find_leaks(own, side)]
    return {"leaks": leaks, "repeats": find_repeats(own), "moved": {}}


def _newest(context: JobContext, connection: Connection, dataset: str | None) -> dict[str, Batch]:
    found = open_if_any(connection, dataset)
    return {} if found is None else {found.id: datasets.read(connection, context.objects, found)}
