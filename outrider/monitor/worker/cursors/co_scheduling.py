"""Requests about one model's records, for versions of one engine process.

Challengers of the process answer with the version.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests.sampling import sample_rows
from outrider.monitor.stream.units import Unit
from outrider.monitor.worker.admission import SheddingMeasure
from outrider.monitor.worker.context import WorkerContext
from outrider.monitor.worker.inference import InferenceRequest
from outrider.monitor.worker.prefetch import Prefetched, PrefetchedAnswers, places_of

NOISE_DRAW = "~noise"
"""Name of the draw, which no live test can have."""


class CoScheduler:
    """Scheduler of requests to versions of one process, so that each is asked once where possible.

    ``prefetched`` are answers of challengers that have not reached their records.
    """

    def __init__(self, model: str, context: WorkerContext, prefetched: PrefetchedAnswers) -> None:
        self.prefetched = prefetched
        self._model = model
        self._context = context

    def co_scheduled(self, version: str, *, after: int) -> list[str]:
        """Challengers of a version's engine process that may answer too."""
        context, model = self._context, self._model
        if context.objectives.measure >= SheddingMeasure.CHALLENGERS or not self.prefetched.has_room:
            return []
        versions, group = context.versions[model], context.inference.group(model, version)
        return [
            slot
            for slot in context.challengers[model]
            if slot != version
            and versions.is_asked(slot)
            and context.inference.group(model, slot) == group
            and context.cursors[model, slot] <= after
        ]

    def ask(
        self,
        version: str,
        others: Sequence[str],
        unit: Unit,
        rows: NDArray[np.intp],
        batch: Batch,
        *,
        after: int,
    ) -> InferenceRequest:
        """Ask a version and its companions about rows of a unit, which lies after block ``after``;
        ``batch`` has the payloads opened."""
        again = self._drawn_twice(batch)
        request = self._context.inference.begin((version, *others), batch, again=again)
        prefetched = Prefetched(after, unit.last_seq, places_of(unit, rows), request)
        self.prefetched.keep(self._model, others, prefetched)
        return request

    def cancel(self, request: InferenceRequest) -> None:
        self._context.inference.cancel(request)
        self.prefetched.drop(request)

    def _drawn_twice(self, batch: Batch) -> tuple[int, ...]:
        """Rows that all versions answer twice, drawn by record ids alone."""
        settings = self._context.settings
        rate = settings.models[self._model].shadow.noise_rate
        if rate == 0.0 or not self._context.challengers[self._model]:
            return ()
        drawn = sample_rows(NOISE_DRAW, batch.keys, rate=rate, seed=settings.worker.seed)
        return tuple(np.flatnonzero(drawn).tolist())
