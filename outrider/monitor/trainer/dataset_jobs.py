"""Dataset jobs: versions from a table, or flagged and labelled records."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from outrider.assertions import Batch
from outrider.assertions.batch import TIME
from outrider.dataops.datasets import collect as flagged
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.label_account import LabelAccount, label_account
from outrider.dataops.datasets.leak_moves import Beside, LeakReport, Settled, settle
from outrider.dataops.datasets.leaks import find_leaks, find_repeats, sides
from outrider.dataops.datasets.validation import Rules, Validated, refuse, validate
from outrider.dataops.datasets.versions import Provenance, Version
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.state.database import now_us, write
from outrider.errors import ValidationRefused
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.payloads import open_payloads

from .context import JobContext

PROVENANCE = ("provenance.assertion", "provenance.label_source")
"""Columns of an imported table that say where each row comes from; they are no part of the version's rows."""


def rules_of(model: ModelSettings) -> Rules:
    """Validation rules of a model, from its configuration."""
    return Rules(model.target, model.classes, model.inputs, model.expectations)


def import_table(context: JobContext, job: JobRow) -> Version:
    """Commit the uploaded Arrow IPC ``params["object"]`` as a dataset version.

    Raises
    ------
    ValidationRefused
        If the table or one of its rows does not pass: its sender can mend it, so nothing is left out.
    """
    settings = context.model(job.model)
    with pa.ipc.open_stream(pa.py_buffer(context.objects.mapped(str(job.params["object"])))) as reader:
        table = reader.read_all()
    source = str(job.params.get("source", "import"))
    table, told = _told(table, source)
    if "ts" not in table.column_names:
        table = table.append_column("ts", pa.repeat(pa.scalar(job.created_us, TIME), table.num_rows))
    batch = Batch.from_arrow(full_names(table, settings), model=job.model)
    verdict = validate(batch, rules_of(settings))
    refuse(_named(batch, verdict)[:5])
    part = str(job.params.get("part", "train"))
    provenance = [
        Provenance(str(key), assertion, label_source, part)
        for key, (assertion, label_source) in zip(batch.keys, told, strict=True)
    ]
    with context.engine.connect() as connection:  # files are written without the worker's lock
        leaks = _imported_leaks(context, connection, settings, str(job.params["dataset"]), batch)
        draft = datasets.prepare(
            connection,
            context.objects,
            dataset=str(job.params["dataset"]),
            batch=batch,
            provenance=provenance,
            append=False,
        )
    with write(context.engine) as connection:
        return datasets.commit(
            connection,
            draft,
            validation=verdict.summary,
            now_us=now_us(),
            made_from=[("job", job.id, "import")],
            targets=context.targets,
            service=context.service,
            notes={"leaks": leaks},
        )


def _told(table: pa.Table, source: str) -> tuple[pa.Table, list[tuple[str | None, str]]]:
    """The table without its columns of provenance, and what they say of each row: assertion, label source."""
    columns = {name: table.column(name).to_pylist() for name in PROVENANCE if name in table.column_names}
    nothing: list[None] = [None] * table.num_rows
    rows = zip(*(columns.get(name, nothing) for name in PROVENANCE), strict=True)
    return table.drop_columns(list(columns)), [(assertion, label or source) for assertion, label in rows]


def full_names(table: pa.Table, settings: ModelSettings) -> pa.Table:
    """``image`` becomes ``inputs.image`` and ``label`` becomes ``label.label``; full names stay."""
    names = {name: f"inputs.{name}" for name in settings.inputs} | {
        settings.target: f"label.{settings.target}"
    }
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def commit_flagged(
    context: JobContext, job: JobRow, then: Callable[[Connection, Version | None, LabelAccount], None]
) -> Version | None:
    """Commit records flagged or labelled since the last version, else None.

    ``then`` is called in the transaction of the commit, with None where there is nothing to commit, and
    the account of every label. Records that do not pass are quarantined with their reasons, the others are
    committed.

    Raises
    ------
    ValidationRefused
        If the rows cannot be used as a whole.
    """
    settings = context.model(job.model)
    dataset = flagged.dataset_of(job.model)
    with context.engine.connect() as connection:
        found = flagged.collect(
            connection,
            context.journal,
            model=job.model,
            dataset=dataset,
            target=settings.target,
            classes=settings.classes,
            rows=settings.retrain.rows,
            upto_seq=job.params.get("upto_seq"),
            held_out_share=settings.retrain.held_out_share,
            seed=settings.retrain.seed,
            weak_confidence=settings.retrain.weak_confidence,
            payloads=open_payloads(context.settings, job.model),
        )
        reference = _replayed_schema(context, connection, settings)
    if found.batch is None:
        account = _account(context, job, (), found.rejected)
        with write(context.engine) as connection:
            flagged.quarantine(connection, dataset, found.rejected, now_us=now_us())
            then(connection, None, account)
        return None
    try:
        verdict = validate(found.batch, rules_of(settings), reference=reference)
    except ValidationRefused:
        _quarantine(context, dataset, found.rejected)
        raise
    keys = found.batch.keys
    rejected = found.rejected | {str(keys[row]): reason for row, reason in verdict.quarantined.items()}
    batch, provenance = flagged.keep(found.batch, found.provenance, verdict.rows)
    with context.engine.connect() as connection:  # without the lock, as above
        settled = _settled(context, connection, settings, dataset, batch, provenance)
        batch, provenance = settled.batch, settled.provenance
    account = _account(context, job, provenance, rejected)
    with context.engine.connect() as connection:
        draft = None
        if batch.rows:  # all may wait for a human
            draft = datasets.prepare(
                connection, context.objects, dataset=dataset, batch=batch, provenance=provenance, append=True
            )
    with write(context.engine) as connection:
        flagged.quarantine(connection, dataset, rejected, now_us=now_us())
        version = (
            None
            if draft is None
            else datasets.commit(
                connection,
                draft,
                validation=verdict.summary,
                now_us=now_us(),
                made_from=[("job", job.id, "trigger"), ("records", job.model, "flagged and labelled")],
                targets=context.targets,
                service=context.service,
                notes={"labels": account, "leaks": settled.report},
            )
        )
        then(connection, version, account)
        return version


