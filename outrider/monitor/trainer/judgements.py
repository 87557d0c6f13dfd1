"""Judgements on versions, kept with verdict, promotion and event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python
from sqlalchemy import Connection

from outrider.behavioral_tests import Outcome
from outrider.dataops import outbox
from outrider.dataops.datasets.versions import Version
from outrider.dataops.improvement import gate, jobs, suite_outcomes, watches
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.improvement.row_tries import count_try
from outrider.dataops.improvement.verdicts import VerdictRow, keep_verdict, newest_verdict
from outrider.dataops.models import registry as models
from outrider.monitor.settings.gate_sections import FrozenPolicy

from .context import JobContext
from .limit_evidence import asked_policy


@dataclass(frozen=True, slots=True)
class VersionJudgement:
    version: str
    evidence: gate.Evidence
    outcomes: Mapping[str, Sequence[Outcome]]
    judged_by: Sequence[tuple[Version, list[str]]]
    verdict: gate.Verdict
    promotes: bool
    reasons: Sequence[str]


def told(
    connection: Connection,
    job: JobRow,
    policy: FrozenPolicy,
    version: str,
    evidence: gate.Evidence,
    verdict: gate.Verdict,
) -> tuple[bool, list[str]]:
    """Decision of the gate, without a person: True for promotion, with the reasons."""
    # What was not trained on what went wrong has nothing to show but live traffic and its labels.
    is_unseen = "candidate" in job.params and not (policy.shadow_rows or policy.rolling)
    has_passed = verdict.outcome == "passed"
    # A policy without rows whose labels are known could hardly have refused it.
    is_returning = watches.was_rolled_back(connection, job.model, version)
    could_refuse = gate.could_refuse(asked_policy(policy), evidence)
    promotes = has_passed and policy.auto_promote and could_refuse and not (is_unseen or is_returning)
    reasons = list(verdict.reasons)
    if has_passed and not promotes:
        why = (
            "a watch rolled it back before"
            if is_returning
            else "gate.shadow_rows is 0: live traffic has not judged it"
            if is_unseen
            else "auto_promote is off"
            if could_refuse
            else "its margins allow any loss"
            if evidence.is_labelled
            else "no labelled row judged it"
        )
        reasons.append(f"{why}; `outrider promote {job.model} {version}` promotes it")
    if verdict.outcome == "undecided":
        is_of_rows = any(check.rows_missing for check in verdict.checks)
        reasons.append(
            f"once {'more rows are labelled' if is_of_rows else 'more records came'}, "
            f"`outrider retrain {job.model} --candidate {version}` asks again"
        )
    return promotes, reasons


def keep(
    connection: Connection,
    context: JobContext,
    job: JobRow,
    policy: FrozenPolicy,
    one: VersionJudgement,
    *,
    winner: str | None,
    is_own: bool,
    now: int,
) -> dict[str, Any]:
    """Keep a verdict; promote the ``winner`` or send the event of another version.

    Returns what the job's result says of it.
    """
    model, promotes, has_passed = job.model, one.version == winner, one.verdict.outcome == "passed"
    reasons = list(one.reasons)
    if winner is not None and not promotes:
        reasons.append(f"version {winner} is champion now")
    passed = {"passed": has_passed, "undecided": one.verdict.outcome == "undecided"}
    evidence = _json(gate.told_evidence(one.evidence, one.verdict)) | passed
    evidence["policy"] = _json(asked_policy(policy))
    if is_own:
        evidence["job"] = job.id
    before = newest_verdict(connection, model, one.version)
    for version, seen in one.outcomes.items():
        suite_outcomes.keep(connection, model, version, seen, source="gate", now_us=now)
    count_try(connection, model, [key for _, keys in one.judged_by for key in keys])
    champion = next(iter(one.outcomes))
    kept_as = keep_verdict(
        connection,
        model=model,
        candidate=one.version,
        champion=champion,
        promoted=promotes,
        reasons=reasons,
        evidence=evidence,
        now_us=now,
    )
    if promotes:
        replaced = models.champion(connection, model)
        promoted = models.promote(
            connection,
            model,
            one.version,
            now_us=now,
            reason="the promotion gate passed it",
            by="gate",
            verdict=kept_as,
            targets=context.targets,
        )
        records = context.model(model).watch.records
        watches.follow_promotion(connection, replaced, promoted, records=records, now_us=now)
    elif (is_own and job.params.get("trigger") != jobs.ROLLING) or not _is_told(before, champion, passed):
        _tell(connection, context, job, one, reasons, now)
    return {"candidate": one.version, "promoted": promotes, "reasons": reasons} | passed


def _tell(
    connection: Connection,
    context: JobContext,
    job: JobRow,
    one: VersionJudgement,
    reasons: Sequence[str],
    now: int,
) -> None:
    model, verdict = job.model, one.verdict
    kind = {"failed": "gate.refused", "undecided": "gate.undecided", "passed": "gate.waiting"}
    if verdict.outcome == "failed" and models.get(connection, model, one.version).status == "challenger":
        note = reasons[0].partition("\n")[0]
        models.set_status(connection, model, one.version, "refused", now_us=now, note=note)
    data: dict[str, object] = {"model": model, "version": one.version, "reasons": reasons}
    data["job"] = job.id
    if verdict.outcome == "undecided":
        data["rows_missing"] = max(check.rows_missing for check in verdict.checks)
    outbox.enqueue(connection, kind[verdict.outcome], data, targets=context.targets, now_us=now)


def _is_told(before: VerdictRow | None, champion: str, passed: Mapping[str, bool]) -> bool:
    """True where the last verdict was the same, against the same champion."""
    return (
        before is not None
        and before.champion == champion
        and all(before.evidence[name] == value for name, value in passed.items())
    )


def _json(evidence: gate.Evidence | gate.Policy) -> dict[str, Any]:
    """Fields for JSON, which has no infinity."""
    fields: dict[str, Any] = to_jsonable_python(evidence, inf_nan_mode="null")
    return fields
