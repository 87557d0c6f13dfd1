"""Performance over time by judged version and slice, from labels.

Steps are of the record, whenever its label came. Labels that a policy chose are weighted by their chance,
and those that came unasked set aside, as everywhere
(:func:`~outrider.assertions.flags.quality.rate_of_labels`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, literal

from outrider.assertions.comparison.matching import NUMERIC_SHARE
from outrider.assertions.flags.quality import LEAST_ASKED, LEAST_ASKED_SHARE
from outrider.assertions.statistics.estimation import estimate_share
from outrider.assertions.statistics.performance import (
    UNKNOWN,
    Estimated,
    OutcomeCells,
    ScoreCells,
    ScoreConvention,
    accuracy,
    auroc,
    brier_score,
    calibration_error,
    class_auroc,
    macro_f1,
    numbered,
    root,
    score_convention,
)
from outrider.dataops.labels.estimates import request_weights
from outrider.dataops.ledger.class_scores import BUCKETS
from outrider.dataops.ledger.class_words import NUMBER
from outrider.dataops.ledger.cube import OUTCOMES, SCORES
from outrider.dataops.ledger.minutes import minute_of, minutes_of
from outrider.dataops.ledger.outcomes import (
    CONFIDENCES,
    SCALE,
    LabelledRow,
    confidence_bucket,
    judged_versions,
    outcomes_of,
    standing,
)
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.ledger.targets import declared_number

from .counts import SeriesCut, VersionSlice, record_steps, share
from .figures import SeriesKey, SeriesRow, group_cells, rows_by_step
from .measures import mean_series
from .span import SeriesSpan

FIGURES: Mapping[str, Callable[[OutcomeCells], Estimated]] = {
    "accuracy": accuracy,
    "f1": macro_f1,
    "auroc": auroc,
    "brier": brier_score,
    "calibration": calibration_error,
}
"""Of classes; of numbers ``mae`` and ``rmse``."""
SCORED: Mapping[str, Callable[[ScoreCells], Estimated]] = {
    "auroc": class_auroc,
    "auroc_weighted": partial(class_auroc, is_weighted=True),
}
"""Of more than two classes whose scores are known."""
_UNNAMED = frozenset({NUMBER, OTHERS})
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Performance:
    """Figures of a model over time.

    Attributes
    ----------
    labelled
        Share of the records of each step and version whose label has come.
    figures
        One series per figure, judged version and slice.
    is_numeric
        The target is a number: how far answers are off, and no right or wrong.
    note
        Warning about how scores are read; None for none.
    """

    labelled: Sequence[SeriesRow]
    figures: Sequence[SeriesRow]
    is_numeric: bool
    note: str | None = None


@dataclass(frozen=True, slots=True)
class _Scored:
    """Score cells with the series and step of each."""

    cells: ScoreCells
    parts: Sequence[VersionSlice]
    places: Places
    classes: Mapping[str, int] = field(default_factory=dict)
    """Place of each class in ``record.class_scores``."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """Outcome cells with the series and step of each."""

    cells: OutcomeCells
    parts: Sequence[VersionSlice]
    places: Places
    certain: NDArray[np.bool_] | None = None
    """Of chosen labels, one cell each: those that were all but certain to be asked for."""
    scored: _Scored | None = None
    """Of chosen labels."""


def read_performance(connection: Connection, wanted: SeriesCut, span: SeriesSpan) -> Performance:
    """Performance of a model's judged versions over time."""
    rows = _rows(connection, wanted, span)
    counted = _counted(rows)
    fractional = sum(row.records for row in rows if row.predicted == NUMBER)
    if rows and fractional > NUMERIC_SHARE * counted.cells.records.sum():
        errors = [
            *mean_series(connection, wanted, span, stored="abs_error", statistic="mae"),
            *map(
                _rooted,
                mean_series(connection, wanted, span, stored="squared_error", statistic="rmse"),
            ),
        ]
        return Performance(_labelled(connection, wanted, span, counted), errors, True)
    scored = _scored(connection, wanted, span)
    chosen = _chosen(connection, wanted, span, scored.classes)
    own, weighted = group_cells(counted.parts), group_cells(chosen.parts)
    figures = []
    for part in sorted(own.keys() | weighted.keys(), key=lambda one: (one[0], one[1] or "")):
        labels = int(counted.cells.records[own[part]].sum()) if part in own else 0
        asked = len(weighted.get(part, ()))
        is_chosen = asked > 0 and asked >= max(LEAST_ASKED, LEAST_ASKED_SHARE * labels)
        of, places = (chosen, weighted[part]) if is_chosen else (counted, own.get(part))
        if places is not None:
            by_class = _class_series(chosen.scored if is_chosen else scored, part, span, is_chosen=is_chosen)
            named = {row.key.statistic for row in by_class}
            figures += [row for row in _series(of, part, places, span) if row.key.statistic not in named]
            figures += by_class
    odd = score_convention(counted.cells)
    note = None if odd is None else str(odd)
    return Performance(_labelled(connection, wanted, span, counted), figures, False, note)


