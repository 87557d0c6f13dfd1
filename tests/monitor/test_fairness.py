"""Group metrics over time and of dataset versions: the route and the page."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from sqlalchemy import insert, select

from outrider.assertions import Batch
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import Label, LabelRequest
from outrider.dataops.state.tables import Record, table_of
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.views.fairness.reader import dataset_figures
from tests.monitor.services import every_app
from tests.monitor.test_routes_data import Client
from tests.monitor.web.sample import MODEL, Sample, build


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = build(tmp_path_factory.mktemp("groups"), blocks=10)
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture(scope="module")
def app(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    folder = tmp_path_factory.mktemp("settings")
    settings = Settings(base=folder, models={MODEL: ModelSettings()})
    return every_app(sample.engine, sample.journal, settings)


@pytest.fixture
def client(app: FastAPI) -> Client:
    return Client(app)


def _stored(sample: Sample) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Device, prediction and newest label of every record, read the slow way."""
    record, label = table_of(Record), table_of(Label)
    with sample.engine.connect() as connection:
        rows = connection.execute(select(record).where(record.c.model == MODEL)).all()
        labels = connection.execute(select(label).where(label.c.model == MODEL).order_by(label.c.seq)).all()
    device: dict[str, str] = {}
    for seq in {row.seq for row in rows}:
        batch = Batch.from_ipc(sample.journal.get(seq).payload)
        device |= dict(zip(batch.keys.tolist(), batch.column("attrs.device").tolist(), strict=True))
    return device, {row.id: row.predicted for row in rows}, {row.record_id: row.value for row in labels}


def test_figures_of_stored_records_are_what_a_loop_counts(client: Client, sample: Sample) -> None:
    found = client.get(f"/v1/fairness?model={MODEL}&by=device&positive=8").json()
    assert found["version"] == "1"
    device, said, truth = _stored(sample)
    assert found["records"] == len(said) == sample.records
    assert found["labelled"] == len(truth) > 0
    for group in found["groups"]:
        mine = [key for key in said if f"device={device[key]}" == group["group"]]
        assert group["records"] == len(mine)
        rate = group["metrics"]["selection_rate"]
        assert rate["value"] == pytest.approx(np.mean([said[key] == "8" for key in mine]))
        assert rate["low"] <= rate["value"] <= rate["high"]
        known = [key for key in mine if key in truth]
        if known:
            right = np.mean([said[key] == truth[key] for key in known])
            assert group["metrics"]["accuracy"]["value"] == pytest.approx(right)
    assert {gap["metric"] for gap in found["gaps"]} == {"selection_rate", "tpr", "fpr", "ppv", "accuracy"}


def test_a_time_to_come_has_no_records(client: Client) -> None:
    asked = "since=2100-01-01T00:00:00Z&until=2100-01-01T05:00:00Z"
    found = client.get(f"/v1/fairness?model={MODEL}&by=device&{asked}").json()
    assert (found["records"], found["groups"], found["gaps"]) == (0, [], [])


@pytest.mark.parametrize(
    ("query", "status", "detail"),
    [
        ("by=gender", 422, "no column 'gender' to group by: name it in group_by"),
        ("by=device&since=2026-01-01T00:00:00Z&until=2025-01-01T00:00:00Z", 422, "is empty"),
        ("by=device&step=90", 422, "whole minutes expected"),
        ("by=inputs.device&by=attrs.device", 422, "columns of distinct names expected"),
        ("by=device&positive=zebra", 422, "positive='zebra' is neither predicted"),
        ("by=device&dataset=digits@x", 404, "no dataset 'digits'"),
        ("by=device&dataset=digits@1", 404, "digits"),
        (f"by=device&dataset=digits@{'9' * 30}", 404, "no dataset 'digits'"),
    ],
)
def test_slips_are_told(client: Client, query: str, status: int, detail: str) -> None:
    answer = client.get(f"/v1/fairness?model={MODEL}&{query}")
    assert answer.status_code == status, answer.text
    assert detail in answer.json()["detail"]


def test_a_declared_grouping_without_records_is_no_fault(sample: Sample, tmp_path: Path) -> None:
    settings = Settings(base=tmp_path, models={MODEL: ModelSettings(group_by=("sex",))})
    answer = Client(every_app(sample.engine, sample.journal, settings)).get(
        f"/v1/fairness?model={MODEL}&by=sex"
    )
    assert answer.status_code == 200
    assert (answer.json()["records"], answer.json()["version"]) == (0, None)


