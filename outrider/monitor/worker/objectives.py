import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.freshness import FreshnessView
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.stream.units import UNIT_ROWS

from .admission import UNIT_SHARE, Admission, AdmissionDecision, JudgingPace, SheddingMeasure
from .pipeline import CHAMPION

CAPTURE_US = 3_600_000_000
"""A ``ts`` older than this at receipt says nothing of latency: such as a file's."""
RECENT_S = 60.0
RECENT_BLOCKS = 4096
NOTED_S = 1.0


class Objectives:
    """Paces, decisions and ages of all models of one worker.

    ``clock`` measures ages (epoch seconds), ``timer`` measures work (monotonic).
    """

    def __init__(
        self,
        models: Mapping[str, ModelSettings],
        *,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock, self.timer = clock, timer
        slos = {name: own.latency.slo_s for name, own in models.items() if own.latency.slo_s is not None}
        self._admissions = {name: Admission(slo_s) for name, slo_s in slos.items()}
        self._decisions = {name: AdmissionDecision() for name in models}
        self._slos = slos
        self._unit_s = UNIT_SHARE * min(slos.values()) if slos else None
        self._paces: dict[tuple[str, str], JudgingPace] = {}
        self._busy_since: dict[str, float] = {}
        self._recent = {name: RecentAges() for name in models}
        self._noted: dict[str, float] = {}
        self._has_news: set[str] = set()

    @property
    def measure(self) -> SheddingMeasure:
        """Shedding in force for the model that needs most, as all models share one worker."""
        return max((decision.measure for decision in self._decisions.values()), default=SheddingMeasure.NONE)

    def decision(self, model: str) -> AdmissionDecision:
        return self._decisions[model]

    def slo_s(self, model: str) -> float | None:
        return self._slos.get(model)

    def now_us(self) -> int:
        return int(self.clock() * 1e6)

    def max_rows(self, model: str, slot: str) -> int:
        """Rows of the next unit of a slot, so small that no unit holds up a model with an objective."""
        if self._unit_s is None:
            return UNIT_ROWS
        share = self._decisions[model].share if slot == CHAMPION else 1.0
        pace = self._paces.get((model, slot)) or JudgingPace(memory_s=1.0)
        return min(UNIT_ROWS, int(pace.rows_in(self._unit_s) / share))

    def decide(self, model: str, *, waiting_rows: int, received_us: int) -> AdmissionDecision:
        """Decide on the waiting records of a model; ``received_us`` is the receipt of the oldest."""
        admission = self._admissions.get(model)
        if admission is not None:
            oldest_s = max(0.0, self.clock() - received_us / 1e6)
            self._decisions[model] = admission.decide(waiting_rows=waiting_rows, oldest_s=oldest_s)
        return self._decisions[model]

    def idle(self, model: str) -> None:
        self._decisions[model] = AdmissionDecision()
        self._busy_since.pop(model, None)

    def worked(self, model: str, slot: str, began: float, *, rows: int) -> None:
        """Note the end of a unit that began at ``began``.

        While something waited, a model's pace includes the worker's time for others: the pace at
        which its backlog shrinks.
        """
        if self._unit_s is None:
            return
        now = self.timer()
        pace = self._paces.setdefault((model, slot), JudgingPace(memory_s=8.0 * self._unit_s))
        pace.spent(now - began, rows=rows)
        if slot == CHAMPION and model in self._admissions:
            self._admissions[model].pace.spent(now - self._busy_since.get(model, began), rows=rows)
            self._busy_since[model] = now

    def ages(self, effects: Effects, *, shift_us: int = 0) -> NDArray[np.float64]:
        """Age at verdict of a commit's records, in seconds; ``shift_us`` is how far the clock was
        set since receipt."""
        ages = ages_s(
            effects.records["seq"], effects.records["ts_us"], effects.received, self.now_us() - shift_us
        )
        if len(ages):
            self._recent[effects.model].add(self.timer(), ages)
            self._has_news.add(effects.model)
        return ages

    def figures(self, model: str) -> FreshnessView | None:
        """Figures to publish; None without a new verdict, or within a second of the last ones."""
        now = self.timer()
        if model not in self._has_news or now - self._noted.get(model, -NOTED_S) < NOTED_S:
            return None
        recent = self._recent[model].within(now)
        if not len(recent):
            return None
        self._noted[model] = now
        self._has_news.discard(model)
        decision = self._decisions[model]
        p50_s, p99_s = np.quantile(recent, (0.5, 0.99)).tolist()
        return FreshnessView(
            model, self._slos.get(model), len(recent), p50_s, p99_s, decision.share,
            decision.measure.name.lower(), self.now_us(),
        )  # fmt: skip


def ages_s(
    seq: Sequence[int], ts_us: Sequence[int], received: Mapping[int, int], now_us: int
) -> NDArray[np.float64]:
    """Age in seconds of records since their capture.

    Since ``ts`` or, failing that, receipt.

    Examples
    --------
    >>> ages_s([3], [2_000_000], {3: 2_500_000}, now_us=3_000_000).tolist()
    [1.0]
    """
    receipt = np.array([received[block] for block in seq], dtype=np.int64)
    ts = np.array(ts_us, dtype=np.int64)
    is_capture = (ts <= receipt) & (ts > receipt - CAPTURE_US)
    since = np.where(is_capture, ts, receipt)
    ages: NDArray[np.float64] = np.maximum(0, now_us - since) / 1e6
    return ages


@dataclass(slots=True)
class RecentAges:
    _blocks: deque[tuple[float, NDArray[np.float64]]] = field(
        default_factory=lambda: deque(maxlen=RECENT_BLOCKS)
    )

    def add(self, at_s: float, ages: NDArray[np.float64]) -> None:
        self._blocks.append((at_s, ages))

    def within(self, now_s: float) -> NDArray[np.float64]:
        while self._blocks and now_s - self._blocks[0][0] > RECENT_S:
            self._blocks.popleft()
        return np.concatenate([ages for _, ages in self._blocks]) if self._blocks else np.zeros(0)
