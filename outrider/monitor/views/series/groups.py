"""Rates of declared groups and their gaps over time, by judged version.

Steps are of the record. Labels that a policy chose are weighted by their chance, and those that came unasked
set aside, as everywhere (:func:`~outrider.assertions.flags.quality.rate_of_labels`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func

from outrider.assertions.flags.quality import LEAST_ASKED, LEAST_ASKED_SHARE
from outrider.assertions.statistics.performance import UNKNOWN, Estimated
from outrider.behavioral_tests.counted_groups import GroupCells, counted_metrics, stepped_metrics
from outrider.behavioral_tests.fairness import GroupMetrics
from outrider.dataops.labels.estimates import request_weights
from outrider.dataops.ledger.class_words import class_word
from outrider.dataops.ledger.cube import GROUPS
from outrider.dataops.ledger.group_columns import columns_of
from outrider.dataops.ledger.minutes import minute_of, minutes_of
from outrider.dataops.ledger.outcomes import judged_versions, outcomes_of, standing
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.ledger.targets import declared_number

from .counts import step_of
from .figures import SeriesKey, SeriesRow
from .span import SeriesSpan

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class GroupCut:
    """Model, attribute and the class that is a selection."""

    model: str
    attribute: str
    positive: str
    version: str | None = None
    """Series of this judged version alone."""
    declared: Sequence[str] = ()
    """Attributes that are counted once there are records."""


@dataclass(frozen=True, slots=True)
class CountedGroups:
    """Rates of groups over time.

    Attributes
    ----------
    attribute
        As it is declared.
    version
        Of ``metrics``, ``records`` and ``labelled``: the newest of the range; None where it has no records.
    is_asked
        Whether labelled figures are of labels that a policy asked for, weighed back to the traffic.
    rows
        One series per figure, group and judged version, and per gap.
    """

    attribute: str
    version: str | None
    metrics: GroupMetrics | None
    records: int
    labelled: int
    is_asked: bool
    rows: Sequence[SeriesRow]


@dataclass(frozen=True, slots=True)
class _Version:
    """Cells of one judged version, with the step of each."""

    groups: Sequence[str]
    cells: GroupCells
    steps: Places
    per_entity: NDArray[np.float64] | None
    """Of chosen labels."""
    is_asked: bool


def grouped_by(connection: Connection, model: str) -> list[str]:
    """Attributes that records were counted by."""
    return sorted(connection.scalars(GROUPS.query(model, "attribute")))


def answers_of(connection: Connection, model: str, attribute: str, span: SeriesSpan) -> dict[str, int]:
    """Records of a range by answer, rarest first."""
    of = {"attribute": attribute, "is_labelled": False}
    query = GROUPS.query(
        model, "predicted", sums=("records",), since_us=span.since_us, until_us=span.until_us, of=of
    )
    query = query.order_by(func.sum(GROUPS.table.c.records), GROUPS.table.c.predicted)
    return {name: int(n) for name, n in connection.execute(query)}


def read_groups(
    connection: Connection, wanted: GroupCut, span: SeriesSpan, *, must_know: bool = True
) -> CountedGroups:
    """Rates of the groups of one attribute.

    Parameters
    ----------
    must_know
        Whether an unknown ``positive`` is an error; else there are no series.

    Raises
    ------
    KeyError
        If this attribute is not declared, and no record was ever counted by it.
    ValueError
        If ``positive`` is no class of the records in the range.
    """
    attribute = _attribute(connection, wanted)
    positive = class_word(wanted.positive)
    rows = _rows(connection, wanted, attribute, span)
    if must_know:
        _check_class(wanted.positive, positive, rows)
    chosen = _chosen(connection, wanted, attribute, span)
    found, newest = [], None
    for version in sorted({row.version for row in rows}):
        own = _version(
            [row for row in rows if row.version == version],
            [row for row in chosen if row.version == version],
            positive,
        )
        found += _series(own, version, attribute, span)
        last = version != OTHERS, int(own.steps.max()), float(own.cells.records.sum())
        if newest is None or last > newest[0]:
            newest = last, version, own
    if newest is None:
        return CountedGroups(attribute, None, None, 0, 0, False, found)
    _, version, own = newest
    labelled = own.cells.is_labelled
    return CountedGroups(
        attribute,
        version,
        counted_metrics(own.cells, own.groups, by=[attribute], per_entity=own.per_entity),
        int(own.cells.records[~labelled].sum()),
        int(own.cells.records[labelled].sum()),
        own.is_asked,
        found,
    )


def _attribute(connection: Connection, wanted: GroupCut) -> str:
    """Attribute as it is declared, whatever the order of its columns."""
    known = sorted({*grouped_by(connection, wanted.model), *wanted.declared})
    columns = sorted(columns_of(wanted.attribute))
    for attribute in known:
        if sorted(columns_of(attribute)) == columns:
            return attribute
    there = f"records are counted by {'; '.join(known)}" if known else "no grouping is counted yet"
    raise KeyError(
        f"no column {wanted.attribute!r} to group by: name it in group_by of the model in outrider.toml, "
        f"which counts from then on; {there}"
    )


def _check_class(asked: str, positive: str, rows: Sequence[Any]) -> None:
    known = sorted({name for row in rows for name in (row.predicted, row.label)[: 1 + row.is_labelled]})
    if rows and positive not in known:
        raise ValueError(
            f"positive={asked!r} is neither predicted nor a label of any record; there are {known[:10]}"
        )


def _rows(connection: Connection, wanted: GroupCut, attribute: str, span: SeriesSpan) -> Sequence[Any]:
    keys = ("version", "part", "is_labelled", "predicted", "label", "hit")
    query = GROUPS.query(
        wanted.model, step_of(GROUPS.table, span), *keys,
        sums=GROUPS.sums, since_us=span.since_us, until_us=span.until_us,
        of={"attribute": attribute, "version": wanted.version},
    )  # fmt: skip
    left = func.sum(GROUPS.table.c.records) > 0  # none where all labels of an old cell were withdrawn
    return connection.execute(query.having(left)).all()


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Labelled request, as a cell of its own."""

    step: int
    version: str
    part: str
    entity: str
    predicted: str
    label: str
    hit: bool
    weight: float


