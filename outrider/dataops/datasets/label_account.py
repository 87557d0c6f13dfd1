"""Account of every label at a commit: rows, or reasons."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from sqlalchemy import Connection, and_, case, exists, func, or_, select
from typing_extensions import TypedDict

from outrider.dataops.labels.weak_labels import PREFIX
from outrider.dataops.state.improvement_tables import DatasetRow, Label, LabelRequest, Quarantine
from outrider.dataops.state.tables import Flag, Record, table_of

from .versions import Provenance

_RECORD, _FLAG = table_of(Record), table_of(Flag)
_LABEL, _REQUEST = table_of(Label), table_of(LabelRequest)
_ROW, _QUARANTINE = table_of(DatasetRow), table_of(Quarantine)

MOST_REASONS = 10
WORDS = {
    "no_record": "no record of the model has the id, or it is still to come",
    "no_value": "no value of the target",
    "superseded": "replaced by a later label of the same record",
    "earlier_version": "the record is in an earlier version",
    "quarantined": "the record was refused before",
    "not_flagged": "no assertion flagged the record, and nobody was asked about it",
    "refused": "refused now",
}
"""Why a label is no new row."""


class LabelAccount(TypedDict):
    """Counts of a model's labels, new rows and reasons."""

    labels: int
    rows: int
    left_out: dict[str, int]
    """By key of ``WORDS``; with ``rows`` they add up to ``labels``."""
    refusals: dict[str, int]
    """Reasons of what was refused now, the most frequent ten."""
    of_other_models: int
    """Beside these: labels sent for a model without such a record, while this one has it."""


def label_account(
    connection: Connection,
    *,
    model: str,
    dataset: str,
    rows: Literal["flagged", "labelled"],
    upto_seq: int | None,
    committed: Iterable[Provenance] = (),
    rejected: Mapping[str, str] | None = None,
) -> LabelAccount:
    """Account before the rows of a commit are written.

    Parameters
    ----------
    committed
        Rows that will be.
    rejected
        Reasons of this commit by record.
    """
    found = connection.execute(_fates(model, dataset, rows, upto_seq)).all()
    fates: dict[str, int] = {row.fate: row.labels for row in found}
    collected = fates.pop("collected", 0)
    new = sum(not (row.label_source or "").startswith(PREFIX) for row in committed)
    left_out = {key: fates[key] for key in WORDS if fates.get(key)}
    if collected > new:
        left_out["refused"] = collected - new
    reasons = Counter(re.sub(r" \(block \d+\)", "", reason) for reason in (rejected or {}).values())
    return {
        "labels": sum(fates.values()) + collected,
        "rows": new,
        "left_out": left_out,
        "refusals": dict(reasons.most_common(MOST_REASONS)),
        "of_other_models": int(connection.scalar(_astray(model)) or 0),
    }


def account_words(account: LabelAccount) -> list[str]:
    """Lines that say where every label went.

    Examples
    --------
    >>> told = {"labels": 3, "rows": 1, "left_out": {"no_value": 2}, "refusals": {}, "of_other_models": 0}
    >>> account_words(told)
    ['3 labels, 1 new row', '2 left out: no value of the target']
    """
    new = account["rows"]
    lines = [f"{account['labels']} labels, {new} new row{'' if new == 1 else 's'}"]
    lines += [f"{count} left out: {WORDS[key]}" for key, count in account["left_out"].items()]
    lines += [f"  {count}: {reason}" for reason, count in account["refusals"].items()]
    if account["of_other_models"]:
        more = account["of_other_models"]
        lines.append(f"{more} more were sent for another model, which has no such record; this one has")
    return lines


def _fates(model: str, dataset: str, rows: str, upto_seq: int | None) -> Any:
    place = func.row_number().over(
        partition_by=_LABEL.c.record_id,
        order_by=[_LABEL.c.value.is_(None), _LABEL.c.seq.desc(), _LABEL.c.row.desc()],
    )
    last = 2**62 if upto_seq is None else upto_seq
    label = (
        select(_LABEL.c.record_id, _LABEL.c.value, place.label("place"))
        .where(_LABEL.c.model == model, _LABEL.c.seq <= last)
        .subquery()
    )

    def known(table: Any, *more: Any) -> Any:
        return exists(select(1).where(table.c.record_id == label.c.record_id, *more))

    has_record = exists(select(1).where(_RECORD.c.model == model, _RECORD.c.id == label.c.record_id))
    human = func.coalesce(_ROW.c.label_source, "").not_like(f"{PREFIX}%")
    flagged = or_(
        known(_FLAG, _FLAG.c.model == model, _FLAG.c.slot == "champion", _FLAG.c.seq <= last),
        known(_REQUEST, _REQUEST.c.model == model),
    )
    fate = case(
        (~has_record, "no_record"),
        (label.c.value.is_(None), "no_value"),
        (label.c.place > 1, "superseded"),
        (known(_ROW, _ROW.c.dataset == dataset, human), "earlier_version"),
        (known(_QUARANTINE, _QUARANTINE.c.dataset == dataset), "quarantined"),
        *([(~flagged, "not_flagged")] if rows == "flagged" else []),
        else_="collected",
    )
    counted = select(fate.label("fate")).select_from(label).subquery()
    return select(counted.c.fate, func.count().label("labels")).group_by(counted.c.fate)


def _astray(model: str) -> Any:
    """Labels of other models, without a record there, whose id is a record's of this one."""
    own = and_(_RECORD.c.model == model, _RECORD.c.id == _LABEL.c.record_id)
    there = select(1).where(_RECORD.c.model == _LABEL.c.model, _RECORD.c.id == _LABEL.c.record_id)
    return (
        select(func.count())
        .select_from(_LABEL)
        .where(_LABEL.c.model != model, exists(select(1).where(own)), ~exists(there))
    )
