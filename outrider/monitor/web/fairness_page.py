"""Page of groups: columns, and metrics as dots with intervals."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Engine

from outrider.assertions import Batch
from outrider.assertions.typed_text import plain_text
from outrider.behavioral_tests.fairness import GroupGap, GroupRate, Metric
from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.journal.stored_rows import read_rows
from outrider.dataops.ledger.records import newest_block, newest_predictions
from outrider.monitor.queries.fairness import GroupFigures, stored_figures

TITLES: dict[Metric, tuple[str, str]] = {
    "selection_rate": ("Selection rate", "share of the group that gets this answer; needs no label"),
    "tpr": ("True positive rate", "share of the records with this label that get this answer"),
    "fpr": ("False positive rate", "share of the records with another label that get this answer"),
    "ppv": ("Precision", "share of those with this answer who are it"),
    "accuracy": ("Accuracy", "share of right answers"),
}
MOST_VALUES = 12
"""A column with more values in one block names no groups."""
RECENT = 2000


@dataclass(frozen=True, slots=True)
class MetricView:
    """Metric with its dots and its gap."""

    title: str
    explained: str
    rates: tuple[GroupRate, ...]
    gap: GroupGap


@dataclass(frozen=True, slots=True)
class FairnessPage:
    """Page data; ``figures`` None where unchosen, or for ``problem``."""

    columns: tuple[str, ...]
    answers: tuple[str, ...]
    by: str
    positive: str
    figures: GroupFigures | None = None
    metrics: tuple[MetricView, ...] = ()
    problem: str = ""


def read_fairness(engine: Engine, blocks: BlockSource, model: str, *, by: str, positive: str) -> FairnessPage:
    """Read the page, by default first column and rarest answer."""
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
    newest = newest_predictions(connection, model, limit=RECENT)
    counts = Counter(plain_text(answer) or "" for answer in newest)
    found = sorted(counts, key=lambda answer: (counts[answer], answer))
    return tuple(found) if len(found) <= MOST_VALUES else ()


def _columns(connection: Connection, blocks: BlockSource, model: str) -> tuple[str, ...]:
    """Columns of the newest block that could name groups."""
    seq = newest_block(connection, model)
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