def _settled(
    context: JobContext,
    connection: Connection,
    settings: ModelSettings,
    dataset: str,
    batch: Batch,
    provenance: Sequence[Provenance],
) -> Settled:
    """New rows, held against the version before, the replayed dataset and the gate's."""
    learned: dict[str, Batch] = {}
    judged: dict[str, Batch] = {}
    before = datasets.newest(connection, dataset)
    if before is not None:
        for name, part, among in (("train", "train", learned), ("held out", "held_out", judged)):
            rows = datasets.read(connection, context.objects, before, part=part)
            among[f"{before.id} {name}"] = rows.take(~np.isin(rows.keys, batch.keys))  # those come again
    own = (*learned, *judged)
    learned |= _newest(context, connection, settings.retrain.replay)
    judged |= _newest(context, connection, settings.gate.held_out)
    return settle(
        batch,
        provenance,
        Beside(learned, judged, own),
        declared=settings.declared_inputs,
        moves=settings.retrain.move_leaks,
    )


def _imported_leaks(
    context: JobContext, connection: Connection, settings: ModelSettings, dataset: str, batch: Batch
) -> LeakReport:
    """Leaks of a table to be replayed with what judges, or of one that judges with what is learned from.

    They are named: what becomes of the table is up to its sender.
    """
    other, part = None, None
    if dataset == settings.retrain.replay:
        other, part = settings.gate.held_out, "held_out"
    elif dataset == settings.gate.held_out:
        other, part = settings.retrain.replay, "train"
    beside = {} if other == dataset else _newest(context, connection, other)
    collected = datasets.newest(connection, flagged.dataset_of(batch.model)) if part else None
    if collected is not None:
        rows = datasets.read(connection, context.objects, collected, part=part)
        beside[f"{collected.id} {str(part).replace('_', ' ')}"] = rows
    own, *others = sides({dataset: batch} | beside, settings.declared_inputs)
    leaks = [leak for side in others for leak in find_leaks(own, side)]
    return {"leaks": leaks, "repeats": find_repeats(own), "moved": {}}


def _newest(context: JobContext, connection: Connection, dataset: str | None) -> dict[str, Batch]:
    """Rows of the newest version of a dataset by its name, none where there is none."""
    found = datasets.newest(connection, dataset) if dataset else None
    return {} if found is None else {found.id: datasets.read(connection, context.objects, found)}


def _account(
    context: JobContext, job: JobRow, committed: Sequence[Provenance], rejected: dict[str, str]
) -> LabelAccount:
    with context.engine.connect() as connection:
        return label_account(
            connection,
            model=job.model,
            dataset=flagged.dataset_of(job.model),
            rows=context.model(job.model).retrain.rows,
            upto_seq=job.params.get("upto_seq"),
            committed=committed,
            rejected=rejected,
        )


def _replayed_schema(
    context: JobContext, connection: Connection, settings: ModelSettings
) -> pa.Schema | None:
    name = settings.retrain.replay
    version = datasets.newest(connection, name) if name else None
    if version is None:
        return None
    return datasets.read(connection, context.objects, version).to_arrow().schema


def _quarantine(context: JobContext, dataset: str, reasons: dict[str, str]) -> None:
    if reasons:
        with write(context.engine) as connection:
            flagged.quarantine(connection, dataset, reasons, now_us=now_us())


def _named(batch: Batch, verdict: Validated) -> list[str]:
    return [f"row {row} (id {batch.keys[row]}): {reason}" for row, reason in verdict.quarantined.items()]
