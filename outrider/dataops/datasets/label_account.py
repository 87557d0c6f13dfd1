"""Account of every label at a commit: rows, or reasons."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, and_, exists, func, select
from typing_extensions import TypedDict

from outrider.dataops.state.improvement_tables import Label
from outrider.dataops.state.tables import Record, table_of

from .collect import Collected
from .label_fates import COLLECTED, LabelScope, label_fates
from .versions import Provenance

_RECORD, _LABEL = table_of(Record), table_of(Label)

MOST_REASONS = 10
WORDS = {
    "no_record": "no record of the model has the id, or it is still to come",
    "no_value": "no value of the target",
    "superseded": "replaced by a later label of the same record",
    "withdrawn": "withdrawn, or taken back by it: the record has no label",
    "earlier_version": "the record is in an earlier version",
    "quarantined": "the record was refused before",
    "not_flagged": "no assertion flagged the record, and nobody was asked about it",
    "refused": "refused now",
}


class LabelAccount(TypedDict):
    """Counts of a model's labels, new rows and reasons."""

    labels: int
    rows: int
    corrected: int
    """Rows of the dataset that got another label."""
    removed: int
    """Rows of the dataset whose label was withdrawn."""
    left_out: dict[str, int]
    """By key of ``WORDS``; with ``rows``, ``corrected`` and ``removed`` they add up to ``labels``."""
    refusals: dict[str, int]
    """Reasons of what was refused now, the most frequent ten."""
    of_other_models: int
    """Beside these: labels sent for a model without such a record, while this one has it."""


def label_account(
    connection: Connection,
    scope: LabelScope,
    *,
    found: Collected,
    committed: Iterable[Provenance] = (),
    rejected: Mapping[str, str] | None = None,
) -> LabelAccount:
    """Account before the rows of a commit are written."""
    query = label_fates(scope).subquery()
    counted = connection.execute(select(query.c.fate, func.count().label("labels")).group_by(query.c.fate))
    fates: dict[str, int] = {row.fate: row.labels for row in counted}
    removed = fates.get("removed", 0)
    collected = sum(fates.pop(fate, 0) for fate in COLLECTED)
    labelled = [row.record_id for row in committed if row.label_seq is not None]
    corrected = sum(record in found.corrected for record in labelled)
    left_out = {key: fates[key] for key in WORDS if fates.get(key)}
    if collected > len(labelled) + removed:
        left_out["refused"] = collected - len(labelled) - removed
    reasons = Counter(re.sub(r" \(block \d+\)", "", reason) for reason in (rejected or {}).values())
    return {
        "labels": sum(fates.values()) + collected,
        "rows": len(labelled) - corrected,
        "corrected": corrected,
        "removed": removed,
        "left_out": left_out,
        "refusals": dict(reasons.most_common(MOST_REASONS)),
        "of_other_models": int(connection.scalar(_astray(scope.model)) or 0),
    }


def account_words(account: LabelAccount) -> list[str]:
    """Lines that say where every label went.

    Examples
    --------
    >>> counts = {"labels": 3, "rows": 1, "corrected": 0, "removed": 0, "of_other_models": 0}
    >>> account_words(counts | {"left_out": {"no_value": 2}, "refusals": {}})
    ['3 labels, 1 new row', '2 left out: no value of the target']
    """
    new = account["rows"]
    changes = [f"{new} new row{'' if new == 1 else 's'}"]
    changes += [f"{count} corrected" for count in (account["corrected"],) if count]
    changes += [f"{count} removed" for count in (account["removed"],) if count]
    lines = [f"{account['labels']} labels, {', '.join(changes)}"]
    left_out = {key: count for key, count in account["left_out"].items() if key != "refused"}
    lines += [f"{count} left out: {WORDS[key]}" for key, count in left_out.items()]
    sentence = refused_sentence(account)
    weak = [f"{count:,} weak labels left out: {reason}" for reason, count in account["refusals"].items()]
    lines += [sentence] if sentence else weak
    if account["of_other_models"]:
        more = account["of_other_models"]
        lines.append(f"{more} more were sent for another model, which has no such record; this one has")
    return lines


def refused_sentence(account: LabelAccount) -> str:
    """Count of labelled rows that a commit left out, with reasons.

    Examples
    --------
    >>> reasons = {"inputs.x is null": 2}
    >>> refused_sentence({"rows": 1, "corrected": 0, "left_out": {"refused": 2}, "refusals": reasons})
    '2 of 3 labelled rows left out: inputs.x is null (2)'
    """
    refused = account["left_out"].get("refused", 0)
    if not refused:
        return ""
    offered = account["rows"] + account["corrected"] + refused
    reasons = "; ".join(f"{reason} ({count:,})" for reason, count in account["refusals"].items())
    return f"{refused:,} of {offered:,} labelled rows left out: {reasons}"


def _astray(model: str) -> Any:
    """Labels for another model that lacks the record, while this model has it."""
    own = and_(_RECORD.c.model == model, _RECORD.c.id == _LABEL.c.record_id)
    there = select(1).where(_RECORD.c.model == _LABEL.c.model, _RECORD.c.id == _LABEL.c.record_id)
    return (
        select(func.count())
        .select_from(_LABEL)
        .where(_LABEL.c.model != model, exists(select(1).where(own)), ~exists(there))
    )
