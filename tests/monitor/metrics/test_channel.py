"""Samples of every process reach one exposition, and a dead process keeps its counters."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from outrider.monitor.metrics.channel import (
    DATAGRAM_BYTES,
    MetricsReceiver,
    MetricsSender,
    ProcessesCollector,
    new_metrics,
    pack,
    read_samples,
    start_sender,
)
from outrider.monitor.metrics.exposition import MetricsApp, render
from tests.asgi import get, request
from tests.soak import PATIENCE_S, promised

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def values(collector: ProcessesCollector, name: str) -> dict[str, float]:
    return {
        sample.labels["process"]: sample.value
        for family in parse_prometheus(render(collector)[0].decode())
        for sample in family.samples
        if sample.name == name
    }


def wait_for(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "nothing came in time"
        time.sleep(0.02)


def test_datagrams_stay_below_the_limit_and_lose_nothing() -> None:
    metrics = new_metrics(models=[f"model-{i:03}" for i in range(90)])
    samples = read_samples(metrics.registry)
    datagrams = pack("worker", "1", 1, samples)
    assert len(datagrams) > 1
    assert max(map(len, datagrams)) <= DATAGRAM_BYTES
    collector = ProcessesCollector(new_metrics())
    for datagram in reversed(datagrams):
        collector.receive(datagram)
    assert len(dict(collector._all_samples())["worker"]) == len(samples)


def test_a_dead_process_keeps_its_counters_and_goes_down_after_five_seconds() -> None:
    now = [100.0]
    collector = ProcessesCollector(new_metrics(), expected=["worker"], clock=lambda: now[0])
    assert collector.health() == {"intake": True, "worker": False}
    worker = new_metrics(models=["churn"])
    worker.counter("outrider_records_judged_total").labels(model="churn", role="champion").inc(64)
    for datagram in pack("worker", "1", 1, read_samples(worker.registry)):
        collector.receive(datagram)
    assert values(collector, "outrider_process_up") == {"intake": 1.0, "worker": 1.0}
    now[0] += 5.1
    assert values(collector, "outrider_process_up") == {"intake": 1.0, "worker": 0.0}
    assert 64.0 in [
        sample.value
        for family in parse_prometheus(render(collector)[0].decode())
        for sample in family.samples
        if sample.name == "outrider_records_judged_total"
    ]


def test_series_a_process_no_longer_reports_are_dropped() -> None:
    collector = ProcessesCollector(new_metrics())
    worker = new_metrics()
    info = worker.gauge("outrider_model_info")
    for number, version in enumerate(("1", "2"), start=1):
        info.clear()
        info.labels(model="churn", role="champion", version=version).set(1)
        for datagram in pack("worker", "1", number, read_samples(worker.registry)):
            collector.receive(datagram)
    text = render(collector)[0].decode()
    assert 'version="2"' in text
    assert 'process="worker",role="champion",version="1"' not in text


def test_garbage_is_ignored() -> None:
    collector = ProcessesCollector(new_metrics())
    collector.receive(b"{not json")
    collector.receive(
        b'{"process":"x","boot":"1","round":1,"part":0,"parts":1,"samples":[["made_up",{},1.0]]}'
    )
    assert b"made_up" not in render(collector)[0]


def test_another_process_sends_over_an_inherited_socket() -> None:
    receive, send = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    collector = ProcessesCollector(new_metrics())
    receiver = MetricsReceiver(collector, fd=receive.detach())
    receiver.start()
    code = (
        "from outrider.monitor.metrics.channel import new_metrics, start_sender\n"
        "m = new_metrics(); m.gauge('outrider_outbox_pending').set(3)\n"
        "start_sender(m, process='trainer').close()\n"
    )
    environment = {**os.environ, "OUTRIDER_METRICS_FD": str(send.fileno())}
    subprocess.run([sys.executable, "-c", code], env=environment, pass_fds=[send.fileno()], check=True)
    wait_for(lambda: values(collector, "outrider_outbox_pending").get("trainer") == 3.0)
    assert values(collector, "outrider_resident_bytes")["trainer"] > 1e6
    receiver.close()
    send.close()


def test_a_full_socket_never_blocks_the_sender() -> None:
    receive, send = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender = MetricsSender(new_metrics(), process="worker", fd=send.detach(), interval_s=0.001)
    sender.start()
    wait_for(lambda: sender._round > 400)
    started = time.monotonic()
    sender.close()
    assert time.monotonic() - started < promised(2.0)
    receive.close()


def test_a_process_at_rest_sends_half_as_often() -> None:
    receive, send = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    metrics = new_metrics()
    sender = MetricsSender(metrics, process="worker", fd=send.detach(), interval_s=0.001)
    gauge = metrics.gauge("outrider_outbox_pending")
    pauses = []
    for number in (1, 1, 1, 2, 2):
        gauge.set(number)
        sender._send()
        pauses.append(sender._pause_s)
    assert pauses == [0.001, 0.002, 0.002, 0.001, 0.002]
    sender.close()
    receive.close()


def test_without_an_inherited_socket_nothing_is_sent() -> None:
    assert start_sender(new_metrics(), process="worker", environ={}) is None


def test_exposition_follows_the_accept_header() -> None:
    app = MetricsApp(ProcessesCollector(new_metrics(models=["churn"])))
    plain = get(app, "/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert list(parse_prometheus(plain.text))
    openmetrics = get(app, "/metrics", headers={"accept": OPENMETRICS})
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    parsed = parse_openmetrics(openmetrics.text)  # type: ignore[no-untyped-call]  # published untyped
    families = {family.name: family for family in parsed}
    assert families["outrider_commit_seconds"].type == "histogram"
    assert families["outrider_records_accepted"].type == "counter"
    assert request(app, "POST", "/metrics").status_code == 405
