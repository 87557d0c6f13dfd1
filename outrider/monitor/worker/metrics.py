import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.dataops.flags.live_rates import LiveRateView
from outrider.dataops.flags.rate_limit import NewFlags
from outrider.dataops.judges import PREFIX, Reply
from outrider.dataops.ledger.backfill import SLOT as BACKFILL
from outrider.dataops.ledger.commit import Effects
from outrider.monitor.host.client import Offered
from outrider.monitor.metrics.catalogue import OTHER
from outrider.monitor.metrics.registry import Metrics

from .pipeline import CHAMPION
from .stages.work import Timings

LIVE_SLOT = "live.endpoint"


class WorkerMetrics:
    """Samples of committed effects; called after the commit, so that a retry counts nothing twice."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._suspended: set[tuple[str, str]] = set()

    def declare(self, model: str, offered: Sequence[Offered], slices: Sequence[str] = ()) -> None:
        """Create the series of a champion's assertions and live tests at 0, because a rate needs a start."""
        for judge in offered:
            known = {"model": model, "assertion": judge.name, "level": judge.level, "role": CHAMPION}
            self._metrics.declare(known)
            if judge.kind == "live_test":
                self._metrics.declare({"model": model, "test": judge.name})
        for part in (*slices, OTHER) if slices else ():
            self._metrics.counter("outrider_slice_records_total").labels(model=model, slice=part)
            flags = self._metrics.counter("outrider_slice_flags_total")
            for judge in offered:
                flags.labels(model=model, slice=part, assertion=judge.name)

    def slices(self, effects: Effects, found: Iterable[NewFlags], named: Collection[str]) -> None:
        """Count a committed unit's records and flags by slice; only configured slices become labels."""
        if not named or effects.owner != CHAMPION:
            return
        metrics, model = self._metrics, effects.model
        records = Counter(part if part in named else OTHER for part in effects.records["slice"])
        for part, count in records.items():
            metrics.counter("outrider_slice_records_total").labels(model=model, slice=part).inc(count)
        for new in found:
            part = new.slice if new.slice in named else OTHER
            flags = metrics.counter("outrider_slice_flags_total")
            flags.labels(model=model, slice=part, assertion=new.assertion).inc(new.flags)

    def folded(self, model: str, records: Mapping[str, int]) -> None:
        for dimension, count in records.items():
            self._metrics.counter("outrider_values_folded_total").labels(
                model=model, dimension=dimension
            ).inc(count)

    def committed(self, effects: Effects, timings: Timings, offered: Sequence[Offered]) -> None:
        metrics, model = self._metrics, effects.model
        role = role_of(effects.slot)
        metrics.counter("outrider_records_judged_total").labels(model=model, role=role).inc(
            effects.counts["records"]
        )
        if role == CHAMPION:
            self._champion(effects)
        metrics.counter("outrider_late_records_total").labels(model=model, role=role).inc(
            effects.counts["late"]
        )
        metrics.counter("outrider_records_ahead_total").labels(model=model).inc(effects.counts["ahead"])
        for name, count in Counter(effects.weak_labels["assertion"]).items():
            metrics.counter("outrider_weak_labels_total").labels(model=model, role=role, assertion=name).inc(
                count
            )
        self._tally(effects, {o.name: o.level for o in offered})
        for name in effects.strikes["assertion"]:
            metrics.counter("outrider_assertion_strikes_total").labels(model=model, assertion=name).inc()
        for stage, seconds in timings.stages.items():
            metrics.histogram("outrider_block_seconds").labels(stage=stage).observe(seconds)
        for name, seconds in timings.tasks.items():
            spent = metrics.counter("outrider_assertion_seconds_total").labels(model=model, assertion=name)
            spent.inc(seconds)

    def _tally(self, effects: Effects, levels: Mapping[str, str]) -> None:
        metrics, model, role = self._metrics, effects.model, role_of(effects.slot)
        for name, count in effects.counts.items():
            kind, _, rest = name.partition(":")
            if kind == "flags" and rest in levels:
                metrics.counter("outrider_flags_total").labels(
                    model=model, role=role, assertion=rest, level=levels[rest]
                ).inc(count)
            elif kind == "shed":
                self.outcome(model, f"shed_{rest}", count)
            elif name == "backfilled":
                self.outcome(model, name, count)
            elif kind == "thinned":
                metrics.counter("outrider_flags_thinned_total").labels(model=model, assertion=rest).inc(count)
            elif kind == "live":
                test, _, outcome = rest.rpartition(":")
                metrics.counter("outrider_live_questions_total").labels(
                    model=model, test=test, outcome=outcome
                ).inc(count)

    def live_rates(self, model: str, rates: Iterable[LiveRateView]) -> None:
        for view in rates:
            ratio = self._metrics.gauge("outrider_live_test_failure_ratio")
            for figure in ("rate", "low", "high", "tolerance"):
                ratio.labels(model=model, test=view.test, figure=figure).set(getattr(view, figure))
            alarm = self._metrics.gauge("outrider_live_test_alarm").labels(model=model, test=view.test)
            alarm.set(0 if view.alarm_us is None else 1)

    def no_live_rates(self, model: str, tests: Iterable[Offered]) -> None:
        self.live_rates(
            model,
            [
                LiveRateView(
                    model=model,
                    test=test.name,
                    revision=test.revision,
                    version="",
                    asked=0,
                    failed=0,
                    rate=0.0,
                    low=0.0,
                    high=1.0,
                    tolerance=test.tolerance,
                    alarm_us=None,
                    updated_us=0,
                )
                for test in tests
            ],
        )

    def endpoint_up(self, model: str, *, is_up: bool) -> None:
        self._metrics.gauge("outrider_live_endpoint_up").labels(model=model).set(1 if is_up else 0)

    def declare_judge(self, model: str, judge: str) -> None:
        self._metrics.declare({"model": model, "judge": judge})

    def judge(self, model: str, judge: str, outcomes: Mapping[str, int]) -> None:
        for outcome, count in outcomes.items():
            self._metrics.counter("outrider_judge_questions_total").labels(
                model=model, judge=judge, outcome=outcome
            ).inc(count)

    def judge_replies(self, model: str, judge: str, replies: Iterable[Reply]) -> None:
        for reply in replies:
            self._metrics.counter("outrider_judge_tokens_total").labels(model=model, judge=judge).inc(
                reply.tokens
            )
            self._metrics.histogram("outrider_judge_seconds").labels(model=model, judge=judge).observe(
                reply.seconds
            )

    def judge_lag(self, model: str, judge: str, seconds: float) -> None:
        self._metrics.gauge("outrider_judge_lag_seconds").labels(model=model, judge=judge).set(seconds)

    def _champion(self, effects: Effects) -> None:
        metrics, model = self._metrics, effects.model
        counts = effects.counts
        metrics.counter("outrider_records_duplicate_total").labels(model=model).inc(counts["duplicates"])
        metrics.counter("outrider_records_conflict_total").labels(model=model).inc(counts["conflicts"])
        metrics.counter("outrider_records_redacted_total").labels(model=model).inc(counts["redacted"])
        metrics.counter("outrider_labels_joined_total").labels(model=model).inc(counts["labels"])
        for reason in effects.dead_letters["reason"]:
            metrics.counter("outrider_dead_letters_total").labels(model=model, reason=reason).inc()

    def windows(self, model: str, role: str, *, entities: int, rows: int, nbytes: int) -> None:
        self._metrics.gauge("outrider_window_entities").labels(model=model, role=role).set(entities)
        self._metrics.gauge("outrider_window_rows").labels(model=model, role=role).set(rows)
        self._metrics.gauge("outrider_window_bytes").labels(model=model, role=role).set(nbytes)

    def delay(self, model: str, received_us: int) -> None:
        seconds = max(0.0, time.time() - received_us / 1e6)
        self._metrics.histogram("outrider_verdict_delay_seconds").labels(model=model).observe(seconds)

    def ages(self, model: str, ages: NDArray[np.float64], slo_s: float | None) -> None:
        child = self._metrics.histogram("outrider_capture_to_verdict_seconds").labels(model=model)
        for age in ages.tolist():
            child.observe(age)
        if slo_s is not None:
            in_time = int((ages <= slo_s).sum())
            self.outcome(model, "in_time", in_time)
            self.outcome(model, "over", len(ages) - in_time)

    def outcome(self, model: str, outcome: str, records: int) -> None:
        self._metrics.counter("outrider_slo_records_total").labels(model=model, outcome=outcome).inc(records)

    def skipped(self, model: str) -> None:
        self._metrics.counter("outrider_skips_total").labels(model=model).inc()

    def latency(
        self, model: str, *, slo_s: float | None, share: float, measure: int, backfill_records: int
    ) -> None:
        if slo_s is not None:
            self._metrics.gauge("outrider_slo_seconds").labels(model=model).set(slo_s)
        self._metrics.gauge("outrider_admitted_ratio").labels(model=model).set(share)
        self._metrics.gauge("outrider_shed_measure").labels(model=model).set(measure)
        self._metrics.gauge("outrider_backfill_records").labels(model=model).set(backfill_records)

    def lag(self, model: str, role: str, *, records: int, blocks: int, seconds: float) -> None:
        self._metrics.gauge("outrider_lag_records").labels(model=model, role=role).set(records)
        self._metrics.gauge("outrider_lag_blocks").labels(model=model, role=role).set(blocks)
        self._metrics.gauge("outrider_lag_seconds").labels(model=model, role=role).set(seconds)

    def suspended(self, model: str, assertions: Sequence[Offered], until: Mapping[str, int]) -> None:
        now_us = time.time() * 1e6
        gauge = self._metrics.gauge("outrider_assertion_suspended")
        for judge in assertions:
            is_suspended = until.get(judge.name, 0) > now_us
            if is_suspended or (model, judge.name) in self._suspended:
                self._suspended.add((model, judge.name))  # a series once it ever was
                gauge.labels(model=model, assertion=judge.name).set(1 if is_suspended else 0)

    def paused(self, model: str, what: str, *, is_paused: bool) -> None:
        self._metrics.gauge("outrider_paused").labels(model=model, what=what).set(1 if is_paused else 0)

    def owed(self, model: str, role: str, records: int) -> None:
        self._metrics.gauge("outrider_owed_records").labels(model=model, role=role).set(records)

    def left_out(self, model: str, role: str, versions: int) -> None:
        self._metrics.gauge("outrider_shadows_left_out").labels(model=model, role=role).set(versions)

    def versions(self, loaded: Mapping[str, tuple[str | None, Sequence[str]]]) -> None:
        info = self._metrics.gauge("outrider_model_info")
        info.clear()
        for model, (champion, challengers) in loaded.items():
            if champion is not None:
                info.labels(model=model, role="champion", version=champion).set(1)
            for version in challengers:
                info.labels(model=model, role="challenger", version=version).set(1)


def role_of(slot: str) -> str:
    """Metric label of a slot: versions never become label values."""
    return CHAMPION if slot in (CHAMPION, LIVE_SLOT, BACKFILL) or slot.startswith(PREFIX) else "challenger"
