"""Group metrics of stored records and of dataset versions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection
from typing_extensions import TypedDict

from outrider.assertions import Batch
from outrider.assertions.comparison.typed_text import text_of, typed_texts
from outrider.behavioral_tests.fairness import UNLABELLED, GroupGap, GroupMetrics, GroupRate, group_metrics
from outrider.behavioral_tests.grouping import column_of
from outrider.dataops.ledger.class_words import NUMBER
from outrider.dataops.ledger.group_columns import attribute_of, columns_of
from outrider.dataops.ledger.minutes import DAY_US
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.monitor.http.declared import FieldsOf
from outrider.monitor.queries.newest_records import Words
from outrider.monitor.views.series.answer import SeriesReport, SeriesRequest, groups_json
from outrider.monitor.views.series.groups import GroupCut, answers_of, grouped_by
from outrider.monitor.views.series.span import DEFAULT_US, SeriesSpan

MOST_GROUPS = 100
"""With more groups a column names records, not kinds."""


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Metrics by group, with the records behind."""

    by: tuple[str, ...]
    positive: str
    records: int
    labelled: int
    asked: bool
    """Whether labels were chosen by a policy and weighted back to the traffic."""
    metrics: tuple[GroupMetrics, ...]
    """One entry for all, or one for selection rates and one for labelled figures."""
    version: str | None = None

    @property
    def rates(self) -> tuple[GroupRate, ...]:
        return tuple(rate for part in self.metrics for rate in part.rates)

    @property
    def gaps(self) -> tuple[GroupGap, ...]:
        return tuple(
            part.gap(metric)
            for part in self.metrics
            for metric in dict.fromkeys(rate.metric for rate in part.rates)
        )


GroupMetric: TypeAlias = Annotated[
    GroupRate,
    FieldsOf(GroupRate, "MetricFigures", without=("group", "metric"), more={"value": float | None}),
]
_GAP = FieldsOf(
    GroupGap,
    "GapFacts",
    more={
        "metric": str,
        **dict.fromkeys(("value", "low", "high", "ratio", "ratio_low", "ratio_high"), float | None),
    },
)
GapFacts: TypeAlias = Annotated[GroupGap, _GAP]


class GroupFacts(TypedDict):
    """Metrics of one group."""

    group: str
    records: int
    metrics: dict[str, GroupMetric]


class FairnessFigures(TypedDict):
    """Metrics by group, their gaps, and their records."""

    by: list[str]
    positive: str
    records: int
    labelled: int
    labels_were_asked_for: bool
    groups: list[GroupFacts]
    gaps: list[GapFacts]


class GroupGaps(TypedDict):
    """Gaps between the groups of one attribute for its rarest answer."""

    by: str
    positive: str
    version: str | None
    records: int
    gaps: list[GapFacts]


