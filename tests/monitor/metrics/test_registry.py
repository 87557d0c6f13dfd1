"""The registry follows the catalogue and cannot grow without bound."""

import pytest
from prometheus_client import CollectorRegistry

from outrider.monitor.metrics.catalogue import CATALOGUE, OTHER
from outrider.monitor.metrics.registry import Metrics


def test_names_follow_the_rules() -> None:
    assert len({spec.name for spec in CATALOGUE}) == len(CATALOGUE)
    for spec in CATALOGUE:
        assert spec.name.startswith("outrider_")
        assert spec.name.endswith("_total") == (spec.kind == "counter"), spec.name
        assert bool(spec.buckets) == (spec.kind == "histogram"), spec.name
        assert set(spec.enums) <= set(spec.labels)
        assert spec.help.endswith("."), spec.name
        assert spec.group
        if spec.unit in ("seconds", "bytes"):
            assert f"_{spec.unit}" in spec.name, spec.name


def test_enum_children_exist_at_zero() -> None:
    metrics = Metrics(CollectorRegistry(), models=["churn"])
    value = metrics.registry.get_sample_value
    assert value("outrider_records_rejected_total", {"reason": "malformed"}) == 0
    assert value("outrider_records_judged_total", {"model": "churn", "role": "challenger"}) == 0
    assert value("outrider_gate_verdicts_total", {"model": "churn", "result": "refused"}) == 0
    metrics.declare({"model": "churn", "assertion": "no_flicker", "level": "warning"})
    labels = {"model": "churn", "role": "champion", "assertion": "no_flicker"}
    assert value("outrider_flags_total", labels | {"level": "warning"}) == 0
    assert value("outrider_flags_total", labels | {"level": "critical"}) is None


def test_a_gauge_exists_once_it_was_set() -> None:
    metrics = Metrics(CollectorRegistry(), models=["churn"])
    metrics.declare({"model": "churn", "assertion": "no_flicker", "test": "t", "judge": "j", "level": "info"})
    gauges = {spec.name for spec in CATALOGUE if spec.kind == "gauge"}
    assert gauges.isdisjoint(sample.name for one in metrics.registry.collect() for sample in one.samples)
    metrics.gauge("outrider_live_endpoint_up").labels(model="churn").set(0)
    metrics.gauge("outrider_queue_bytes").set(0)
    value = metrics.registry.get_sample_value
    assert value("outrider_live_endpoint_up", {"model": "churn"}) == value("outrider_queue_bytes") == 0


def test_surplus_label_values_fold_and_are_counted() -> None:
    metrics = Metrics(CollectorRegistry())
    family = metrics.counter("outrider_records_accepted_total")
    for i in range(family.spec.limit + 50):
        family.labels(model=f"m{i}").inc()
    value = metrics.registry.get_sample_value
    assert value("outrider_records_accepted_total", {"model": "m0"}) == 1
    assert value("outrider_records_accepted_total", {"model": OTHER}) == 50
    folded = {"metric": "outrider_records_accepted_total"}
    assert value("outrider_label_values_folded_total", folded) == 50


def test_a_value_outside_an_enum_folds() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.counter("outrider_records_rejected_total").labels(reason="whatever").inc()
    assert metrics.registry.get_sample_value("outrider_records_rejected_total", {"reason": OTHER}) == 1


def test_wrong_labels_and_unknown_names_are_refused() -> None:
    metrics = Metrics(CollectorRegistry())
    with pytest.raises(ValueError, match=r"has labels \('model',\)"):
        metrics.counter("outrider_records_accepted_total").labels(models="x")
    with pytest.raises(KeyError):
        metrics.counter("outrider_unknown_total")


def test_families_without_labels_have_short_forms() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.counter("outrider_intake_bytes_total").inc(7)
    metrics.gauge("outrider_queue_bytes").set(5)
    metrics.histogram("outrider_commit_seconds").observe(0.002)
    value = metrics.registry.get_sample_value
    assert value("outrider_intake_bytes_total") == 7
    assert value("outrider_queue_bytes") == 5
    assert value("outrider_commit_seconds_bucket", {"le": "0.0025"}) == 1


def test_clear_forgets_replaced_values() -> None:
    metrics = Metrics(CollectorRegistry())
    info = metrics.gauge("outrider_model_info")
    info.labels(model="churn", role="champion", version="1").set(1)
    info.clear()
    info.labels(model="churn", role="champion", version="2").set(1)
    value = metrics.registry.get_sample_value
    assert value("outrider_model_info", {"model": "churn", "role": "champion", "version": "1"}) is None
    assert value("outrider_model_info", {"model": "churn", "role": "champion", "version": "2"}) == 1
