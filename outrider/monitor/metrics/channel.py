"""Channel of processes' metrics to one ``/metrics``: datagrams each second.

Each child sends the samples of its registry over an inherited unix datagram socket, every other second at
rest; the intake process receives them and exposes them with the label ``process``. A datagram that does not
fit the socket's buffer is dropped: the next second brings newer values, and no process ever waits for its
metrics.
"""

import logging
import os
import platform
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .catalogue import BY_NAME, BY_SAMPLE, CATALOGUE
from .registry import Metrics

SEND_FD = "OUTRIDER_METRICS_FD"
RECEIVE_FD = "OUTRIDER_METRICS_RX_FD"
DATAGRAM_BYTES = 60_000
SILENCE_S = 5.0
REST_FACTOR = 2.0
"""Interval factor of a process with nothing to report but its memory and time."""
_OWN = frozenset(["outrider_cpu_seconds_total", "outrider_resident_bytes"])

logger = logging.getLogger(__name__)


class MetricSample(msgspec.Struct, array_like=True, frozen=True):
    name: str
    labels: dict[str, str]
    value: float


class Datagram(msgspec.Struct, frozen=True):
    process: str
    boot: str
    round: int
    part: int
    parts: int
    samples: list[MetricSample]


def read_samples(registry: CollectorRegistry) -> list[MetricSample]:
    return [
        MetricSample(sample.name, sample.labels, sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name in BY_SAMPLE
    ]


def pack(process: str, boot: str, number: int, samples: list[MetricSample]) -> list[bytes]:
    encode = msgspec.json.encode
    chunks: list[list[MetricSample]] = [[]]
    used = 0
    for sample in samples:
        size = len(encode(sample)) + 1
        if used + size > DATAGRAM_BYTES - 500 and chunks[-1]:
            chunks.append([])
            used = 0
        chunks[-1].append(sample)
        used += size
    return [encode(Datagram(process, boot, number, i, len(chunks), part)) for i, part in enumerate(chunks)]


class MetricsSender:
    """Daemon thread that sends a registry's samples every ``interval_s``, half as often while nothing
    changes."""

    def __init__(self, metrics: Metrics, *, process: str, fd: int, interval_s: float = 1.0) -> None:
        self._metrics = metrics
        self._process = process
        self._boot = f"{os.getpid()}-{time.time_ns()}"
        self._interval_s = interval_s
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._stop = threading.Event()
        self._round = 0
        self._pause_s = 0.0
        self._sent: list[MetricSample] = []
        self._thread = threading.Thread(target=self._run, name="metrics-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * self._interval_s + 1)
        self._socket.close()

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            self._send()
        self._send()

    def _send(self) -> None:
        self._round += 1
        observe_process(self._metrics)
        samples = read_samples(self._metrics.registry)
        work = [sample for sample in samples if sample.name not in _OWN]
        self._pause_s = self._interval_s * (REST_FACTOR if work == self._sent else 1.0)
        self._sent = work
        for datagram in pack(self._process, self._boot, self._round, samples):
            try:
                self._socket.send(datagram)
            except OSError:  # full or gone: newer values follow in a second
                return


def observe_process(metrics: Metrics) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    counter = metrics.counter("outrider_cpu_seconds_total")
    # Its own sample alone: asking the registry for one collects all others, too.
    counted = next(sample.value for family in counter.labels().collect() for sample in family.samples)
    counter.inc(max(0.0, usage.ru_utime + usage.ru_stime - counted))
    metrics.gauge("outrider_resident_bytes").set(_resident_bytes(usage.ru_maxrss))


def _resident_bytes(peak_kib: int) -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(int(file.read().split()[1]) * resource.getpagesize())
    except OSError:  # not Linux: the peak is the next best thing
        return float(peak_kib * 1024)


def package_version() -> str:
    try:
        return version("outrider")
    except PackageNotFoundError:
        return "unknown"


def new_metrics(*, models: Iterable[str] = (), process: str = "") -> Metrics:
    metrics = Metrics(CollectorRegistry(), models=tuple(models), process=process)
    metrics.gauge("outrider_start_timestamp_seconds").set(time.time())
    build = metrics.gauge("outrider_build_info")
    build.labels(version=package_version(), python=platform.python_version()).set(1)
    return metrics


def start_sender(
    metrics: Metrics, *, process: str, environ: Mapping[str, str] = os.environ
) -> MetricsSender | None:
    if SEND_FD not in environ:
        return None
    sender = MetricsSender(metrics, process=process, fd=int(environ[SEND_FD]))
    sender.start()
    return sender


@dataclass(slots=True)
class _Remote:
    boot: str
    heard: float
    round: int = 0
    parts: set[int] = field(default_factory=set)
    values: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, int]] = field(default_factory=dict)

    def update(self, datagram: Datagram) -> None:
        if datagram.round != self.round:
            self.round, self.parts = datagram.round, set()
        for sample in datagram.samples:
            if sample.name in BY_SAMPLE:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                self.values[key] = (sample.value, datagram.round)
        self.parts.add(datagram.part)
        if len(self.parts) == datagram.parts:  # heard all of this round: what it left out is gone
            self.values = {k: v for k, v in self.values.items() if v[1] == datagram.round}


