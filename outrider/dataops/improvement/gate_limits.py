"""Limits of a policy beside the champion: flags, agreement, latency, memory.

Each must be shown to be kept: what evidence leaves open is undecided, what is missing refuses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .gate_check import Check

LEAST_TIMED = 1000
"""Records needed for a 99th percentile."""
ENOUGH_TIMED = 10_000
"""Records from which a slow first pass no longer moves the 99th percentile."""
MB = 1_000_000
Alike = Literal["same", "close", "not worse"]


@dataclass(frozen=True, slots=True)
class FlagLimit:
    """Largest share of live records that an assertion may flag."""

    assertion: str
    max_share: float


@dataclass(frozen=True, slots=True)
class PolicyLimits:
    """Limits that a candidate must keep to; None where not limited."""

    flags: Sequence[FlagLimit] = ()
    agreement: Alike | None = None
    p99_ms: float | None = None
    time_ratio: float | None = None
    max_mb: float | None = None
    bytes_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class FlagShare:
    """Share of common live records that an assertion flags with the candidate's answers.

    ``value``, ``low`` and ``high`` speak of the mean over ``stretches`` of six hours of an entity; bounds
    are one-sided, and all lower ones hold together.
    """

    assertion: str
    rows: int
    judged: int
    """Records that the assertion was asked about."""
    flagged: int
    stretches: int
    value: float
    low: float
    high: float
    thinned: int = 0
    """Further flags of a storm, whose records are unknown."""


@dataclass(frozen=True, slots=True)
class WrongMore:
    """Labelled live records that the candidate gets wrong and the champion right, one per entity, with
    one-sided bounds."""

    records: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AgreementFound:
    """Share of live records on which candidate and champion answer alike, with its interval."""

    word: str
    value: float
    low: float
    high: float
    rows: int
    margin: float
    more: int | None = None
    """About so many more records decide; None where unknown."""
    wrong: WrongMore | None = None
    """Where answers that differ may be right."""


@dataclass(frozen=True, slots=True)
class TimesFound:
    """Times that answers of the candidate take."""

    answered: int = 0
    p99_ms: float | None = None
    """Per record, over ``answered`` live ones."""
    rounds: int = 0
    ratio: float | None = None
    """Candidate's time over the champion's, median of ``rounds`` on the same rows."""
    low: float = 0.0
    high: float | None = None
    """One-sided bounds of the median; None where nothing bounds it."""


@dataclass(frozen=True, slots=True)
class BytesFound:
    """Bytes of the weights of both versions."""

    champion: int | None
    candidate: int | None


@dataclass(frozen=True, slots=True)
class LimitEvidence:
    """Measurements for the limits of the policy."""

    flags: Sequence[FlagShare] = ()
    agreement: AgreementFound | None = None
    times: TimesFound | None = None
    weights: BytesFound | None = None


def judge_limits(limits: PolicyLimits, found: LimitEvidence, *, max_drop: float) -> Iterator[Check]:
    shares = {one.assertion: one for one in found.flags}
    for limit in limits.flags:
        yield _flags(limit, shares.get(limit.assertion))
    if limits.agreement is not None:
        yield _agreement(limits.agreement, max_drop, found.agreement)
    times = found.times or TimesFound()
    if limits.p99_ms is not None:
        yield _p99(limits.p99_ms, times)
    if limits.time_ratio is not None:
        yield _time_ratio(limits.time_ratio, times)
    if limits.max_mb is not None or limits.bytes_ratio is not None:
        yield _bytes(limits, found.weights or BytesFound(None, None))


def _flags(limit: FlagLimit, found: FlagShare | None) -> Check:
    name = f"flags of {limit.assertion}"
    if found is None or not found.judged:
        return Check(name, False, f"{name}: it was asked about no live record with the candidate's answer")
    storm = f"; {found.thinned} more flags of storms, whose records are not known" if found.thinned else ""
    if found.judged < found.rows:
        storm += f"; only {found.judged} were judged by it"
    told = (
        f"{name}: {found.flagged} of {found.rows} live records with the candidate; over {found.stretches} "
        f"stretches of six hours of entities {found.value:.2%}, {found.low:.2%} to {found.high:.2%}{storm}: "
        f"up to {limit.max_share:.2%} is allowed"
    )
    is_passed = found.high <= limit.max_share and not storm
    return Check(name, is_passed, told, is_open=found.low <= limit.max_share)


def _agreement(wanted: Alike, max_drop: float, found: AgreementFound | None) -> Check:
    if found is None or not found.rows:
        return Check("agreement", False, "agreement: no live record that both answered can be compared")
    told = (
        f"agreement: the answers are {found.word}, other on {found.value:.2%} of {found.rows} live records "
        f"beyond noise ({found.low:.2%} to {found.high:.2%}): {wanted!r} within {found.margin:.2%} is needed"
    )
    if wanted == "not worse" and found.wrong is not None:
        wrong = found.wrong
        told += (
            f"; of {wrong.records} labelled ones {wrong.value:+.2%} more are wrong with the candidate "
            f"({wrong.low:+.2%} to {wrong.high:+.2%}), up to {max_drop:+.2%} is allowed"
        )
        return Check("agreement", wrong.high <= max_drop, told, is_open=wrong.low <= max_drop)
    if found.word == "undecided":
        more = f"; about {found.more} more records may decide" if found.more else ""
        return Check("agreement", False, told + more, is_open=True)
    return Check("agreement", found.word == "same" or (found.word == "close" and wanted != "same"), told)


def _p99(most: float, found: TimesFound) -> Check:
    if found.p99_ms is None:
        return Check("latency", False, "latency: the candidate answered no live record")
    told = (
        f"latency: 99 % of {found.answered} live records took at most {found.p99_ms:.3g} ms each with the "
        f"candidate: up to {most:g} ms is allowed"
    )
    if found.answered < LEAST_TIMED:
        return Check("latency", False, f"{told}, and {LEAST_TIMED} records tell", is_open=True)
    if found.p99_ms <= most:
        return Check("latency", True, told)
    return Check("latency", False, told, is_open=found.answered < ENOUGH_TIMED)


def _time_ratio(most: float, found: TimesFound) -> Check:
    if found.ratio is None:
        return Check("latency", False, "latency: there is no labelled row on which both could be timed")
    high = "any" if found.high is None else f"{found.high:.2f}"
    told = (
        f"latency: the candidate takes {found.ratio:.2f} times the champion's time, median of {found.rounds} "
        f"rounds in turn ({found.low:.2f} to {high}): up to {most:g} is allowed"
    )
    is_passed = found.high is not None and found.high <= most
    return Check("latency", is_passed, told, is_open=found.low <= most)


def _bytes(limits: PolicyLimits, found: BytesFound) -> Check:
    if found.candidate is None or (limits.bytes_ratio is not None and not found.champion):
        return Check("memory", False, "memory: the bytes of the weights are not known")
    told = [f"memory: the candidate's weights take {found.candidate / MB:.3g} MB"]
    kept = []
    if limits.max_mb is not None:
        kept.append(found.candidate <= limits.max_mb * MB)
        told.append(f"up to {limits.max_mb:g} MB is allowed")
    if limits.bytes_ratio is not None and found.champion:
        ratio = found.candidate / found.champion
        kept.append(ratio <= limits.bytes_ratio)
        told.append(f"{ratio:.3g} of the champion's, up to {limits.bytes_ratio:g} is allowed")
    return Check("memory", all(kept), ", ".join(told))
