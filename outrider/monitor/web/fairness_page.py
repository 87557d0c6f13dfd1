"""Page of groups.

Which columns name groups, and metrics drawn as dots with their intervals.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Engine, select

from outrider.assertions import Batch
from outrider.assertions.typed_text import plain_text
from outrider.behavioral_tests.fairness import Gap, GroupRate, Metric
from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.journal.stored_rows import read_rows
from outrider.dataops.state.tables import Record, table_of
from outrider.monitor.queries.fairness import GroupFigures, stored_figures

TITLES: dict[Metric, tuple[str, str]] = {
    "selection_rate": ("Selection rate", "share of the group that gets this answer; needs no label"),
    "tpr": ("True positive rate", "share of those who are it that get this answer"),
    "fpr": ("False positive rate", "share of those who are not it that get this answer"),
    "ppv": ("Precision", "share of those with this answer who are it"),
    "accuracy": ("Accuracy", "share of right answers"),
}
MOST_VALUES = 12
"""A column with more values in one block names no groups."""
RECENT = 2000
_RECORD = table_of(Record)


@dataclass(frozen=True, slots=True)
class MetricView:
    """Metric with its dots and its gap."""

    title: str
    explained: str
    rates: tuple[GroupRate, ...]
    gap: Gap


@dataclass(frozen=True, slots=True)
class FairnessPage:
    """Data of the page.

    ``figures`` is None where nothing was chosen or ``problem`` says why not.
    """

    columns: tuple[str, ...]
    answers: tuple[str, ...]
    by: str
    positive: str
    figures: GroupFigures | None = None
    metrics: tuple[MetricView, ...] = ()
    problem: str = ""


def read_fairness(engine: Engine, blocks: BlockSource, model: str, *, by: str, positive: str) -> FairnessPage:
    """Read the page.

    Without a choice the first column and the rarest answer are shown.
    """
    with engine.connect() as connection:
        answers = _answers(connection, model)
        columns = _columns(connection, blocks, model)
        by, positive = by or next(iter(columns), ""), positive or next(iter(answers), "")
        empty = FairnessPage(columns, answers, by, positive)
        if not by or not positive:
            return empty
        try:
            found = stored_figures(connection, blocks, model=model, by=[by], positive=positive)
        except (KeyError, ValueError) as error:
            return FairnessPage(columns, answers, by, positive, problem=str(error.args[0]))
    gaps = {gap.metric: gap for gap in found.gaps}
    views = tuple(
        MetricView(*TITLES[metric], tuple(rate for rate in found.rates if rate.metric == metric), gap)
        for metric, gap in gaps.items()
    )
    return FairnessPage(columns, answers, by, positive, found, views)


def _answers(connection: Connection, model: str) -> tuple[str, ...]:
    """Answers of the newest records, rarest first: what is selected is mostly the exception."""
    query = select(_RECORD.c.predicted).where(_RECORD.c.model == model, _RECORD.c.predicted.is_not(None))
    newest = connection.scalars(query.order_by(_RECORD.c.seq.desc()).limit(RECENT))
    counts = Counter(plain_text(answer) or "" for answer in newest)
    found = sorted(counts, key=lambda answer: (counts[answer], answer))
    return tuple(found) if len(found) <= MOST_VALUES else ()


def _columns(connection: Connection, blocks: BlockSource, model: str) -> tuple[str, ...]:
    """Columns of the newest block that could name groups."""
    query = select(_RECORD.c.seq).where(_RECORD.c.model == model).order_by(_RECORD.c.seq.desc()).limit(1)
    seq = connection.scalar(query)
    if seq is None:
        return ()
    try:
        batch = read_rows(blocks.get(seq).payload)
    except (LookupError, pa.ArrowException):
        return ()
    return tuple(_grouping(batch))


def _grouping(batch: Batch) -> Sequence[str]:
    table = batch.to_arrow()
    found = []
    for name in batch.names:
        kind = table.schema.field(name).type
        is_class = pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind)
        if name.startswith(("inputs.", "attrs.")) and is_class:
            values = len(pc.unique(table.column(name).drop_null()))
            found += [name] if 2 <= values <= MOST_VALUES else []
    return found
