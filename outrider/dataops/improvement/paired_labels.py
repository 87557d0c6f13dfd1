"""Labelled records that two versions answered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, select

from outrider.assertions.comparison.matching import matches
from outrider.assertions.comparison.typed_text import read_typed
from outrider.dataops.flags.shadow_flags import flagged_of_one
from outrider.dataops.labels.estimates import evenly_drawn, newest_labels
from outrider.dataops.ledger.answers import read_values_of
from outrider.dataops.ledger.targets import is_number
from outrider.dataops.state.clock import HOUR_US
from outrider.dataops.state.tables import Record, table_of

MOST_LABELS = 50_000
_BLOCKS = 500
_RECORD = table_of(Record)
_COLUMNS = [
    _RECORD.c[name] for name in ("seq", "row", "id", "entity", "ts_us", "version", "predicted", "by_replica")
]
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LabelledPairs:
    """Labelled records that both versions answered, shape (n,) each."""

    entity: NDArray[np.int64]
    """Numbers of entities; 0 where a record names none."""
    hour: NDArray[np.int64]
    """Of event time."""
    worse: Values
    """1.0 where the champion alone is wrong, -1.0 where the other one is; of numbers, by who is
    farther off."""
    champion_right: int = 0
    other_right: int = 0
    is_numeric: bool = False
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Labels that a policy or a flag of one of the two may have chosen: ``requested``, ``flagged``."""


@dataclass(slots=True)
class _Rows:
    entity: list[int] = field(default_factory=list)
    hour: list[int] = field(default_factory=list)
    label: list[Any] = field(default_factory=list)
    champion: list[Any] = field(default_factory=list)
    other: list[Any] = field(default_factory=list)


def labelled_pairs(
    connection: Connection, model: str, champion: str, other: str, *, after: int, until: int, target: str
) -> LabelledPairs:
    """Labelled records behind block ``after`` up to ``until``.

    Labels that were bought where the champion looked doubtful hold more of its errors than traffic does:
    of those asked for, only what was drawn evenly counts; of others, only records that both or neither
    are flagged on. The newest label of a record counts.
    """
    drawn = evenly_drawn(connection, model)
    truth = newest_labels(connection, model, after=after, until=until, limit=MOST_LABELS)
    rows, entities, left_out = _Rows(), {None: 0}, {"requested": 0, "flagged": 0}
    blocks = sorted(truth)
    for begin in range(0, len(blocks), _BLOCKS):
        seqs = blocks[begin : begin + _BLOCKS]
        answers = read_values_of(connection, model, (champion, other), seqs, target)
        apart = flagged_of_one(connection, model, other, seqs)
        query = select(*_COLUMNS).where(_RECORD.c.model == model, _RECORD.c.seq.in_(seqs))
        for row in connection.execute(query.order_by(_RECORD.c.seq, _RECORD.c.row)):
            if (label := truth[row.seq].get(row.id)) is None:
                continue
            answer = _champions(row, champion, answers.get((champion, row.seq), {}))
            theirs = answers.get((other, row.seq), {})
            if answer is None or row.id not in theirs:
                continue
            if not drawn.get(row.id, True):
                left_out["requested"] += 1
            elif row.id not in drawn and (row.seq, row.row) in apart:
                left_out["flagged"] += 1
            else:
                rows.entity.append(entities.setdefault(row.entity, len(entities)))
                rows.hour.append(row.ts_us // HOUR_US)
                rows.label.append(read_typed(label))
                rows.champion.append(answer[0])
                rows.other.append(theirs[row.id])
    return _paired(rows, left_out, is_number(connection, model, rows.champion, rows.other))


def _champions(row: Row[Any], champion: str, replica: Mapping[str, Any]) -> tuple[Any] | None:
    """The champion's answer: production's, where a record says that this version gave it, else its
    replica's."""
    if row.version == champion and row.by_replica is False and row.predicted is not None:
        return (read_typed(row.predicted),)
    return (replica[row.id],) if row.id in replica else None


def _paired(rows: _Rows, left_out: Mapping[str, int], numeric: bool) -> LabelledPairs:
    entity, hour = (np.array(column, dtype=np.int64) for column in (rows.entity, rows.hour))
    ours, theirs = (matches(column, rows.label) for column in (rows.champion, rows.other))
    worse = theirs.astype(np.float64) - ours
    if numeric:
        off = [_distance(column, rows.label) for column in (rows.champion, rows.other)]
        with np.errstate(invalid="ignore"):
            worse = np.sign(np.nan_to_num(off[0] - off[1], nan=0.0))
        worse[matches(rows.champion, rows.other)] = 0.0
    return LabelledPairs(entity, hour, worse, int(ours.sum()), int(theirs.sum()), numeric, left_out)


def _distance(answers: list[Any], labels: list[Any]) -> Values:
    """Distance of each answer to its label; infinite where one is no number."""
    off = [
        abs(float(answer) - float(label))
        if isinstance(answer, int | float) and isinstance(label, int | float)
        else np.inf
        for answer, label in zip(answers, labels, strict=True)
    ]
    return np.nan_to_num(np.array(off, dtype=np.float64), nan=np.inf, posinf=np.inf)