def _series(of: _Counted, part: VersionSlice, places: Places, span: SeriesSpan) -> list[SeriesRow]:
    """All figures of one part that can be told."""
    method = "plain" if of.certain is None else "weighted"
    found = []
    for name, figure in FIGURES.items():
        tell = partial(_figure, of, figure)
        points, whole = rows_by_step(span, {part: places}, of.places, tell)[part]
        if whole is not UNKNOWN:
            found.append(SeriesRow(SeriesKey("performance", name, "", "", *part), points, whole, method))
    return found


def _class_series(
    of: _Scored | None, part: VersionSlice, span: SeriesSpan, *, is_chosen: bool
) -> list[SeriesRow]:
    """Figures of the scores of all classes."""
    places = None if of is None else group_cells(of.parts).get(part)
    if of is None or places is None:
        return []
    found = []
    for name, figure in SCORED.items():
        tell = partial(_of_scores, of.cells, figure)
        points, whole = rows_by_step(span, {part: places}, of.places, tell)[part]
        if whole is not UNKNOWN:
            key = SeriesKey("performance", name, "", "", *part)
            found.append(SeriesRow(key, points, whole, "weighted" if is_chosen else "plain"))
    return found


def _of_scores(cells: ScoreCells, figure: Callable[[ScoreCells], Estimated], places: Places) -> Estimated:
    return figure(cells.take(places))


def _figure(of: _Counted, figure: Callable[[OutcomeCells], Estimated], cells: Places) -> Estimated:
    part = of.cells.take(cells)
    if of.certain is None or figure is not accuracy:
        return figure(part)
    found = estimate_share(part.hit, part.weight, certain=of.certain[cells])
    if found.method == "none":
        return UNKNOWN
    return Estimated(found.value, found.low, found.high, found.labels, found.effective)


def _labelled(
    connection: Connection, wanted: SeriesCut, span: SeriesSpan, counted: _Counted
) -> list[SeriesRow]:
    """Share of records whose label has come."""
    labels = group_cells(counted.parts)
    found = []
    for part, records in sorted(record_steps(connection, wanted, span).items(), key=lambda one: str(one[0])):
        cells = labels.get(part, np.zeros(0, dtype=np.intp))
        own = np.zeros(span.steps, dtype=np.int64)
        np.add.at(own, counted.places[cells], counted.cells.records[cells])
        points = [share(n, max(records.get(at, 0), n)) for at, n in enumerate(own.tolist())]
        all_labels = int(own.sum())
        whole = share(all_labels, max(sum(records.values()), all_labels))
        found.append(SeriesRow(SeriesKey("labelled", "share", "records", "", *part), points, whole))
    return found


def _rows(connection: Connection, wanted: SeriesCut, span: SeriesSpan) -> Sequence[Any]:
    cell = ("predicted", "label", "hit", "bucket")
    query = wanted.steps(OUTCOMES, span, *cell, sums=OUTCOMES.sums)
    left = func.sum(OUTCOMES.table.c.records) > 0  # none where all labels of an old cell were withdrawn
    return connection.execute(query.having(left)).all()


def _counted(rows: Sequence[Any]) -> _Counted:
    """Cells of the stored counts."""
    numbers = numbered([name for row in rows for name in (row.predicted, row.label)], _UNNAMED)
    sums = np.array(
        [(row.weight, row.squares, row.confidence, row.brier) for row in rows], dtype=np.float64
    ).reshape(-1, 4)
    cells = OutcomeCells(
        numbers[0::2],
        numbers[1::2],
        np.array([row.hit for row in rows], dtype=np.bool_),
        np.array([row.bucket for row in rows], dtype=np.int64),
        np.array([row.records for row in rows], dtype=np.int64),
        sums[:, 0],
        sums[:, 1],
        sums[:, 2],
        sums[:, 3],
        CONFIDENCES,
    )
    places = np.array([row.step for row in rows], dtype=np.intp)
    return _Counted(cells, [(row.version, row.part) for row in rows], places)


