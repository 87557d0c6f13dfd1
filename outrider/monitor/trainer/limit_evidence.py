"""Evidence on the limits of a policy: flags, agreement, time, bytes."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from sqlalchemy import Connection

from outrider.assertions import Batch, Predictor
from outrider.assertions.comparison import one_of_each
from outrider.assertions.comparison.verdict import stream_verdict
from outrider.assertions.statistics.difference_sequence import DifferenceSequence
from outrider.dataops.flags.registered_assertions import kinds_of_active
from outrider.dataops.flags.shadow_flags import common_records, flagged_by
from outrider.dataops.improvement import shadow_tests
from outrider.dataops.improvement.gate import SIGNIFICANCE, Policy
from outrider.dataops.improvement.gate_limits import (
    AgreementFound,
    BytesFound,
    FlagLimit,
    FlagShare,
    LimitEvidence,
    PolicyLimits,
    TimesFound,
    WrongMore,
)
from outrider.dataops.improvement.live_evidence import share_flagged
from outrider.dataops.improvement.shadow_tests import Trial
from outrider.dataops.ledger.answers import first_answered
from outrider.dataops.ledger.counters import read_counts
from outrider.dataops.ledger.records import entities_of
from outrider.dataops.state.database import now_us
from outrider.errors import nearest
from outrider.monitor.engine.single_version import SingleVersion
from outrider.monitor.settings.gate_sections import FrozenPolicy
from outrider.monitor.stream.answer_costs import read_costs

from .agreement import ComparisonProgress, Follower
from .context import JobContext
from .shadow_findings import labelled_answers
from .weights_size import weight_bytes

TIMED_ROWS = 64
ROUNDS = 41
TIMED_S = 20.0
"""Most rounds, and most seconds, of two models in turn."""


def asked_policy(policy: FrozenPolicy) -> Policy:
    """Policy in the form that the gate decides by."""
    return Policy(
        policy.max_drop,
        policy.min_gain,
        policy.shadow_rows,
        policy.requires,
        suites=policy.suites,
        tests=policy.tests,
        limits=PolicyLimits(
            [FlagLimit(one.assertion, one.max_share) for one in policy.flags],
            policy.agreement,
            policy.latency.p99_ms,
            policy.latency.max_ratio,
            policy.memory.max_mb,
            policy.memory.max_ratio,
        ),
        rolling_rows=policy.rolling.rows if policy.rolling else 0,
        rolling_p=policy.rolling.p if policy.rolling else 0.0,
        fault=policy.fault,
        file=policy.file,
        digest=policy.digest,
        text=policy.text,
    )


def limit_evidence(
    context: JobContext,
    connection: Connection,
    model: str,
    limits: PolicyLimits,
    versions: tuple[str, str],
    both: tuple[Predictor, Predictor],
    rows: Batch | None,
) -> LimitEvidence:
    """Evidence on the limits that are set; ``versions`` and ``both`` are champion and candidate,
    ``rows`` are timed."""
    found = LimitEvidence()
    champion, candidate = versions
    if limits.flags:
        found = replace(found, flags=_flag_shares(connection, model, limits, champion, candidate))
    if limits.agreement is not None:
        found = replace(found, agreement=_agreement(context, connection, limits, model, versions))
    if limits.p99_ms is not None or limits.time_ratio is not None:
        times = TimesFound()
        if limits.time_ratio is not None and rows is not None and rows.rows:
            times = times_in_turn(*both, rows, pause=context.check_stop)
        cost = read_costs(connection, model).get(candidate)
        if cost is not None:
            times = replace(times, answered=cost.answered, p99_ms=cost.p99_us / 1000)
        found = replace(found, times=times)
    if limits.max_mb is not None or limits.bytes_ratio is not None:
        found = replace(found, weights=BytesFound(*weight_bytes(context, model, versions)))
    return found


def _flag_shares(
    connection: Connection, model: str, limits: PolicyLimits, champion: str, candidate: str
) -> list[FlagShare]:
    common = common_records(connection, model, champion, candidate)
    counts = read_counts(connection, model, candidate)
    shares = []
    for limit in limits.flags:
        flagged = flagged_by(connection, model, candidate, limit.assertion, common)
        value, low, high, stretches = share_flagged(common, flagged, error=SIGNIFICANCE)
        if len(limits.flags) > 1:  # as many chances to be refused by chance
            _, low, _, _ = share_flagged(common, flagged, error=SIGNIFICANCE / len(limits.flags))
        thinned = counts.get(f"thinned:{limit.assertion}", 0)
        rows, count = len(flagged), int(flagged.sum())
        judged = min(rows, counts.get(f"judged:{limit.assertion}", 0))
        shares.append(FlagShare(limit.assertion, rows, judged, count, stretches, value, low, high, thinned))
    return shares


def unknown_assertions(connection: Connection, model: str, limits: PolicyLimits) -> list[str]:
    """Sentences on assertions with a limit that judge no challenger."""
    if not limits.flags:
        return []
    kinds = kinds_of_active(connection, model)
    of_records = [name for name, kind in kinds.items() if kind == "assertion"]
    return [
        f"gate.flags names {one.assertion!r}, "
        + (
            "a live test, which asks the champion alone"
            if one.assertion in kinds
            else f"which is no assertion of the model{nearest(one.assertion, of_records)}"
        )
        for one in limits.flags
        if one.assertion not in of_records
    ]


def _agreement(
    context: JobContext, connection: Connection, limits: PolicyLimits, model: str, versions: tuple[str, str]
) -> AgreementFound | None:
    champion, candidate = versions
    settings = context.model(model)
    tests = shadow_tests.newest(connection, model, candidate)
    trial = next((test for test in tests if test.champion == champion), None)
    if trial is None:
        first = first_answered(connection, model, candidate)
        if first is None:
            return None
        trial = Trial(model, candidate, now_us(), champion, first - 1, None, None, None, "", {})
    progress = ComparisonProgress.of(trial)
    follower = Follower(context.engine, settings)
    while follower.advance(trial, progress):
        context.check_stop()
    margin = 1.0 - settings.shadow.agreement
    if not progress.comparison.measures:
        return None
    verdict = stream_verdict(progress.comparison, margin=margin, agree=settings.shadow.agree)
    by = verdict.deciding
    found = AgreementFound(verdict.word, by.value, by.low, by.high, by.rows, margin, verdict.more)
    if limits.agreement != "not worse" or verdict.word in ("same", "close"):
        return found
    return replace(found, wrong=_wrong(connection, trial, progress.seq, settings.target))


def _wrong(connection: Connection, trial: Trial, until: int, target: str) -> WrongMore:
    """Labelled records on which the candidate is wrong more often, one of each entity."""
    labelled = labelled_answers(connection, trial, until, target)
    entities = entities_of(connection, trial.model, labelled.keys)
    names = [entities.get(key) or "" for key in labelled.keys]
    rows, _ = one_of_each(names, labelled.keys, frozenset())
    worse = (labelled.champion.astype(np.float64) - labelled.challenger)[rows]
    # Half of the error: agreement, which makes this needless, has the other.
    low, high = DifferenceSequence.of(worse, np.ones(len(worse))).interval(1 - SIGNIFICANCE)
    return WrongMore(len(worse), float(worse.mean()) if len(worse) else 0.0, low, high)


def times_in_turn(
    champion: Predictor, candidate: Predictor, rows: Batch, *, pause: Callable[[], None] = lambda: None
) -> TimesFound:
    """Candidate's time by the champion's on the same rows, asked in turn; bounds of the sign test on
    the median of rounds, each one-sided at ``SIGNIFICANCE``."""
    from scipy.stats import binom

    some = rows.slice(0, min(rows.rows, TIMED_ROWS))
    ratios: list[float] = []
    until = time.perf_counter() + TIMED_S
    for turn in range(ROUNDS + 1):
        pause()
        spent = [0.0, 0.0]
        for at in (0, 1) if turn % 2 else (1, 0):
            spent[at] = _seconds((champion, candidate)[at], some)
        if turn:  # the first warms up
            ratios.append(spent[1] / max(spent[0], 1e-9))
        if time.perf_counter() > until:
            break
    if not ratios:
        return TimesFound()
    ordered = np.sort(ratios)
    beyond = int(binom.ppf(SIGNIFICANCE, len(ratios), 0.5)) - 1  # rank of the bounds, from either end
    if beyond < 0:
        return TimesFound(rounds=len(ratios), ratio=float(np.median(ordered)))
    low, high = float(ordered[beyond]), float(ordered[-1 - beyond])
    return TimesFound(rounds=len(ratios), ratio=float(np.median(ordered)), low=low, high=high)


def _seconds(predictor: Predictor, rows: Batch) -> float:
    """Time of an answer; an engine's own clock, since transport would hide a difference."""
    if isinstance(predictor, SingleVersion):
        before = predictor.seconds
        predictor(rows)
        return predictor.seconds - before
    start = time.perf_counter()
    predictor(rows)
    return time.perf_counter() - start