class ProcessesCollector(Collector):
    """Every process's families, each sample with the label ``process``.

    ``expected`` processes are down until heard of.
    """

    def __init__(
        self,
        local: Metrics,
        *,
        process: str = "intake",
        expected: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._local = local
        self._process = process
        self._expected = tuple(expected)
        self._clock = clock
        self._remotes: dict[str, _Remote] = {}
        self._lock = threading.Lock()

    def receive(self, payload: bytes) -> None:
        try:
            datagram = msgspec.json.decode(payload, type=Datagram)
        except msgspec.DecodeError:
            logger.warning("a metrics datagram of %d bytes cannot be decoded", len(payload))
            return
        with self._lock:
            remote = self._remotes.get(datagram.process)
            if remote is None or remote.boot != datagram.boot:
                remote = self._remotes[datagram.process] = _Remote(datagram.boot, 0.0)
            remote.heard = self._clock()
            remote.update(datagram)

    def health(self) -> dict[str, bool]:
        now = self._clock()
        up = dict.fromkeys(self._expected, False)
        with self._lock:
            up |= {name: now - remote.heard <= SILENCE_S for name, remote in self._remotes.items()}
        return {self._process: True, **{k: v for k, v in up.items() if k != self._process}}

    def describe(self) -> list[Metric]:
        """Empty: registering must not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        observe_process(self._local)
        families = {
            spec.name: Metric(spec.family if spec.kind == "counter" else spec.name, spec.help, spec.kind)
            for spec in CATALOGUE
        }
        for process, up in self.health().items():
            families["outrider_process_up"].add_sample(
                BY_NAME["outrider_process_up"].name, {"process": process}, float(up)
            )
        for process, samples in self._all_samples():
            for sample in samples:
                labels = {**sample.labels, "process": process}
                families[BY_SAMPLE[sample.name].name].add_sample(sample.name, labels, sample.value)
        yield from (family for family in families.values() if family.samples)

    def _all_samples(self) -> list[tuple[str, list[MetricSample]]]:
        with self._lock:
            remotes = [
                (
                    name,
                    [MetricSample(key[0], dict(key[1]), value) for key, (value, _) in remote.values.items()],
                )
                for name, remote in self._remotes.items()
                if name != self._process
            ]
        return [(self._process, read_samples(self._local.registry)), *remotes]


class MetricsReceiver:
    def __init__(self, collector: ProcessesCollector, *, fd: int) -> None:
        self._collector = collector
        self._socket = socket.socket(fileno=fd)
        self._socket.settimeout(0.5)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-receiver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0)
        self._socket.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._collector.receive(self._socket.recv(1 << 16))
            except TimeoutError:
                continue
            except OSError:
                return


def start_receiver(
    collector: ProcessesCollector, *, environ: Mapping[str, str] = os.environ
) -> MetricsReceiver | None:
    if RECEIVE_FD not in environ:
        return None
    receiver = MetricsReceiver(collector, fd=int(environ[RECEIVE_FD]))
    receiver.start()
    return receiver