def rarest_answer(connection: Connection, model: str, attribute: str, asked: SeriesRequest) -> str:
    until = asked.now_us if asked.until_us is None else asked.until_us
    since = until - DEFAULT_US if asked.since_us is None else asked.since_us
    span = SeriesSpan(since // DAY_US * DAY_US, max(until + 1, since + 1), 1)
    answers = answers_of(connection, model, attribute, span)
    return next((one for one in answers if one not in (OTHERS, NUMBER)), "")


def newest_gaps(connection: Connection, model: str, *, now_us: int) -> list[GroupGaps]:
    asked = SeriesRequest(now_us=now_us)
    found: list[GroupGaps] = []
    for attribute in grouped_by(connection, model):
        if positive := rarest_answer(connection, model, attribute, asked):
            figures, _ = stored_figures(
                connection, model=model, by=columns_of(attribute), positive=positive, asked=asked
            )
            found.append(
                {
                    "by": attribute,
                    "positive": positive,
                    "version": figures.version,
                    "records": figures.records,
                    "gaps": list(figures.gaps),
                }
            )
    return found


def stored_figures(
    connection: Connection,
    *,
    model: str,
    by: Sequence[str],
    positive: str,
    asked: SeriesRequest,
    version: str | None = None,
    declared: Sequence[str] = (),
) -> tuple[GroupFigures, SeriesReport]:
    """Figures of one judged version in a range, and series of all; ``declared`` groupings may have no
    records. KeyError or ValueError for an unknown grouping or class."""
    _check_names(by)
    wanted = GroupCut(model, attribute_of(by), positive, version, declared)
    found, report = groups_json(connection, wanted, asked)
    metrics = () if found.metrics is None else (found.metrics,)
    figures = GroupFigures(
        tuple(by), positive, found.records, found.labelled, found.is_asked, metrics, found.version
    )
    return figures, report


def dataset_figures(batch: Batch, *, by: Sequence[str], positive: str, target: str) -> GroupFigures:
    """Figures of a dataset version's recorded answers against its labels; KeyError without answers."""
    _check_names(by)
    if not batch.has(f"outputs.{target}"):
        raise KeyError(
            f"this version holds inputs and labels, but no answers (outputs.{target}): ask a model about it "
            "with `outrider test --dataset` and expect.group_gap"
        )
    columns: dict[str, Any] = {
        _attribute(name): pa.array(text_of(batch, column_of(batch, name)), pa.string()) for name in by
    }
    columns |= {"weight": batch.column("weight", null=1.0), "entity": batch.arrow("entity")}
    answers = typed_texts(batch.arrow(f"outputs.{target}"))
    words = Words(answers)
    columns |= {"outputs.label": pa.array(words.of(answers), pa.string())}
    everything = Batch.from_columns(columns, model=batch.model, rows=batch.rows)
    said = (
        typed_texts(batch.arrow(f"label.{target}")) if batch.has(f"label.{target}") else [None] * batch.rows
    )
    truth = words.of(said)
    labelled = np.flatnonzero([value is not None for value in truth])
    labels = pa.array([truth[at] for at in labelled], pa.string())
    part = everything.take(labelled).with_columns({"label.label": labels})
    return _figures(everything, part, by, words.of_class(positive), asked=False)


def figures_json(found: GroupFigures) -> FairnessFigures:
    groups: dict[str, GroupFacts] = {}
    for part in found.metrics:
        for group, rows in part.rows.items():
            groups.setdefault(group, {"group": group, "records": rows, "metrics": {}})
    for rate in found.rates:
        groups[rate.group]["metrics"][rate.metric] = rate
    return {
        "by": list(found.by),
        "positive": found.positive,
        "records": found.records,
        "labelled": found.labelled,
        "labels_were_asked_for": found.asked,
        "groups": list(groups.values()),
        "gaps": list(found.gaps),
    }


def _figures(
    everything: Batch, labelled: Batch, by: Sequence[str], positive: str, *, asked: bool
) -> GroupFigures:
    parts: list[GroupMetrics] = []
    names = [_attribute(name) for name in by]
    if everything.rows:
        parts.append(group_metrics(everything, by=names, positive=positive))
        if len(parts[0].rows) > MOST_GROUPS:
            raise ValueError(
                f"{', '.join(by)} makes {len(parts[0].rows)} groups; at most {MOST_GROUPS} can be compared"
            )
    if labelled.rows:
        found = group_metrics(labelled, by=names, positive=positive)
        parts.append(found.without(UNLABELLED))
    return GroupFigures(tuple(by), positive, everything.rows, labelled.rows, asked, tuple(parts))


def _check_names(by: Sequence[str]) -> None:
    """Refuse a column that would stand for two."""
    names = [_attribute(name) for name in by]
    if len(set(names)) < len(names):
        raise KeyError(f"{', '.join(by)}: columns of distinct names expected, beside their inputs. or attrs.")


def _attribute(name: str) -> str:
    return f"attrs.{name.removeprefix('inputs.').removeprefix('attrs.')}"
