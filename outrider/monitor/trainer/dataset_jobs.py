"""Dataset jobs: versions from a table, or flagged and labelled records."""

import gzip
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection

from outrider.assertions import Batch
from outrider.assertions.batch import TIME
from outrider.behavioral_tests.cases import to_batch
from outrider.dataops.datasets import changes, quarantine
from outrider.dataops.datasets import collect as flagged
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.changes import Draft
from outrider.dataops.datasets.collect import Collected
from outrider.dataops.datasets.label_account import LabelAccount, label_account
from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.datasets.references import open_if_any
from outrider.dataops.datasets.row_files import ASSERTION
from outrider.dataops.datasets.suite_files import read_suite
from outrider.dataops.datasets.validation import Earlier, Rules, Validated, refuse
from outrider.dataops.datasets.versions import Provenance, Version
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.state.database import now_us, write
from outrider.errors import OutriderError, SchemaMismatch, ValidationRefused
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.payloads import open_payloads

from .checks_process import JudgedRows, judged
from .context import JobContext
from .dataset_leaks import imported_leaks, settled

log = logging.getLogger(__name__)

PROVENANCE = (ASSERTION, "provenance.label_source")
"""Columns of an imported table with the provenance of each row, which are no data."""
NOT_ASKED: Mapping[str, Any] = {"rows": 0, "quarantined": 0}


def rules_of(settings: Settings, name: str, nulls: Collection[str] = ()) -> Rules:
    """Validation rules from configuration and suite file; ``nulls`` are inputs known to be null in
    some rows."""
    model = settings.models[name]
    return Rules(
        model.target,
        model.classes,
        [name.removeprefix("inputs.") for name in model.declared_inputs],
        model.may_be_null(nulls),
        expectations=read_suite(model.expectations, settings.base),
        class_shift=model.validation.class_shift,
        range_growth=model.validation.range_growth,
        against_parent=model.validation.against_parent,
    )


def judge(
    context: JobContext,
    model: str,
    dataset: str,
    batch: Batch,
    *,
    stays: bool,
    removed: Collection[str] = (),
    reference: pa.Schema | None = None,
    full: bool = False,
) -> JudgedRows:
    """Validate rows for a dataset: ``stays`` keeps the newest version's rows except ``removed``, and
    ``full`` judges them again. ValidationRefused where no row passes."""
    settings = context.model(model)
    keys = [*map(str, batch.keys), *removed]
    with context.engine.connect() as connection:
        parent = datasets.newest(connection, dataset)
        replayed = open_if_any(connection, settings.retrain.replay)
    known = {name for one in (parent, replayed) for name in _nulls_of(one)}
    return judged(
        batch,
        rules_of(context.settings, model, known | sample_nulls(context.settings)),
        title=f"{dataset}@{1 if parent is None else parent.number + 1}",
        reference=reference,
        earlier=_earlier(context, parent, keys, stays=stays, full=full),
        checks=[context.settings.path(file) for file in settings.validation.checks],
        deadline_s=settings.validation.deadline_s,
        pause=context.check_stop,
    )


def _earlier(
    context: JobContext, version: Version | None, keys: Sequence[str], *, stays: bool, full: bool
) -> Earlier | None:
    if version is None:
        return None

    def read() -> Batch:
        with context.engine.connect() as connection:
            return datasets.read(connection, context.objects, version)

    with context.engine.connect() as connection:
        replaced = list(datasets.lives_of(connection, version.dataset, keys)) if stays else []
    validation = version.manifest["validation"]
    return Earlier(validation.get("aggregates"), read, stays, replaced, full, validation.get("nulls", ()))


def _nulls_of(version: Version | None) -> Sequence[str]:
    return () if version is None else version.manifest["validation"].get("nulls", ())


def sample_nulls(settings: Settings) -> set[str]:
    file = settings.sample_file
    if file is None:
        return set()
    try:
        sample = to_batch(file)
    except (OutriderError, OSError, ValueError) as error:
        log.warning("%s cannot be read, and says nothing of nulls: %s", file.name, error)
        return set()
    inputs = [name for name in sample.names if name.startswith("inputs.")]
    return {name.removeprefix("inputs.") for name in inputs if bool(sample.is_null(name).any())}


