"""Findings of a shadow test beside agreement.

Labels, flags, behavioral tests, cost and size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, func, select

from outrider.assertions import Batch
from outrider.assertions.matching import is_numeric, matches
from outrider.assertions.typed_text import read_typed, typed_texts
from outrider.dataops.improvement.recommendation import DiscordantPairs, ShadowTestFindings, recommend
from outrider.dataops.improvement.shadow_tests import Trial
from outrider.dataops.labels.estimates import evenly_drawn
from outrider.dataops.state.disabled_versions import left_out
from outrider.dataops.state.tables import Answer, AssertionRow, Flag, Label, Record, SuiteOutcome, table_of
from outrider.monitor.settings.config import ModelSettings
from outrider.monitor.stream.answer_costs import read_costs

from .agreement import ComparisonProgress, agreement_rows, deciding

_ANSWER, _ASSERTION, _FLAG = (table_of(t) for t in (Answer, AssertionRow, Flag))
_LABEL, _RECORD, _OUTCOME = (table_of(t) for t in (Label, Record, SuiteOutcome))
MOST_LABELS = 5_000
MOST_FLAGS = 50_000
"""Newest labels and flags that are looked at."""


def gather(
    connection: Connection,
    trial: Trial,
    progress: ComparisonProgress,
    settings: ModelSettings,
    *,
    smaller: float | None = None,
) -> dict[str, Any]:
    """Findings of a test so far, with its recommendation.

    As they are saved and shown.

    Parameters
    ----------
    smaller
        Bytes of the challenger's weights by those of the champion's.
    """
    margin = 1.0 - settings.shadow.agreement
    cost = read_costs(connection, trial.model)
    one, other = cost.get("champion"), cost.get(trial.version)
    found = ShadowTestFindings(
        agreement=deciding(progress.comparison, margin=margin),
        has_common=bool(progress.comparison.measures) or not progress.blocks,
        labels=_labels(connection, trial, progress.seq, settings.target),
        flags=_flags(connection, trial, progress),
        regressions=_regressions(connection, trial),
        smaller=smaller,
        out=left_out(connection, trial.model).get(trial.version, ""),
    )
    advice, reasons = recommend(found, margin=margin)
    return {
        "progress": progress.to_dict(),
        "records": progress.rows,
        "agreement": agreement_rows(progress.comparison, margin=margin),
        "required": settings.shadow.agreement,
        "labels": asdict(found.labels),
        "flags": asdict(found.flags) | _flag_counts(connection, trial, progress.seq),
        "regressions": list(found.regressions),
        "cost": {
            "champion": None if one is None else asdict(one),
            "challenger": None if other is None else asdict(other),
        },
        "smaller": found.smaller,
        "advice": advice,
        "reasons": reasons,
    }


def _labels(connection: Connection, trial: Trial, until: int, target: str) -> DiscordantPairs:
    """Labelled records that one of the two gets wrong.

    Labels that were bought where the champion looked doubtful hold more of its errors than traffic does: of
    those asked for, only what was drawn uniformly counts.
    """
    drawn = evenly_drawn(connection, trial.model)
    query = (
        select(_LABEL.c.record_id, _LABEL.c.value, _RECORD.c.seq)
        .join(_RECORD, (_RECORD.c.model == _LABEL.c.model) & (_RECORD.c.id == _LABEL.c.record_id))
        .where(
            _LABEL.c.model == trial.model,
            _LABEL.c.value.is_not(None),
            _RECORD.c.seq > trial.after_seq,
            _RECORD.c.seq <= until,
        )
        .order_by(_LABEL.c.seq.desc(), _LABEL.c.row.desc())
        .limit(MOST_LABELS)
    )
    truth: dict[int, dict[str, str]] = {}
    for row in connection.execute(query):
        truth.setdefault(row.seq, {}).setdefault(row.record_id, row.value)  # the newest counts
    values: list[Any] = []
    answers: tuple[list[Any], list[Any]] = [], []
    for seq, labels in truth.items():
        one, other = (
            _said(connection, trial.model, version, seq, target)
            for version in (trial.champion, trial.version)
        )
        known = [key for key in labels if key in one and key in other and drawn.get(key, True)]
        values += [read_typed(labels[key]) for key in known]
        answers[0].extend(one[key] for key in known)
        answers[1].extend(other[key] for key in known)
    if is_numeric(answers[0]) or is_numeric(answers[1]):
        return DiscordantPairs(0, 0, 0)  # near or far, but neither right nor wrong
    old, new = (matches(each, values) for each in answers)
    return DiscordantPairs(len(values), int((new & ~old).sum()), int((old & ~new).sum()))


def _said(connection: Connection, model: str, version: str, seq: int, target: str) -> Mapping[str, Any]:
    payload = connection.scalar(
        select(_ANSWER.c.payload).where(
            _ANSWER.c.model == model, _ANSWER.c.version == version, _ANSWER.c.seq == seq
        )
    )
    if payload is None:
        return {}
    answer = Batch.from_ipc(payload)
    name = f"outputs.{target}"
    said = typed_texts(answer.arrow(name)) if answer.has(name) else [None] * answer.rows
    return dict(zip(answer.keys.tolist(), map(read_typed, said), strict=True))


def _flags(connection: Connection, trial: Trial, progress: ComparisonProgress) -> DiscordantPairs:
    """Records on which assertions fire for one of the two; live tests ask the champion alone."""
    query = (
        select(_FLAG.c.slot, _FLAG.c.record_id)
        .where(*_judged_flags(trial, progress.seq))
        .order_by(_FLAG.c.seq.desc())
        .limit(MOST_FLAGS)
    )
    fired: dict[str, set[str]] = {"champion": set(), trial.version: set()}
    for row in connection.execute(query):
        fired[row.slot].add(row.record_id)
    one, other = fired["champion"], fired[trial.version]
    return DiscordantPairs(progress.rows, len(one - other), len(other - one))


def _flag_counts(connection: Connection, trial: Trial, until: int) -> dict[str, Any]:
    """Flags of both by assertion."""
    query = (
        select(_FLAG.c.assertion, _FLAG.c.slot, func.count().label("flags"))
        .where(*_judged_flags(trial, until))
        .group_by(_FLAG.c.assertion, _FLAG.c.slot)
        .order_by(_FLAG.c.assertion)
    )
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(query):
        side = "champion" if row.slot == "champion" else "challenger"
        found.setdefault(row.assertion, {"champion": 0, "challenger": 0})[side] = row.flags
    return {"assertions": found}


def _judged_flags(trial: Trial, until: int) -> Sequence[Any]:
    """Flags of blocks that both have answered: under load challengers are not asked, champions are."""
    live_tests = select(_ASSERTION.c.name).where(
        _ASSERTION.c.model == trial.model, _ASSERTION.c.kind == "live_test"
    )
    answered = [
        _FLAG.c.seq.in_(
            select(_ANSWER.c.seq).where(
                _ANSWER.c.model == trial.model,
                _ANSWER.c.version == version,
                _ANSWER.c.seq > trial.after_seq,
                _ANSWER.c.seq <= until,
            )
        )
        for version in (trial.champion, trial.version)
    ]
    return (
        *answered,
        _FLAG.c.model == trial.model,
        _FLAG.c.slot.in_(("champion", trial.version)),
        _FLAG.c.seq > trial.after_seq,
        _FLAG.c.seq <= until,
        _FLAG.c.assertion.not_in(live_tests),
    )


def _regressions(connection: Connection, trial: Trial) -> list[str]:
    """Behavioral tests that the champion passes and the challenger fails."""
    query = select(_OUTCOME.c.version, _OUTCOME.c.suite, _OUTCOME.c.test, _OUTCOME.c.status).where(
        _OUTCOME.c.model == trial.model, _OUTCOME.c.version.in_((trial.champion, trial.version))
    )
    status = {(row.version, row.suite, row.test): row.status for row in connection.execute(query)}
    return sorted(
        test
        for (version, suite, test), said in status.items()
        if version == trial.version
        and said in ("failed", "error")
        and status.get((trial.champion, suite, test)) == "passed"
    )
