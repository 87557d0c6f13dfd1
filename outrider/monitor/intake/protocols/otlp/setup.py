"""The parts of the OTLP intakes, put together."""

from dataclasses import dataclass, field

from outrider.dataops.journal.journal import Journal
from outrider.monitor.http.refusals import RefusalBook
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.group_commit import GroupCommit
from outrider.monitor.intake.redaction import IntakeRedaction
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.process.clock import ServiceClock
from outrider.monitor.settings.config import Settings

from .call import Call
from .intake import Otlp
from .matching import Matcher, Named
from .partial_calls import Waiting
from .releasing import Releases


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