def kept_summary(
    context: JobContext, found: JudgedRows, warnings: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    summary = found.verdict.summary
    docs = context.objects.put(gzip.compress(found.docs, mtime=0))
    return summary | {"warnings": [*summary["warnings"], *warnings], "data_docs": docs}


def import_table(context: JobContext, job: JobRow) -> Version:
    """Commit an uploaded Arrow table as a dataset version.

    One bad row refuses it all: its sender can mend it.
    """
    settings = context.model(job.model)
    with pa.ipc.open_stream(pa.py_buffer(context.objects.mapped(str(job.params["object"])))) as reader:
        table = reader.read_all()
    source = str(job.params.get("source", "import"))
    table, told = _told(table, source)
    if "ts" not in table.column_names:
        table = table.append_column("ts", pa.repeat(pa.scalar(job.created_us, TIME), table.num_rows))
    batch = Batch.from_arrow(as_recorded(full_names(table, settings)), model=job.model)
    judgement = judge(context, job.model, str(job.params["dataset"]), batch, stays=False)
    refuse(_named(batch, judgement.verdict)[:5])
    part = str(job.params.get("part", "train"))
    provenance = [
        Provenance(str(key), assertion, label_source, part)
        for key, (assertion, label_source) in zip(batch.keys, told, strict=True)
    ]
    with context.engine.connect() as connection:  # files are written without the worker's lock
        leaks = imported_leaks(context, connection, settings, str(job.params["dataset"]), batch)
        draft = changes.prepare(
            connection,
            context.objects,
            dataset=str(job.params["dataset"]),
            batch=batch,
            provenance=provenance,
            append=False,
        )
    summary = kept_summary(context, judgement)
    with write(context.engine) as connection:
        return changes.commit(
            connection,
            draft,
            validation=summary,
            now_us=now_us(),
            made_from=[("job", job.id, "import")],
            targets=context.targets,
            service=context.service,
            notes={"leaks": leaks},
        )


def _told(table: pa.Table, source: str) -> tuple[pa.Table, list[tuple[str | None, str]]]:
    """The table without its provenance columns, and (assertion, label source) of each row."""
    columns = {name: table.column(name).to_pylist() for name in PROVENANCE if name in table.column_names}
    nothing: list[None] = [None] * table.num_rows
    rows = zip(*(columns.get(name, nothing) for name in PROVENANCE), strict=True)
    own = [name for name in table.column_names if not name.startswith("provenance.")]
    return table.select(own), [(assertion, label or source) for assertion, label in rows]


def full_names(table: pa.Table, settings: ModelSettings) -> pa.Table:
    names = {name: f"inputs.{name}" for name in settings.inputs} | {
        settings.target: f"label.{settings.target}"
    }
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def as_recorded(table: pa.Table) -> pa.Table:
    """Table with strings and bytes of the types of records; Pandas 3 writes large ones."""
    types = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
    return table.cast(
        pa.schema([field.with_type(types.get(field.type, field.type)) for field in table.schema])
    )


def commit_flagged(
    context: JobContext, job: JobRow, then: Callable[[Connection, Version | None, LabelAccount], None]
) -> Version | None:
    """Commit new flagged and labelled records, corrections and withdrawals, if any.

    ``then`` is called in the same transaction with the version or None, and the account of every label.
    Failing rows are quarantined; withdrawn ones are removed even where the rest is refused.
    """
    settings = context.model(job.model)
    scope = LabelScope(
        job.model,
        flagged.dataset_of(job.model),
        settings.retrain.rows,
        upto_seq=job.params.get("upto_seq"),
        rules=settings.rules_digest,
    )
    with context.engine.connect() as connection:
        found = flagged.collect(
            connection,
            context.journal,
            context.objects,
            scope,
            target=settings.target,
            classes=settings.classes,
            inputs=settings.declared_inputs,
            held_out_share=settings.retrain.held_out_share,
            weak_confidence=settings.retrain.weak_confidence,
            payloads=open_payloads(context.settings, job.model),
        )
        reference = _replayed_schema(connection, settings)
    passed = _Passed(None, [], found.rejected, NOT_ASKED)
    if found.batch is None and job.params.get("full"):
        _check_all(context, job.model, scope.dataset)
    if found.batch is not None:
        try:
            judgement = judge(
                context,
                job.model,
                scope.dataset,
                found.batch,
                stays=True,
                removed=found.removed,
                reference=reference,
                full=bool(job.params.get("full")),
            )
        except ValidationRefused as error:  # what was withdrawn leaves all the same
            refused = {str(found.batch.keys[row]): reason for row, reason in error.rows.items()}
            passed = replace(passed, rejected=found.rejected | refused)
            _commit(context, job, scope, found, passed, lambda *_: None)
            raise _told_of(error, len(refused)) from None
        keys, verdict = found.batch.keys, judgement.verdict
        rejected = found.rejected | {str(keys[row]): reason for row, reason in verdict.quarantined.items()}
        batch, provenance = flagged.keep(found.batch, found.provenance, verdict.rows)
        with context.engine.connect() as connection:
            rows = settled(
                context,
                connection,
                settings,
                scope.dataset,
                batch,
                provenance,
                corrected=found.corrected,
            )
        passed = _Passed(
            rows.batch if rows.batch.rows else None,  # all may wait for a human
            rows.provenance,
            rejected,
            kept_summary(context, judgement, found.warnings),
            {"leaks": rows.report},
        )
    return _commit(context, job, scope, found, passed, then)


def _check_all(context: JobContext, model: str, dataset: str) -> None:
    """Judge all rows of the newest version by the present rules."""
    with context.engine.connect() as connection:
        version = datasets.newest(connection, dataset)
        if version is None:
            return
        batch = datasets.read(connection, context.objects, version)
    bad = _named(batch, judge(context, model, dataset, batch, stays=False).verdict)
    refuse([f"{len(bad)} of {batch.rows} rows of {version.id} do not pass: {bad[0]}"] if bad else [])


def _told_of(error: ValidationRefused, rows: int) -> ValidationRefused:
    """The refusal with the number of rows that it quarantined."""
    if not rows:
        return error
    which = "1 row is" if rows == 1 else f"{rows} rows are"
    return ValidationRefused(
        f"{error}; {which} in quarantine, and the next commit starts without", rows=error.rows
    )


@dataclass(frozen=True, slots=True)
class _Passed:
    batch: Batch | None
    provenance: Sequence[Provenance]
    rejected: Mapping[str, str]
    summary: Mapping[str, Any]
    notes: Mapping[str, Any] = field(default_factory=dict)


def _commit(
    context: JobContext,
    job: JobRow,
    scope: LabelScope,
    found: Collected,
    passed: _Passed,
    then: Callable[[Connection, Version | None, LabelAccount], None],
) -> Version | None:
    with context.engine.connect() as connection:  # without the lock, as above
        try:
            draft = _draft(context, connection, scope, found, passed)
        except SchemaMismatch as error:  # refused with that reason, not in the way of every later job
            refused = dict.fromkeys((origin.record_id for origin in passed.provenance), str(error))
            passed = _Passed(None, (), {**passed.rejected, **refused}, NOT_ASKED)
            draft = _draft(context, connection, scope, found, passed)
        provenance, rejected = passed.provenance, passed.rejected
        account = label_account(connection, scope, found=found, committed=provenance, rejected=rejected)
    with write(context.engine) as connection:
        quarantine.hold(
            connection, scope.dataset, rejected, rules=scope.rules, labels=found.labels, now_us=now_us()
        )
        version = None
        if draft is not None:
            quarantine.take(connection, scope.dataset, provenance)
            version = changes.commit(
                connection,
                draft,
                validation=dict(passed.summary),
                now_us=now_us(),
                made_from=[("job", job.id, "trigger"), ("records", job.model, "flagged and labelled")],
                targets=context.targets,
                service=context.service,
                notes={"labels": account, **passed.notes},
            )
        then(connection, version, account)
        return version


def _draft(
    context: JobContext, connection: Connection, scope: LabelScope, found: Collected, passed: _Passed
) -> Draft | None:
    if passed.batch is None and not found.removed:
        return None
    return changes.prepare(
        connection,
        context.objects,
        dataset=scope.dataset,
        batch=passed.batch,
        provenance=passed.provenance,
        append=True,
        removed=found.removed,
        reads=rules_of(context.settings, scope.model).reads,
    )


def _replayed_schema(connection: Connection, settings: ModelSettings) -> pa.Schema | None:
    version = open_if_any(connection, settings.retrain.replay)
    return None if version is None else version.schema


def _named(batch: Batch, verdict: Validated) -> list[str]:
    return [f"row {row} (id {batch.keys[row]}): {reason}" for row, reason in verdict.quarantined.items()]
