"""Series of a large service: what all processes together expose, before and after traffic."""

import itertools
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from outrider.dataops.flags.rate_limit import NewFlags
from outrider.dataops.ledger.commit import Effects
from outrider.monitor.host.client import Offered
from outrider.monitor.metrics.catalogue import BY_SAMPLE, CATALOGUE, OTHER
from outrider.monitor.metrics.channel import MetricSample, new_metrics, read_samples
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.worker.metrics import WorkerMetrics
from tests.table_rows import append

MODELS = tuple(f"model-{n}" for n in range(50))
ASSERTIONS = tuple(Offered(f"assertion_{n}", "r", "warning", "", "", "assertion") for n in range(40))
MOST_SERIES = 15_000


def set_gauges(metrics: Metrics, process: str) -> None:
    """Every gauge that a process sets for each model, whatever its listed labels."""
    for spec in CATALOGUE:
        if spec.kind != "gauge" or spec.process != process or not {*spec.open_labels} <= {"model"}:
            continue
        axes = [spec.enums.get(label, MODELS) for label in spec.labels]
        for values in itertools.product(*axes):
            metrics.gauge(spec.name).labels(**dict(zip(spec.labels, values, strict=True))).set(0)


def service(models: Sequence[str] = MODELS) -> dict[str, Metrics]:
    """The registries of a service's processes as they start, with all gauges set."""
    made = {name: new_metrics(models=models, process=name) for name in ("intake", "worker", "trainer")}
    made["host"] = new_metrics(process="host")
    worker = WorkerMetrics(made["worker"])
    for model in models:
        worker.declare(model, ASSERTIONS)
        worker.suspended(model, ASSERTIONS, {})
    for name, metrics in made.items():
        set_gauges(metrics, name)
    return made


def test_fifty_models_of_forty_assertions_have_few_series() -> None:
    samples = {name: read_samples(metrics.registry) for name, metrics in service().items()}
    found = sum(map(len, samples.values()))
    assert 5_000 < found <= MOST_SERIES
    # No two processes tell the same, but for what each tells of itself.
    of: dict[tuple[str, str], str] = {}
    for name, own in samples.items():
        for one in own:
            if BY_SAMPLE[one.name].process:
                key = one.name, str(sorted(one.labels.items()))
                assert of.setdefault(key, name) == name


def test_what_a_rate_is_asked_of_exists_at_zero_in_its_own_process() -> None:
    samples = {name: read_samples(metrics.registry) for name, metrics in service(["churn"]).items()}
    known = {"model": "churn", "assertion": "assertion_0"}
    flags = known | {"role": "champion", "level": "warning"}
    assert MetricSample("outrider_flags_total", flags, 0.0) in samples["worker"]
    assert MetricSample("outrider_assertion_strikes_total", known, 0.0) in samples["worker"]
    for process, name, more in (
        ("intake", "outrider_records_accepted_total", {}),
        ("trainer", "outrider_retrains_total", {"status": "failed"}),
        ("trainer", "outrider_incidents_total", {"level": "critical"}),
    ):
        assert MetricSample(name, {"model": "churn", **more}, 0.0) in samples[process]


def test_a_family_of_another_process_exists_once_it_is_counted() -> None:
    metrics = Metrics(CollectorRegistry(), models=["churn"], process="host")
    assert not [one for one in read_samples(metrics.registry) if one.name.startswith("outrider_records")]
    metrics.counter("outrider_records_accepted_total").labels(model="churn").inc(2)
    assert MetricSample("outrider_records_accepted_total", {"model": "churn"}, 2.0) in read_samples(
        metrics.registry
    )
    with pytest.raises(KeyError):
        metrics.counter("outrider_charm_total")


def test_only_named_slices_are_labels() -> None:
    """Thousands of values in records make no series."""
    metrics = new_metrics(models=["churn"], process="worker")
    worker = WorkerMetrics(metrics)
    worker.declare("churn", ASSERTIONS[:1], ["web"])
    effects = Effects("churn", "champion", 1)
    for row in range(3000):
        part = "web" if row % 3 == 0 else f"secret-{row}"
        append(effects.records, ("churn", f"r{row}", 1, row, 0, 0, "1", None, part, "1", 1.0, False))
    found = [
        NewFlags("assertion_0", "r", "warning", part, 0, 2, 2, "r0")
        for part in ("web", "secret-1", "secret-2")
    ]
    worker.slices(effects, found, ("web",))
    samples = {
        (one.name, one.labels["slice"]): one.value
        for one in read_samples(metrics.registry)
        if "slice" in one.labels
    }
    assert samples == {
        ("outrider_slice_records_total", "web"): 1000.0,
        ("outrider_slice_records_total", OTHER): 2000.0,
        ("outrider_slice_flags_total", "web"): 2.0,
        ("outrider_slice_flags_total", OTHER): 4.0,
    }


def test_slices_without_their_attribute_are_refused() -> None:
    with pytest.raises(ValueError, match="slice_by expected beside it"):
        ModelSettings(slices=("web",))