def _chosen(connection: Connection, wanted: GroupCut, attribute: str, span: SeriesSpan) -> list[_Chosen]:
    """Labelled requests of the range, weighted by their chances."""
    asked = request_weights(connection, wanted.model)
    rows = [
        row
        for row in standing(connection, wanted.model, asked).values()
        if asked[row.id].weight > 0 and row.groups is not None
    ]
    if not rows:
        return []
    minutes = minutes_of(connection, wanted.model, [row.seq for row in rows])
    versions = judged_versions(connection, wanted.model, rows)
    outcomes = outcomes_of(rows, declared_number(connection, wanted.model))
    found = []
    for row, version, outcome in zip(rows, versions, outcomes, strict=True):
        minute = minutes.get(row.seq, minute_of(row.ts_us))
        part = json.loads(row.groups or "{}").get(attribute)
        if part is None or not span.since_us <= minute < span.until_us:
            continue
        step = (minute - span.since_us) // span.step_us
        weight = row.weight * asked[row.id].weight
        said = (outcome.predicted, outcome.label, outcome.hit)
        found.append(_Chosen(step, version, part, row.entity or row.id, *said, weight))
    return found


def _version(rows: Sequence[Any], chosen: Sequence[_Chosen], positive: str) -> _Version:
    """Cells of one version: chosen labels in place of the others where there are enough."""
    labels = sum(int(row.records) for row in rows if row.is_labelled)
    is_asked = len(chosen) > 0 and len(chosen) >= max(LEAST_ASKED, LEAST_ASKED_SHARE * labels)
    counted = [row for row in rows if not (is_asked and row.is_labelled)]
    parts = sorted({row.part for row in (*counted, *(chosen if is_asked else ()))})
    places = {part: at for at, part in enumerate(parts)}
    cells = _cells(counted, places, positive)
    steps = [int(row.step) for row in counted]
    per_entity = None
    if is_asked:
        cells = cells.joined(_chosen_cells(chosen, places, positive))
        steps += [row.step for row in chosen]
        records, entities = (
            np.bincount([places[part] for part, _ in pairs], minlength=len(parts))
            for pairs in (
                [(row.part, row.entity) for row in chosen],
                {(row.part, row.entity) for row in chosen},
            )
        )
        per_entity = records / np.maximum(entities, 1)
    return _Version(parts, cells, np.array(steps, dtype=np.intp), per_entity, is_asked)


