"""Metrics of the engines for Prometheus."""

from collections.abc import Mapping

from outrider.monitor.metrics.registry import Metrics

from .asks import Name
from .client import EngineClient

GROWN = {
    "rows": "outrider_engine_records_total",
    "trunk_forwards": "outrider_engine_trunk_forwards_total",
    "head_forwards": "outrider_engine_head_forwards_total",
    "busy_s": "outrider_engine_busy_seconds_total",
}


class EngineMetrics:
    """Samples of engine work, summed over trunks that begin alike."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counted: dict[tuple[Name, str], float] = {}

    def observe(self, clients: Mapping[Name, EngineClient]) -> None:
        by_model: dict[str, list[EngineClient]] = {}
        for trunk, client in clients.items():
            by_model.setdefault(trunk[0], []).append(client)
            self._count(trunk, client)
        gauge = self._metrics.gauge
        for model, own in by_model.items():
            gauge("outrider_engine_up").labels(model=model).set(int(all(one.is_up for one in own)))
            queued = sum(one.waiting_rows for one in own)
            gauge("outrider_engine_queued_records").labels(model=model).set(queued)
            for counted, name in (("in_memory", "bytes"), ("each_alone", "bytes_alone")):
                nbytes = sum(one.stats.get(name, 0.0) for one in own)
                gauge("outrider_engine_weights_bytes").labels(model=model, counted=counted).set(nbytes)

    def _count(self, trunk: Name, client: EngineClient) -> None:
        for figure, name in GROWN.items():
            grown = self._grown(trunk, figure, client.stats.get(figure, 0.0))
            self._metrics.counter(name).labels(model=trunk[0]).inc(grown)
        for reason, restarts in client.restarts.items():
            grown = self._grown(trunk, reason, restarts)
            self._metrics.counter("outrider_engine_restarts_total").labels(model=trunk[0], reason=reason).inc(
                grown
            )

    def _grown(self, trunk: Name, figure: str, value: float) -> float:
        before = self._counted.get((trunk, figure), 0.0)
        self._counted[trunk, figure] = value
        return value - before if value >= before else value