def test_labels_that_were_asked_for_are_weighed_back(tmp_path: Path) -> None:
    """A policy asked for most records of one kind and few of another: plain shares would be far off."""
    sample = build(tmp_path, blocks=4)
    record, label = table_of(Record), table_of(Label)
    with write(sample.engine) as connection:
        connection.execute(label.delete())
        connection.execute(table_of(LabelRequest).delete())
        rows = connection.execute(select(record).where(record.c.model == MODEL)).all()
        for at, row in enumerate(rows[:60]):
            fields: dict[str, Any] = {"model": MODEL, "record_id": row.id}
            connection.execute(
                insert(label).values(
                    **fields, seq=90_000 + at, row=0, source="human", label={}, ts_us=1, received_us=1,
                    value=row.predicted if at >= 40 else "wrong",
                )
            )  # fmt: skip
            # 40 wrong ones were four times as likely as the 20 right ones
            connection.execute(
                insert(table_of(LabelRequest)).values(
                    **fields, policy="bal", reason="x", round=1, created_us=1, position=at,
                    probability=(4.0 if at < 40 else 1.0) / len(rows), population=len(rows), is_audit=False,
                    floor=1.0 / len(rows),
                )
            )  # fmt: skip
    settings = Settings(base=tmp_path, models={MODEL: ModelSettings()})
    client = Client(every_app(sample.engine, sample.journal, settings))
    found = client.get(f"/v1/fairness?model={MODEL}&by=device&positive=8").json()
    assert found["labels_were_asked_for"]
    rates = [group["metrics"]["accuracy"] for group in found["groups"] if "accuracy" in group["metrics"]]
    overall = sum(rate["value"] * rate["rows"] for rate in rates) / sum(rate["rows"] for rate in rates)
    assert overall > 0.45  # 20 of 60 plainly
    sample.engine.dispose()
    sample.journal.close()


def test_a_dataset_version_with_answers_has_figures_and_one_without_says_what_to_do() -> None:
    columns = {"inputs.sex": ["f", "m"] * 40, "label.label": [1, 0] * 40}
    rows = Batch.from_columns(columns, model="m")
    with pytest.raises(KeyError, match="outrider test --dataset"):
        dataset_figures(rows, by=["sex"], positive="1", target="label")
    found = dataset_figures(
        rows.with_outputs({"label": np.ones(80, dtype=np.int64)}), by=["sex"], positive="1", target="label"
    )
    assert {rate.group: rate.value for rate in found.rates if rate.metric == "accuracy"} == {
        "sex=f": 1.0,
        "sex=m": 0.0,
    }


def test_the_report_of_a_model_has_the_gaps_of_its_groups(client: Client) -> None:
    (own,) = client.get(f"/v1/report?model={MODEL}").json()["groups"]
    asked = f"/v1/fairness?model={MODEL}&by=device&positive={own['positive']}"
    assert own["gaps"] == client.get(asked).json()["gaps"]


def test_groups_without_a_column_or_a_declared_one_say_what_is_expected(client: Client) -> None:
    answer = client.get(f"/v1/fairness?model={MODEL}")
    assert answer.status_code == 422
    assert "`group_by`" in answer.json()["detail"]


def _page(sample: Sample, query: str) -> str:
    answer = Client(every_app(sample.engine, sample.journal, models=(MODEL,))).get(
        f"/m/{MODEL}/fairness{query}"
    )
    assert answer.status_code == 200
    return answer.text


def test_the_page_chooses_a_grouping_itself_and_draws_every_group(sample: Sample) -> None:
    text = _page(sample, "")
    assert "<option selected>device</option>" in text
    assert text.count('class="interval wide"') >= 3
    assert "device=till-2" in text
    assert "True positive rate" in text
    assert "Selection rate: gap" in text
    assert text.count('<figure class="trend">') >= 6
    assert "version 1" in text
    assert "last hour" in text


def test_the_page_takes_range_comparison_and_version(sample: Sample) -> None:
    text = _page(sample, "?by=device&positive=8&range=1h&versus=previous&version=1")
    assert "dotted the time before" in text
    assert '<option value="1h" selected>' in text
    text = _page(sample, "?by=device&positive=8&range=century")
    assert "range: one of" in text
    assert "device=till-2" in text
    assert "No record has a comparable answer" in _page(sample, "?version=77&positive=8")


def test_the_page_says_what_is_wrong_with_a_choice_and_escapes_it(sample: Sample) -> None:
    text = _page(sample, "?by=<script>&positive=8")
    assert "no column &#39;&lt;script&gt;&#39; to group by" in text
    assert "<script>&" not in text


def test_the_page_of_an_empty_service_says_what_is_missing(tmp_path: Path) -> None:
    sample = build(tmp_path, blocks=0)
    assert "No groups are counted" in _page(sample, "")
    sample.engine.dispose()
    sample.journal.close()
