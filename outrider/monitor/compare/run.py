"""Loop of a comparison: ask a batch, compare, update the verdicts, until decided."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.differences import VECTORS
from outrider.errors import ServerError

from .answers import Answers, Asker
from .candidate_result import CandidateResult, target_of
from .embedder import TextEmbedder
from .forecast import forecast
from .judge import PairJudge
from .labelled import Right
from .plan import ComparePlan, Until
from .questions import REQUEST
from .sides import Side
from .traffic import BLOCK_BYTES, ROWS

LEAST_ROWS, MOST_ROWS = 16, 16_384
LOOK_S = 2.0
"""Target seconds per batch of questions."""
NOISY = 0.005
"""Share of answers that change when asked again, above which all questions are asked twice."""
DEAD = 32
"""Consecutive unanswered questions after which the comparison ends (production), or a candidate is asked
no more."""
GRACE_S = 5.0
"""Seconds that pending questions have to be answered in after a stop."""
_POLL_S = 0.2
Ending = Literal["decided", "records", "time", "traffic", "stopped", "running"]


class ComparisonRun:
    """Comparison with production, or its recorded answers if None; ``plan.has_judge`` and
    ``has_embedding`` must match ``judge`` and ``embedder``."""

    def __init__(
        self,
        production: Asker | None,
        candidates: Sequence[Asker],
        plan: ComparePlan,
        *,
        judge: PairJudge | None = None,
        embedder: TextEmbedder | None = None,
    ) -> None:
        self._judge, self._embedder = judge, embedder
        self._production = production
        self._plan = plan
        self._candidates = candidates
        self._askers = [one for one in (production, *candidates) if one is not None]
        self._pool = ThreadPoolExecutor(len(candidates) + 1, thread_name_prefix="compare")
        self._looks = ThreadPoolExecutor(1, thread_name_prefix="look")
        self.production = Side(production.name if production else "production")
        reach = None if embedder is None else embedder.reach
        self.results = [CandidateResult(one.name, plan, len(candidates), reach) for one in candidates]
        self.asked = 0
        self.question: Batch | None = None
        """Last question, which shows the form of the traffic."""
        self.compared = 0
        """Questions that production and at least one candidate answered."""
        self.columns: set[str] = set()
        """Column names of the traffic."""
        self.alike: dict[tuple[str, str], int] = {}
        """Number of answers of two candidates, by their names, if all were equal so far; -1 otherwise."""
        self.unrecorded = 0
        """Questions skipped because the traffic holds no answer of production."""
        self.is_abandoned = False
        """True once a stop gave up on pending questions: their threads and clients stay open."""
        self._lock = threading.Lock()

    def forecast(self, columns: Collection[str]) -> list[dict[str, Any]]:
        return forecast(
            self._plan,
            candidates=len(self.results),
            is_talk=REQUEST in columns,
            asks_production=self._production is not None,
        )

    def look(self, questions: Batch) -> None:
        self.columns.update(questions.names)
        if self._production is None:
            is_recorded = Answers.recorded(questions).is_answered
            self.unrecorded += int((~is_recorded).sum())
            questions = questions.take(np.flatnonzero(is_recorded))
        if not questions.rows:
            return
        pairs = zip(self.results, self._candidates, strict=True)
        there = [(result, asker) for result, asker in pairs if not result.is_silent]
        candidates = [asker for _, asker in there]
        first = self._ask([self._production, *candidates], questions)
        is_twice = drawn(questions, self._twice(), self._plan.seed) & _comparable(first)
        again_rows = np.flatnonzero(is_twice)
        again: list[Answers | None] = [None] * len(first)
        if len(again_rows) and self._plan.is_deterministic:
            asked_again = self._ask(candidates, questions.take(again_rows))
            again = [first[0].take(again_rows), *asked_again]
        elif len(again_rows) and self._production is not None:
            again = [*self._ask([self._production, *candidates], questions.take(again_rows))]
        if self._embedder is not None:
            first, again = _embedded(self._embedder, first, again, self._plan)
        with self._lock:
            if not self.is_abandoned:
                self._compare(questions, [each for each, _ in there], first, again_rows, again)
        if self._judge is not None:
            self._judge_pairs(self._judge)

    def look_unless(self, stop: threading.Event, questions: Batch) -> bool:
        """Run :meth:`look` in a thread; False if ``stop`` was set and the answers took longer than
        ``GRACE_S``."""
        look = self._looks.submit(self.look, questions)
        left = GRACE_S
        try:
            while wait([look], timeout=_POLL_S).not_done and left > 0:
                left -= _POLL_S * stop.is_set()
        finally:  # also of a second Ctrl-C
            with self._lock:
                self.is_abandoned = not look.done()
        if not self.is_abandoned:
            look.result()
        return not self.is_abandoned

    def check_production(self) -> None:
        if self._production is not None and self.asked and not self.production.fates["answered"]:
            raise ServerError(
                f"{self.production.name} answered none of {self.asked:,} questions, so nothing is compared; "
                f"most often: {self.production.most_often}"
            )

    def check_candidates(self) -> None:
        if all(result.side.is_refused for result in self.results):
            raise ServerError("; ".join(f"{each.name} {each.side.refusal}" for each in self.results))

    def label(self, candidate: str, question: str, right: Right) -> bool:
        with self._lock:
            found = next((one for one in self.results if one.name == candidate), None)
            if found is None or not found.label(question, right):
                return False
            found.settle()
            return True

    def _judge_pairs(self, judge: PairJudge) -> None:
        for result in self.results:
            pairs = result.unjudged()
            values = judge.preferences(pairs)
            with self._lock:
                if not self.is_abandoned:
                    result.take_judgements(pairs, values)
                    result.settle()

    def _compare(
        self,
        questions: Batch,
        results: Sequence[CandidateResult],
        first: Sequence[Answers],
        again_rows: NDArray[np.intp],
        again: Sequence[Answers | None],
    ) -> None:
        self.asked += questions.rows
        self.question = questions.slice(questions.rows - 1)
        self.production.add(first[0])
        if again[0] is not None and not self._plan.is_deterministic:
            self.production.add(again[0])
        if self.production.silent >= DEAD:
            raise ServerError(
                f"{self.production.name} did not answer the last {self.production.silent} questions: "
                f"{first[0].why[-1]}"
            )
        for result, answers, second in zip(results, first[1:], again[1:], strict=True):
            result.add(questions, first[0], answers, again_rows, again[0], second)
        self.compared += int(_comparable(first).sum())
        self._count_alike([each.name for each in results], first[1:])
        self._ask_for_counts()
        for result in results:
            result.settle()
            is_final = result.is_decided or result.side.is_unasked or result.side.is_refused
            result.is_silent = is_final and result.side.silent >= DEAD

    def _count_alike(self, names: Sequence[str], answers: Sequence[Answers]) -> None:
        """Count the answers of each pair of candidates, until two of them differ."""
        for (one, first), (other, second) in combinations(zip(names, answers, strict=True), 2):
            rows = np.flatnonzero(first.is_answered & second.is_answered)
            count = self.alike.get((one, other), 0)
            if count >= 0 and len(rows):
                is_alike = _outputs(first, rows).equals(_outputs(second, rows))
                self.alike[one, other] = count + len(rows) if is_alike else -1

    def _ask_for_counts(self) -> None:
        if self._production is not None:
            self.production.retries = self._production.retries
        for result, asker in zip(self.results, self._candidates, strict=True):
            result.side.retries = asker.retries
            result.borrowed = asker.borrowed[self.production.name]
            if self._production is not None:
                result.borrowed += self._production.borrowed[result.name]

    def close(self) -> None:
        """Close all clients, unless pending questions still use them."""
        self._looks.shutdown(wait=not self.is_abandoned, cancel_futures=True)
        if self.is_abandoned:
            return
        self._pool.shutdown(cancel_futures=True)
        for asker in self._askers:
            asker.close()
        for helper in (self._judge, self._embedder):
            if helper is not None:
                helper.close()

    def _twice(self) -> float:
        return self._plan.share_again(is_noisy=any(each.noise > NOISY for each in self.results))

    def _ask(self, askers: Sequence[Asker | None], questions: Batch) -> list[Answers]:
        recorded = Answers.recorded
        return list(
            self._pool.map(lambda one: recorded(questions) if one is None else one.ask(questions), askers)
        )


def _comparable(answers: Sequence[Answers]) -> NDArray[np.bool_]:
    found = np.zeros(len(answers[0].fate), dtype=np.bool_)
    for each in answers[1:]:
        found |= each.is_answered
    return found & answers[0].is_answered


def _embedded(
    embedder: TextEmbedder, first: Sequence[Answers], again: Sequence[Answers | None], plan: ComparePlan
) -> tuple[list[Answers], list[Answers | None]]:
    """If texts are compared, answers with vectors of their texts, all embedded in one call."""
    production, *others = (each.outputs for each in first)
    if not any(target_of(production, each, plan) == "text" for each in others):
        return [*first], [*again]
    found = embedder.embedded([*first, *again])
    return [each for each in found[: len(first)] if each is not None], found[len(first) :]


def _outputs(answers: Answers, rows: NDArray[np.intp]) -> pa.RecordBatch:
    outputs = answers.outputs.take(rows).to_arrow()
    return outputs.select([name for name in outputs.schema.names if name != VECTORS])


def drawn(questions: Batch, share: float, seed: int) -> NDArray[np.bool_]:
    """Mask of the questions to ask twice, selected by a hash of their ids.

    Examples
    --------
    >>> batch = Batch.from_records([{"id": str(i), "inputs": {"x": i}} for i in range(1000)], model="m")
    >>> 220 < int(drawn(batch, 0.25, 0).sum()) < 280
    True
    """
    if share <= 0.0:
        return np.zeros(questions.rows, dtype=np.bool_)
    hashed = pd.util.hash_array(
        np.array([f"{seed}:{key}" for key in questions.keys], dtype=object), categorize=False
    )
    return np.asarray(hashed < share * 2.0**64, dtype=np.bool_)


def drive(
    run: ComparisonRun,
    traffic: Iterable[Batch],
    until: Until,
    *,
    stop: threading.Event,
    tell: Callable[[ComparisonRun], None],
    clock: Callable[[], float] = time.monotonic,
) -> Ending:
    ending = _driven(run, traffic, until, stop, tell, clock)
    run.check_production()
    run.check_candidates()
    return ending


def _driven(
    run: ComparisonRun,
    traffic: Iterable[Batch],
    until: Until,
    stop: threading.Event,
    tell: Callable[[ComparisonRun], None],
    clock: Callable[[], float],
) -> Ending:
    began = clock()
    blocks = _Cut(traffic)
    rows = LEAST_ROWS
    while True:
        left = until.records - run.asked
        if left <= 0:
            return "records"
        questions = blocks.take(min(rows, left))
        if questions is None:
            return "traffic"
        before = clock()
        if questions.rows and not run.look_unless(stop, questions):
            return "stopped"
        tell(run)
        is_done = [result.is_silent or (until.is_decided and result.is_decided) for result in run.results]
        if all(is_done):
            return "decided"
        if stop.is_set():
            return "stopped"
        if until.seconds is not None and clock() - began >= until.seconds:
            return "time"
        pace = questions.rows / max(clock() - before, 1e-3) if questions.rows else np.inf
        rows = int(np.clip(min(pace * LOOK_S, run.asked / 4), LEAST_ROWS, MOST_ROWS))


class _Cut:
    """Traffic in batches of a requested size and one schema; only full batches of files are joined, so
    that live traffic never waits."""

    def __init__(self, traffic: Iterable[Batch]) -> None:
        self._traffic: Iterator[Batch] = iter(traffic)
        self._rest: Batch | None = None
        self._is_long = False

    def take(self, rows: int) -> Batch | None:
        """Next batch; None at the end, empty while no traffic arrives."""
        if self._rest is None or not self._rest.rows:
            self._next()
        if self._rest is None:
            return None
        parts = [self._cut(rows)]
        while (left := rows - sum(part.rows for part in parts)) and self._is_followed(parts):
            parts.append(self._cut(left))
        return Batch.concat(parts)

    def _next(self) -> None:
        self._rest = next(self._traffic, None)
        self._is_long = self._rest is not None and self._rest.rows >= ROWS

    def _cut(self, rows: int) -> Batch:
        assert self._rest is not None
        taken = self._rest.slice(0, min(rows, self._rest.rows))
        self._rest = self._rest.slice(taken.rows)
        return taken

    def _is_followed(self, parts: Sequence[Batch]) -> bool:
        """Fetch the next batch of a file; True if it can be joined to ``parts``."""
        if not self._is_long or sum(part.to_arrow().nbytes for part in parts) >= BLOCK_BYTES:
            return False
        self._next()
        first, rest = parts[0].to_arrow().schema, self._rest
        return rest is not None and rest.to_arrow().schema.equals(first, check_metadata=True)
