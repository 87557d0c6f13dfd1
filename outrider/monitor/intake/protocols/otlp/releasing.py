"""Release of incomplete calls as records, after a timeout."""

import asyncio
import logging
from collections.abc import Callable

from outrider.dataops.journal.notes import Notes
from outrider.monitor.http.refusals import RefusalBook
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.group_commit import GroupCommit
from outrider.monitor.intake.rejections import Rejections
from outrider.monitor.metrics.registry import Metrics

from .intake import rows_of
from .matching import Matcher
from .part import part_of
from .partial_calls import Waiting

log = logging.getLogger(__name__)
_LOGGED = 10


class Releases:
    def __init__(
        self,
        waiting: Waiting,
        matcher: Matcher,
        decoder: Decoder,
        writer: GroupCommit,
        metrics: Metrics,
        refusals: RefusalBook,
    ) -> None:
        self._waiting = waiting
        self._matcher = matcher
        self._decoder = decoder
        self._writer = writer
        self._items = metrics.counter("outrider_otlp_items_total")
        self._accepted = metrics.counter("outrider_records_accepted_total")
        self._rejected = metrics.counter("outrider_records_rejected_total")
        self._refusals = refusals

    def run(self, now_us: Callable[[], int]) -> None:
        """Write calls due by ``now_us()``; failed writes are tried again."""
        now = now_us()
        met = self._waiting.due(now)
        if not (met.calls or met.remove):
            return
        is_durable = False
        try:
            made = [(0, call, is_partial) for call, is_partial in met.calls]
            unmatched = Rejections()
            rows, bare = rows_of(made, self._matcher, self._waiting, unmatched)
            parts = [part_of(model, members) for model, members in rows.items()]
            decoded = self._decoder.build(parts, unmatched, kind="records", received_us=now)
            notes = Notes((), met.remove)
            asyncio.run(self._writer.submit(decoded.blocks, met.size, notes=notes))
            is_durable = True
        finally:
            self._waiting.committed(met) if is_durable else self._waiting.failed(met)
        self._items.labels(signal="traces", outcome="partial").inc(decoded.accepted)
        if bare:
            self._items.labels(signal="traces", outcome="bare").inc(bare)
        for rejection in decoded.rejected.listed[:_LOGGED]:
            # Nobody is there any more to be told: the exporter's request was answered long ago.
            log.warning("a call that had waited was refused: %s: %s", rejection.field, rejection.reason)
        decoded.rejected.note(self._rejected, self._refusals)
        for block in decoded.blocks:
            self._accepted.labels(model=block.model).inc(block.rows)
