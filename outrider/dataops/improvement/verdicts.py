import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, case, func, insert, select

from outrider.dataops.models.lineage import VerdictOutcome, outcome_of
from outrider.dataops.state.improvement_tables import GateVerdict, ModelVersion
from outrider.dataops.state.tables import table_of

_MODEL = table_of(ModelVersion)
_VERDICT = table_of(GateVerdict)


@dataclass(frozen=True, slots=True)
class ShownBounds:
    name: str
    value: float
    low: float
    high: float
    most: float
    outcome: str
    """``passed``, ``failed``, or ``watched`` where undecided."""


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """A verdict of the promotion gate."""

    id: str
    model: str
    candidate: str
    champion: str
    promoted: bool
    reasons: list[str]
    evidence: dict[str, Any]
    created_us: int
    status: str | None = None
    """Of the candidate now."""

    @property
    def outcome(self) -> VerdictOutcome:
        return outcome_of(self.evidence, promoted=self.promoted, status=self.status)

    @property
    def bounds(self) -> list[ShownBounds]:
        evidence, policy = self.evidence, self.evidence["policy"]
        most = {"held_out": policy["max_drop"], "fresh": 0.0 - policy["min_gain"]}
        found = _pairs_shown((evidence[name], limit) for name, limit in most.items())
        live = evidence["shadow"]
        if live and live["entity_hours"]:
            word = "failed" if live["low"] > 0 else "passed"
            sides = live["difference"], live["low"], live["high"]
            found.append(ShownBounds("live records flagged", *sides, 0.0, word))
        found += _pairs_shown((one["pair"], one["max_drop"]) for one in evidence["named"])
        most_flagged = {one["assertion"]: one["max_share"] for one in policy["limits"]["flags"]}
        shares = evidence["limits"]["flags"]
        return found + [_shown(one["assertion"], one, most_flagged[one["assertion"]]) for one in shares]

    @property
    def policy(self) -> str:
        policy = self.evidence["policy"]
        return " ".join(filter(None, (policy["file"], policy["digest"][:12])))

    @property
    def failed_tests(self) -> list[tuple[str, str]]:
        return [
            (each["suite"], each["test"])
            for each in self.evidence["suites"]
            if each["candidate"]["failures"] > each["tolerance"] * each["candidate"]["cases"]
        ]


def _pairs_shown(pairs: Iterable[tuple[Mapping[str, Any] | None, float]]) -> list[ShownBounds]:
    return [
        _shown(pair["dataset"], pair["excess"], most)
        for pair, most in pairs
        if pair and not pair["fault"] and pair["excess"]["rows"]
    ]


def _shown(name: str, excess: Mapping[str, Any], most: float) -> ShownBounds:
    value, low, high = (
        math.inf if excess[side] is None else float(excess[side]) for side in ("value", "low", "high")
    )
    word = "passed" if high <= most else "failed" if low > most else "watched"
    value, low, high = (one if math.isfinite(one) else 1.0 for one in (value, low, high))
    return ShownBounds(name, value, low, high, most, word)


def keep_verdict(
    connection: Connection,
    *,
    model: str,
    candidate: str,
    champion: str,
    promoted: bool,
    reasons: Sequence[str],
    evidence: Mapping[str, Any],
    now_us: int,
) -> str:
    verdict = f"verdict_{uuid.uuid4().hex}"
    connection.execute(
        insert(_VERDICT).values(
            id=verdict,
            model=model,
            candidate=candidate,
            champion=champion,
            promoted=promoted,
            reasons=list(reasons),
            evidence=dict(evidence),
            created_us=now_us,
        )
    )
    return verdict


def list_verdicts(
    connection: Connection, model: str | None = None, *, limit: int, before_us: int | None = None
) -> list[VerdictRow]:
    query = _newest().limit(limit)
    if before_us is not None:
        query = query.where(_VERDICT.c.created_us < before_us)
    if model is not None:
        query = query.where(_VERDICT.c.model == model)
    return [VerdictRow(**row._mapping) for row in connection.execute(query)]


def of_jobs(connection: Connection, named: Sequence[str]) -> dict[str, VerdictRow]:
    job = _VERDICT.c.evidence["job"].as_string()
    rows = connection.execute(_newest().where(job.in_(named)))
    found = (VerdictRow(**row._mapping) for row in rows)
    return {str(one.evidence["job"]): one for one in found}


def newest_verdict(connection: Connection, model: str, candidate: str) -> VerdictRow | None:
    query = _newest().where(_VERDICT.c.model == model, _VERDICT.c.candidate == candidate).limit(1)
    row = connection.execute(query).first()
    return None if row is None else VerdictRow(**row._mapping)


def count_verdicts(connection: Connection) -> list[tuple[str, str, int]]:
    is_passed, is_undecided = (_VERDICT.c.evidence[name].as_boolean() for name in ("passed", "undecided"))
    result = case(
        (_VERDICT.c.promoted, "promoted"),
        (is_passed, "waiting"),
        (is_undecided, "undecided"),
        else_="refused",
    )
    rows = connection.execute(
        select(_VERDICT.c.model, result, func.count()).group_by(_VERDICT.c.model, result)
    )
    return [(model, word, count) for model, word, count in rows]


def _newest() -> Select[Any]:
    of_candidate = (_MODEL.c.model == _VERDICT.c.model) & (_MODEL.c.version == _VERDICT.c.candidate)
    joined = select(_VERDICT, _MODEL.c.status).select_from(_VERDICT.outerjoin(_MODEL, of_candidate))
    return joined.order_by(_VERDICT.c.created_us.desc(), _VERDICT.c.id)