def _cells(rows: Sequence[Any], places: Mapping[str, int], positive: str) -> GroupCells:
    sums = [(row.records, row.entities, row.weight, row.squares) for row in rows]
    numbers = np.array(sums, dtype=np.float64).reshape(-1, 4).T
    is_labelled = np.array([row.is_labelled for row in rows], dtype=np.bool_)
    return GroupCells(
        np.array([places[row.part] for row in rows], dtype=np.intp),
        is_labelled,
        np.array([row.predicted == positive for row in rows], dtype=np.bool_),
        np.array([row.label == positive for row in rows], dtype=np.bool_) & is_labelled,
        np.array([row.hit for row in rows], dtype=np.bool_),
        *numbers,
    )


def _chosen_cells(rows: Sequence[_Chosen], places: Mapping[str, int], positive: str) -> GroupCells:
    weight = np.array([row.weight for row in rows], dtype=np.float64)
    return GroupCells(
        np.array([places[row.part] for row in rows], dtype=np.intp),
        np.ones(len(rows), dtype=np.bool_),
        np.array([row.predicted == positive for row in rows], dtype=np.bool_),
        np.array([row.label == positive for row in rows], dtype=np.bool_),
        np.array([row.hit for row in rows], dtype=np.bool_),
        np.ones(len(rows)),
        np.zeros(len(rows)),
        weight,
        weight * weight,
    )


def _series(own: _Version, version: str, attribute: str, span: SeriesSpan) -> list[SeriesRow]:
    """Every figure of one version, by step and of the whole range."""
    by, per_entity = [attribute], own.per_entity
    whole = _figures(counted_metrics(own.cells, own.groups, by=by, per_entity=per_entity), attribute)
    points: dict[tuple[str, str], list[Estimated]] = {key: [UNKNOWN] * span.steps for key in whole}
    stepped = stepped_metrics(own.cells, own.steps, own.groups, by=by, per_entity=per_entity)
    for step, found in stepped.items():
        for key, figure in _figures(found, attribute).items():
            points[key][step] = figure
    method = "weighted" if own.is_asked else "plain"
    return [
        SeriesRow(
            SeriesKey("groups", statistic, "records", name, version),
            points[statistic, name],
            figure,
            "exact" if statistic.startswith("selection_rate") else method,
        )
        for (statistic, name), figure in whole.items()
    ]


def _figures(found: GroupMetrics, attribute: str) -> dict[tuple[str, str], Estimated]:
    """Figures by statistic and group; gaps and ratios by the attribute."""
    figures: dict[tuple[str, str], Estimated] = {
        (rate.metric, rate.group): Estimated(rate.value, rate.low, rate.high, rate.rows, float(rate.rows))
        if rate.rows
        else UNKNOWN
        for rate in found.rates
    }
    for metric in dict.fromkeys(rate.metric for rate in found.rates):
        gap = found.gap(metric)
        rows = sum(rate.rows for rate in found.of(metric))
        both = (
            ("gap", gap.value, gap.low, gap.high),
            ("ratio", gap.ratio, gap.ratio_low, gap.ratio_high),
        )
        for name, value, low, high in both:
            known = Estimated(value, low, high, rows, float(rows)) if gap.highest else UNKNOWN
            figures[f"{metric}_{name}", attribute] = known
    return figures
