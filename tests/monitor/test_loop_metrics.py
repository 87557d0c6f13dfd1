"""The loop's metrics say what the tables say, before and after a restart."""

from pathlib import Path

from sqlalchemy import update

from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.monitor.metrics.channel import new_metrics
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.trainer.metrics import LoopMetrics

from .web.sample import MODEL, Sample, add, build


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def check(metrics: Metrics) -> None:
    assert value(metrics, "outrider_retrains_total", model=MODEL, status="done") == 1
    assert value(metrics, "outrider_retrains_total", model=MODEL, status="refused") == 1
    assert value(metrics, "outrider_retrains_total", model=MODEL, status="failed") == 0
    assert value(metrics, "outrider_retrain_seconds_count", model=MODEL, stage="train") == 2
    assert value(metrics, "outrider_gate_verdicts_total", model=MODEL, result="promoted") == 1
    assert value(metrics, "outrider_dataset_versions_total", model=MODEL) == 2
    assert value(metrics, "outrider_dataset_rows_total", model=MODEL) == 1080
    assert value(metrics, "outrider_quarantined_rows_total", model=MODEL) == 1
    assert value(metrics, "outrider_suite_tests", model=MODEL, role="champion", status="passed") == 4
    assert value(metrics, "outrider_suite_tests", model=MODEL, role="champion", status="error") == 1
    assert value(metrics, "outrider_suite_tests", model=MODEL, role="challenger", status="failed") == 1


def test_counters_follow_the_tables_and_survive_a_restart(tmp_path: Path) -> None:
    sample: Sample = build(tmp_path, blocks=2)
    metrics = new_metrics(models=[MODEL])
    loop = LoopMetrics(metrics, sample.engine)
    loop.observe()
    loop.observe()
    check(metrics)
    with write(sample.engine) as connection:
        for number in (1, 2):
            add(
                connection,
                tables.Outbox,
                id=f"msg_{number}",
                event="model.promoted",
                url="http://127.0.0.1/",
                payload="{}",
                attempts=number,
                created_us=1,
                next_attempt_us=1,
            )
            add(
                connection,
                improvement_tables.LabelRequest,
                model=MODEL,
                record_id=f"unlabelled-{number}",
                policy="uniform",
                reason="track_agrees",
                probability=0.5,
                population=2,
                floor=1.0,
                round=1,
                created_us=1,
            )
    loop.observe()
    assert value(metrics, "outrider_outbox_pending") == 2
    assert value(metrics, "outrider_label_queue_records", model=MODEL) == 2
    assert value(metrics, "outrider_webhook_deliveries_total", outcome="delivered") == 0
    assert value(metrics, "outrider_webhook_deliveries_total", outcome="retry") == 1
    outbox = tables.Outbox.__table__  # type: ignore[attr-defined]  # SQLModel adds it
    with write(sample.engine) as connection:
        connection.execute(update(outbox).values(delivered_us=2))
    again = new_metrics(models=[MODEL])
    for one in (loop, LoopMetrics(again, sample.engine)):
        one.observe()
    for seen in (metrics, again):
        check(seen)
        assert value(seen, "outrider_webhook_deliveries_total", outcome="delivered") == 2
        assert value(seen, "outrider_webhook_deliveries_total", outcome="retry") == 1
        assert value(seen, "outrider_outbox_pending") == 0
    sample.engine.dispose()
    sample.journal.close()
