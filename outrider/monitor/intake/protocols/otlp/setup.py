"""The parts of the OTLP intakes, put together."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.dataops.journal.journal import Journal
from outrider.dataops.journal.notes import Notes
from outrider.monitor.http.refusals import RefusalBook
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.group_commit import GroupCommit
from outrider.monitor.intake.redaction import IntakeRedaction
from outrider.monitor.intake.rejections import Rejections
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.process.clock import ServiceClock
from outrider.monitor.settings.config import Settings

from .call import Call
from .intake import Otlp, part_of, rows_of
from .matching import Matcher, Named
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
            # The exporter's request was answered long ago: the log alone can report them.
            log.warning("a call that had waited was refused: %s: %s", rejection.field, rejection.reason)
        decoded.rejected.note(self._rejected, self._refusals)
        for block in decoded.blocks:
            self._accepted.labels(model=block.model).inc(block.rows)


@dataclass(frozen=True, slots=True)
class OtlpIntakes:
    traces: Otlp
    logs: Otlp
    releases: Releases
    waiting: Waiting
    clock: ServiceClock = field(default_factory=ServiceClock)

    def release(self) -> None:
        """Write overdue calls, whatever the steps of the clock."""
        self.clock.now_us()
        if by_us := self.clock.pending_us:
            self.waiting.stepped(by_us)
            self.clock.written(by_us)
        self.releases.run(self.clock.now_us)


def otlp_intakes(
    settings: Settings,
    journal: Journal,
    decoder: Decoder,
    writer: GroupCommit,
    metrics: Metrics,
    refusals: RefusalBook,
    redaction: IntakeRedaction,
) -> OtlpIntakes:
    """Intakes of a configuration; calls that waited before a restart wait again."""
    matcher = Matcher(
        {
            name: Named(model.intake.otel_service, model.intake.request_models)
            for name, model in settings.models.items()
        }
    )

    def join_us(call: Call) -> int:
        model = matcher.model_of(call)
        return int((settings.intake.join_s if model is None else settings.join_s(model)) * 1e6)

    waiting = Waiting(join_us, journal.notes(), fields_to_keep=redaction.fields, model_of=matcher.model_of)
    return OtlpIntakes(
        Otlp("traces", matcher, waiting, metrics),
        Otlp("logs", matcher, waiting, metrics),
        Releases(waiting, matcher, decoder, writer, metrics, refusals),
        waiting,
    )
