"""Weak slices of the newest records.

Run as ``python -m outrider.monitor.views.slices.reader``: it takes seconds, apart from intake's process.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Connection, select
from typing_extensions import TypedDict

from outrider.assertions.statistics.weak_slices import (
    LEAST_ROWS,
    Condition,
    WeakSlice,
    WeakSlices,
    find_weak_slices,
)
from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.journal.stored_rows import has_row
from outrider.dataops.ledger.cursors import cursor
from outrider.dataops.state.database import open_database
from outrider.dataops.state.tables import AssertionRow, Flag, FlagRecord, table_of
from outrider.monitor.http.declared import FieldsOf
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.process.helper import begin_helping
from outrider.monitor.queries.long_reads import LongReads
from outrider.monitor.queries.newest_records import NewestRecords, newest_records, payloads
from outrider.monitor.views.service import Service

CHAMPION = "champion"
WRONG, FLAGGED = "wrong", "flagged"
_ASSERTION, _FLAG, _MEMBER = (table_of(t) for t in (AssertionRow, Flag, FlagRecord))


MODULE = "outrider.monitor.views.slices.reader"
LIMIT_S, MOST_KEPT = 120.0, 16
_UNKNOWN = "outcome {!r}: wrong, flagged, or an assertion that flagged a record expected"


class SliceSearch:
    """Searches, one at a time, each in a process of its own."""

    def __init__(self, service: Service, *, limit_s: float = LIMIT_S) -> None:
        self._engine, self._settings = service.engine, service.settings
        busy = "a search for weak slices is under way: wait for it"
        self._apart = LongReads(MODULE, busy=busy, failed="no search", limit_s=limit_s)
        self._kept: dict[str, WeakSliceFacts] = {}

    def find(
        self, model: str, *, outcome: str = "", columns: Sequence[str] = (), since_us: int | None = None
    ) -> "WeakSliceFacts":
        """Search the newest records of a model; ProblemError 422 for an unknown outcome or column,
        409 while another runs, 503 without an answer."""
        target = self._settings.models[model].target if model in self._settings.models else "label"
        asked = {"model": model, "target": target, "outcome": outcome, "columns": list(columns)}
        arguments = [self._settings.database_url, str(self._settings.journal_path)]
        arguments += [json.dumps(asked | {"since_us": since_us})]
        with self._engine.connect() as connection:
            if outcome not in ("", WRONG, FLAGGED) and not _has_flagged(connection, model, outcome):
                raise ProblemError(problem(422, _UNKNOWN.format(outcome), field="outcome"))
            key = f"{cursor(connection, model, CHAMPION)} {arguments[-1]}"
        if kept := self._kept.get(key):
            return kept
        found = self._apart.ask(arguments)
        if "refused" in found:
            raise ProblemError(problem(422, found["refused"], field="column"))
        facts: WeakSliceFacts = found
        self._kept = dict([*self._kept.items(), (key, facts)][-MOST_KEPT:])
        return facts


ConditionFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(Condition, "ConditionFacts", about="Condition on one column.", more={"operator": str}),
]


class SliceFacts(TypedDict):
    """Slice that is worse than the rest, or was proposed as one."""

    slice: str
    conditions: list[ConditionFacts]
    proven: bool
    p: float
    rows: int
    share: float
    rate: float
    low: float
    high: float
    rest: float
    more: float
    more_low: float
    more_high: float


class WeakSliceFacts(TypedDict):
    """Slices of the newest records, the surest first."""

    outcome: str
    records: int
    expired: int
    proven_on: int
    rate: float | None
    error: float
    slices: list[SliceFacts]
    left_out: dict[str, str]
    stretch: str
    note: str


@dataclass(frozen=True, slots=True)
class FoundSlices:
    """Result of a search in stored records; ``found`` is None where ``note`` says what is missing."""

    outcome: str
    records: int
    expired: int
    found: WeakSlices | None
    note: str = ""


def stored_slices(
    connection: Connection,
    blocks: BlockSource,
    *,
    model: str,
    target: str,
    outcome: str = "",
    columns: Sequence[str] = (),
    since_us: int | None = None,
) -> FoundSlices:
    """Search the newest records for weak slices by ``outcome``: ``wrong`` (weighted as labels were
    chosen), ``flagged``, or an assertion; by default ``wrong`` with enough labels."""
    newest = newest_records(connection, model, since_us=since_us)
    outcome = outcome or (WRONG if len(newest.labelled) >= 4 * LEAST_ROWS else FLAGGED)
    at, hits, weight = _outcome(connection, newest, model, outcome)
    here, table = _columns(blocks, newest, at, columns, target)
    expired = len(at) - len(here)
    if len(here) < 4 * LEAST_ROWS:
        what = "labelled records" if outcome == WRONG else "records"
        note = f"{len(here)} {what} with a payload; a search needs {4 * LEAST_ROWS}"
        return FoundSlices(outcome, len(here), expired, None, note)
    entities = newest.entities.take(pa.array(at[here]))
    times = newest.times[at[here]]
    found = find_weak_slices(table, hits[here], weight=weight[here], entity=entities, time=times)
    return FoundSlices(outcome, len(here), expired, found)


def slices_json(one: FoundSlices) -> WeakSliceFacts:
    found = one.found or WeakSlices(0, float("nan"), 0.0)
    return {
        "outcome": one.outcome,
        "records": one.records,
        "expired": one.expired,
        "proven_on": found.rows,
        "rate": None if np.isnan(found.rate) else found.rate,
        "error": found.error,
        "slices": [_slice(each, is_proven=each in found.proven) for each in found.slices],
        "left_out": found.left_out,
        "stretch": found.stretch,
        "note": one.note,
    }


def _slice(one: WeakSlice, *, is_proven: bool) -> SliceFacts:
    return {
        "slice": str(one),
        "conditions": [asdict(condition) for condition in one.conditions],
        "proven": is_proven,
        "p": one.p,
        "rows": one.rows,
        "share": one.share,
        "rate": one.rate,
        "low": one.low,
        "high": one.high,
        "rest": one.rest,
        "more": one.more,
        "more_low": one.more_low,
        "more_high": one.more_high,
    }


def _outcome(
    connection: Connection, newest: NewestRecords, model: str, outcome: str
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.float64]]:
    """Places of the judged records, whether they have the outcome, and their weights."""
    if outcome == WRONG:
        at = newest.labelled
        wrong = [newest.predicted[place] != newest.labels[place] for place in at.tolist()]
        return at, np.array(wrong, dtype=np.bool_), newest.label_weight
    flagged = _flagged(connection, model, newest, outcome)
    hits = np.array([row.id in flagged for row in newest.rows], dtype=np.bool_)
    return np.arange(len(newest.rows)), hits, newest.weight


def _flagged(connection: Connection, model: str, newest: NewestRecords, outcome: str) -> set[str]:
    own = [_FLAG.c.model == model, _FLAG.c.slot == CHAMPION]
    if outcome != FLAGGED:
        own.append(_FLAG.c.assertion == outcome)
    oldest = min((row.seq for row in newest.rows), default=0)
    first = select(_FLAG.c.record_id).where(*own, _FLAG.c.seq >= oldest)
    of_group = select(_MEMBER.c.record_id).join(_FLAG, _FLAG.c.id == _MEMBER.c.flag_id)
    further = of_group.where(*own, _MEMBER.c.seq >= oldest)
    return {record for query in (first, further) for record in connection.execute(query).scalars()}


def flagging_assertions(connection: Connection, model: str) -> list[str]:
    own = select(_ASSERTION.c.name).where(_ASSERTION.c.model == model)
    return list(connection.execute(own.distinct().order_by(_ASSERTION.c.name)).scalars())


def _has_flagged(connection: Connection, model: str, assertion: str) -> bool:
    own = (_FLAG.c.model == model, _FLAG.c.slot == CHAMPION, _FLAG.c.assertion == assertion)
    return connection.execute(select(_FLAG.c.id).where(*own).limit(1)).first() is not None


def _columns(
    blocks: BlockSource,
    newest: NewestRecords,
    at: NDArray[np.intp],
    wanted: Sequence[str],
    target: str,
) -> tuple[NDArray[np.intp], pa.Table]:
    rows = [newest.rows[place] for place in at.tolist()]
    here: list[int] = []
    parts: list[pa.RecordBatch] = []
    for members, batch in payloads(blocks, rows):
        left = [place for place in members if has_row(batch, rows[place].row)]
        table = batch.to_arrow()
        names = [name for name in table.schema.names if _is_searched(name, wanted, target)]
        parts.append(table.select(names).take(pa.array([rows[place].row for place in left])))
        here += left
    if not parts:
        return np.zeros(0, dtype=np.intp), pa.table({})
    there = dict.fromkeys(name for part in parts for name in part.schema.names)
    for name in wanted:
        if name not in there:
            raise KeyError(
                f"no record has a column {name!r}; inputs.NAME, attrs.NAME or outputs.NAME expected"
            )
    return np.array(here, dtype=np.intp), pa.table({name: _joined(name, parts) for name in there})


def _is_searched(name: str, wanted: Sequence[str], target: str) -> bool:
    if wanted:
        return name in wanted
    return name.startswith(("inputs.", "attrs.")) or name == f"outputs.{target}"


def _joined(name: str, parts: Sequence[pa.RecordBatch]) -> Any:
    """One column of all parts, null where a part lacks it; texts where its types differ."""
    columns = [part.column(name) if name in part.schema.names else pa.nulls(part.num_rows) for part in parts]
    tables = [pa.table({"0": column}) for column in columns]
    try:
        return pa.concat_tables(tables, promote_options="permissive").column("0")
    except pa.ArrowException:
        texts = [
            pa.array([None if v is None else str(v) for v in c.to_pylist()], pa.string()) for c in columns
        ]
        return pa.chunked_array(texts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="outrider.monitor.views.slices.reader")
    parser.add_argument("database")
    parser.add_argument("journal", type=Path)
    parser.add_argument("asked", type=json.loads)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    begin_helping(options.parent)
    journal = SqliteJournal(options.journal, max_bytes=None, read_only=True)
    with open_database(options.database).connect() as connection:
        try:
            found: Any = slices_json(stored_slices(connection, journal, **options.asked))
        except KeyError as error:
            found = {"refused": str(error.args[0])}
    journal.close()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
