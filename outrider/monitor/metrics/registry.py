"""``Metrics``: the catalogue's counters, gauges and histograms, in one registry."""

import itertools
import threading
from collections.abc import Mapping
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from .catalogue import BY_NAME, CATALOGUE, OTHER, MetricSpec

M = TypeVar("M", bound=MetricWrapperBase)
F = TypeVar("F")


class Family(Generic[M]):
    def __init__(self, spec: MetricSpec, metric: M, folded: Counter | None) -> None:
        self.spec = spec
        self._metric = metric
        self._folded = folded
        self._seen: dict[str, set[str]] = {label: set() for label in spec.open_labels}
        self._children: dict[tuple[str, ...], M] = {}
        self._order = tuple(spec.labels)
        self._lock = threading.Lock()

    def labels(self, **values: str) -> M:
        """Child with these label values; surplus values are counted under ``__other__``."""
        key = tuple(values.values())
        if tuple(values) != self._order:  # in another order, or wrong
            if values.keys() != set(self._order):
                raise ValueError(f"{self.spec.name} has labels {self.spec.labels}, got {tuple(values)}")
            key = tuple(values[label] for label in self._order)
        child = self._children.get(key)
        if child is None:
            child = self._child(key)
        return child

    def declare(self, known: Mapping[str, str]) -> None:
        """Create the children of ``known`` labels and of the other enums, because a rate needs a start."""
        if not self.spec.is_at_zero or not set(self.spec.open_labels) <= known.keys():
            return
        axes = [(known[label],) if label in known else self.spec.enums[label] for label in self.spec.labels]
        for key in itertools.product(*axes):
            self.labels(**dict(zip(self.spec.labels, key, strict=True)))

    def clear(self) -> None:
        with self._lock:
            self._children.clear()
            for seen in self._seen.values():
                seen.clear()
            if self.spec.labels:
                self._metric.clear()

    def _child(self, key: tuple[str, ...]) -> M:
        with self._lock:
            if not self.spec.labels:
                return self._children.setdefault(key, self._metric)
            bounded = tuple(self._bound(label, v) for label, v in zip(self.spec.labels, key, strict=True))
            child = self._metric.labels(*bounded)
            if bounded == key:  # a folded value stays out of the cache: it must not grow either
                self._children[key] = child
            elif self._folded is not None:
                self._folded.labels(self.spec.name).inc()
            return child

    def _bound(self, label: str, value: str) -> str:
        if label in self.spec.enums:
            return value if value in self.spec.enums[label] else OTHER
        seen = self._seen[label]
        if value in seen or len(seen) < self.spec.limit:
            seen.add(value)
            return value
        return OTHER


class CounterFamily(Family[Counter]):
    def inc(self, amount: float = 1.0) -> None:
        self.labels().inc(amount)


class GaugeFamily(Family[Gauge]):
    """Gauge exposed once set: an unmeasured 0 would be a statement."""

    def __init__(self, spec: MetricSpec, metric: Gauge, folded: Counter, registry: CollectorRegistry) -> None:
        super().__init__(spec, metric, folded)
        self._registry: CollectorRegistry | None = registry

    def declare(self, known: Mapping[str, str]) -> None:
        """Create nothing: only counts begin at 0."""

    def _child(self, key: tuple[str, ...]) -> Gauge:
        child = super()._child(key)
        with self._lock:
            registry, self._registry = self._registry, None
        if registry is not None:
            registry.register(self._metric)
        return child

    def set(self, value: float) -> None:
        self.labels().set(value)


class HistogramFamily(Family[Histogram]):
    def observe(self, value: float) -> None:
        self.labels().observe(value)


class Metrics:
    """Every metric of the catalogue in ``registry`` (never the global one), by name.

    Counters and histograms of ``models``, and of what ``process`` counts, exist at 0 from the start.
    """

    def __init__(
        self, registry: CollectorRegistry, *, models: list[str] | tuple[str, ...] = (), process: str = ""
    ) -> None:
        self.registry = registry
        self.models = tuple(models)
        self._lock = threading.Lock()
        self._counters: dict[str, CounterFamily] = {}
        self._gauges: dict[str, GaugeFamily] = {}
        self._histograms: dict[str, HistogramFamily] = {}
        self._folded = Counter("outrider_label_values_folded_total", "", ["metric"], registry=None)
        for spec in CATALOGUE:
            if not process or spec.process in ("", process):
                self._build(spec, self._folded)
        self.declare({})
        for model in models:
            self.declare({"model": model})

    def declare(self, known: Mapping[str, str]) -> None:
        families: list[Family[Counter] | Family[Gauge] | Family[Histogram]] = [
            *self._counters.values(),
            *self._gauges.values(),
            *self._histograms.values(),
        ]
        for family in families:
            family.declare(known)

    def counter(self, name: str) -> CounterFamily:
        return self._counters.get(name) or self._late(name, self._counters)

    def gauge(self, name: str) -> GaugeFamily:
        return self._gauges.get(name) or self._late(name, self._gauges)

    def histogram(self, name: str) -> HistogramFamily:
        return self._histograms.get(name) or self._late(name, self._histograms)

    def _late(self, name: str, families: Mapping[str, F]) -> F:
        """Family that another process usually counts."""
        with self._lock:
            if name not in families:
                self._build(BY_NAME[name], self._folded)
        return families[name]

    def _build(self, spec: MetricSpec, folded: Counter) -> None:
        if spec.name == "outrider_process_up":
            return  # known only to the receiver of all processes' samples
        if spec.name == "outrider_label_values_folded_total":
            self.registry.register(folded)
            self._counters[spec.name] = CounterFamily(spec, folded, None)
        elif spec.kind == "counter":
            counter = Counter(spec.name, spec.help, spec.labels, registry=self.registry)
            self._counters[spec.name] = CounterFamily(spec, counter, folded)
        elif spec.kind == "gauge":
            gauge = Gauge(spec.name, spec.help, spec.labels, registry=None)
            self._gauges[spec.name] = GaugeFamily(spec, gauge, folded, self.registry)
        else:
            histogram = Histogram(
                spec.name, spec.help, spec.labels, registry=self.registry, buckets=spec.buckets
            )
            self._histograms[spec.name] = HistogramFamily(spec, histogram, folded)