def _scored(connection: Connection, wanted: SeriesCut, span: SeriesSpan) -> _Scored:
    """Cells of the stored counts of scores."""
    cell = ("of_class", "place", "bucket", "is_label")
    query = wanted.steps(SCORES, span, *cell, sums=SCORES.sums)
    rows = connection.execute(query.having(func.sum(SCORES.table.c.records) > 0)).all()
    cells = ScoreCells(
        numbered([row.of_class for row in rows], frozenset()),
        np.array([row.bucket for row in rows], dtype=np.int64),
        np.array([row.is_label for row in rows], dtype=np.bool_),
        np.array([row.records for row in rows], dtype=np.int64),
        np.array([row.weight for row in rows], dtype=np.float64),
        np.array([row.squares for row in rows], dtype=np.float64),
        BUCKETS,
    )
    places = np.array([row.step for row in rows], dtype=np.intp)
    classes = {row.of_class: row.place for row in rows}
    return _Scored(cells, [(row.version, row.part) for row in rows], places, classes)


def _chosen_scores(
    rows: Sequence[LabelledRow],
    labels: Sequence[str],
    weight: NDArray[np.float64],
    parts: Sequence[VersionSlice],
    places: Places,
    classes: Mapping[str, int],
) -> _Scored | None:
    """Cells of chosen labels, one for each class."""
    size = len(classes)
    own = [
        at for at, row in enumerate(rows) if len(row.class_scores or b"") == size and labels[at] in classes
    ]
    if not own:
        return None
    scores = np.frombuffer(b"".join(rows[at].class_scores or b"" for at in own), dtype=np.uint8)
    true = np.array([classes[labels[at]] for at in own])
    each = np.repeat(weight[own], size)
    cells = ScoreCells(
        np.tile(np.arange(size), len(own)),
        scores.astype(np.int64),
        (true[:, None] == np.arange(size)).ravel(),
        np.ones(len(each), dtype=np.int64),
        each,
        each**2,
        BUCKETS,
    )
    return _Scored(cells, [parts[at] for at in own for _ in range(size)], np.repeat(places[own], size))


def _chosen(
    connection: Connection, wanted: SeriesCut, span: SeriesSpan, classes: Mapping[str, int]
) -> _Counted:
    """Labelled requests of the range, one cell each, weighted by their chances."""
    asked = request_weights(connection, wanted.model)
    rows = [row for row in standing(connection, wanted.model, asked).values() if asked[row.id].weight > 0]
    minutes = minutes_of(connection, wanted.model, [row.seq for row in rows])
    times = [minutes.get(row.seq, minute_of(row.ts_us)) for row in rows]
    versions = judged_versions(connection, wanted.model, rows)
    kept = [
        at
        for at, row in enumerate(rows)
        if span.since_us <= times[at] < span.until_us
        and wanted.version in (None, versions[at])
        and wanted.slice in (None, row.slice or "")
        and (not wanted.is_by_slice or wanted.slices is None or (row.slice or "") in wanted.slices)
    ]
    rows = [rows[at] for at in kept]
    parts = [(versions[at], wanted.slice) for at in kept]
    if wanted.by_slice:
        parts = [(version, row.slice or "") for (version, _), row in zip(parts, rows, strict=True)]
    outcomes = outcomes_of(rows, declared_number(connection, wanted.model))
    numbers = numbered([name for one in outcomes for name in (one.predicted, one.label)], _UNNAMED)
    hit = np.array([one.hit for one in outcomes], dtype=np.bool_)
    weight = np.array([row.weight * asked[row.id].weight for row in rows], dtype=np.float64)
    sure = np.array([(row.confidence or 0) / SCALE for row in rows], dtype=np.float64)
    cells = OutcomeCells(
        numbers[0::2],
        numbers[1::2],
        hit,
        np.array([confidence_bucket(row.confidence) for row in rows], dtype=np.int64),
        np.ones(len(rows), dtype=np.int64),
        weight,
        weight * weight,
        weight * sure,
        weight * (sure - hit) ** 2,
        buckets=CONFIDENCES,
    )
    certain = np.array([asked[row.id].is_certain for row in rows], dtype=np.bool_)
    places = span.places([times[at] for at in kept]) if kept else np.zeros(0, dtype=np.intp)
    labels = [one.label for one in outcomes]
    scored = _chosen_scores(rows, labels, weight, parts, places, classes)
    return _Counted(cells, parts, places, certain, scored)


def _rooted(row: SeriesRow) -> SeriesRow:
    return SeriesRow(row.key, [root(point) for point in row.points], root(row.whole), row.method)


def stored_convention(connection: Connection, model: str) -> ScoreConvention | None:
    """Notice of the convention of all stored scores of a model."""
    nowhere = literal(0).label("step"), literal("").label("part")
    cell = ("version", "predicted", "label", "hit", "bucket")
    query = OUTCOMES.query(model, *cell, *nowhere, sums=OUTCOMES.sums)
    rows = connection.execute(query.having(func.sum(OUTCOMES.table.c.records) > 0)).all()
    return score_convention(_counted(rows).cells)
