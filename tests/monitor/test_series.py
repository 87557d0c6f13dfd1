"""Series and performance of a worked stream are what slow loops over its records count."""

import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score
from sqlalchemy import insert

from outrider.assertions.statistics.performance import figure_text
from outrider.assertions.statistics.wilson import wilson_interval
from outrider.commands.model_checks import score_warnings
from outrider.dataops.ledger.cube import roll_up
from outrider.dataops.ledger.stated_values import PLACES
from outrider.dataops.state.database import open_database, write
from outrider.dataops.state.improvement_tables import LabelRequest
from outrider.dataops.state.tables import RecordCount, table_of
from outrider.monitor.views.series.answer import SeriesReport, SeriesRequest, performance_json, series_json
from outrider.monitor.views.series.counts import SeriesCut
from outrider.monitor.views.series.span import MOST_POINTS, step_us
from tests.databases import place_database
from tests.end_to_end.service import CONFIG, MODEL, write_project
from tests.monitor.services import every_app
from tests.monitor.test_routes_data import Client
from tests.monitor.workbench import START_US, Workbench, workbench

MINUTE_US = 60_000_000
BEGIN_US = START_US - START_US % MINUTE_US
RNG = np.random.default_rng(7)


def drawn(block: int, at: int) -> dict[str, Any]:
    """Record of one of two stated versions and devices; what begins with ``_`` is the test's own."""
    p = float(RNG.random())
    label = int(p > 0.5)
    outputs = {"label": label, "score": p if label else 1 - p}
    attrs = {"device": "ab"[at % 2], "latency_s": float(RNG.lognormal(-2, 0.5)), "output_tokens": int(at)}
    row = {"id": f"r{block}-{at}", "version": "7" if block < 25 else "8", "inputs": {"x": p}}
    return row | {"outputs": outputs, "attrs": attrs, "_p": p, "_said": label, "_label": None}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workbench, list[dict[str, Any]]]]:
    with workbench(write_project(tmp_path_factory.mktemp("series"))) as made:
        stream: list[dict[str, Any]] = []
        for block in range(40):
            records = [drawn(block, at) for at in range(25)]
            made.feed(
                [{k: v for k, v in one.items() if not k.startswith("_")} for one in records], after_s=15
            )
            for one in records:
                one["_us"] = made.now_us
            stream += records
            if block % 2:
                late = [one for one in stream if RNG.random() < 0.3]
                for one in late:
                    one["_label"] = int(RNG.random() < one["_p"])
                made.label({one["id"]: one["_label"] for one in late})
        made.work()
        yield made, stream


def report(made: Workbench, **asked: Any) -> SeriesReport:
    cut = {name: asked.pop(name) for name in ("version", "slice", "by_slice", "name") if name in asked}
    measures = asked.pop("measures", None)
    given = SeriesRequest(now_us=made.now_us + 1, **asked)
    with made.engine.connect() as connection:
        if measures is None:
            return performance_json(connection, SeriesCut("toy", **cut), given)
        return series_json(connection, SeriesCut("toy", **cut), given, measures=measures)


def series(found: SeriesReport, **key: Any) -> Any:
    rows: list[Any] = list(found["series"])
    (one,) = [row for row in rows if all(row[name] == value for name, value in key.items())]
    return one


def test_flag_shares_are_those_of_the_records_of_each_version(bench: Any) -> None:
    made, rows = bench
    found = report(made, measures=("records", "flags"), step_us=MINUTE_US)
    starts = [int(datetime.fromisoformat(text).timestamp() * 1e6) for text in found["start"]]
    for version in ("7", "8"):
        own = [one for one in rows if one["version"] == version]
        share = series(found, measure="flags", name="too_high", version=version)
        fired = sum(one["_p"] > 0.9 for one in own)
        assert share["whole"]["value"] == pytest.approx(fired / len(own))
        limits = wilson_interval(fired, len(own))
        assert (share["whole"]["low"], share["whole"]["high"]) == pytest.approx(limits)
        for at, start in enumerate(starts):
            inside = [one for one in own if start <= one["_us"] < start + MINUTE_US]
            value = None if not inside else sum(one["_p"] > 0.9 for one in inside) / len(inside)
            assert share["value"][at] == (None if value is None else pytest.approx(value))
            assert share["records"][at] == len(inside)
        assert series(found, measure="records", version=version)["whole"]["value"] == len(own)


@pytest.mark.parametrize("step", [MINUTE_US, 2 * MINUTE_US, 5 * MINUTE_US, 15 * MINUTE_US])
def test_any_cut_of_time_adds_up(bench: Any, step: int) -> None:
    made, rows = bench
    found = report(made, measures=("records",), step_us=step)
    assert sum(sum(row["records"]) for row in found["series"]) == len(rows)


@pytest.mark.parametrize("part", [None, "a"])
def test_performance_of_each_version_is_that_of_scikit_learn(bench: Any, part: str | None) -> None:
    made, rows = bench
    found = report(made, slice=part)
    for version in ("7", "8"):
        own = [one for one in rows if one["version"] == version and part in (None, one["attrs"]["device"])]
        known = [one for one in own if one["_label"] is not None]
        said, true = ([one[key] for one in known] for key in ("_said", "_label"))
        assert series(found, statistic="accuracy", version=version)["whole"]["value"] == pytest.approx(
            np.mean(np.equal(said, true))
        )
        f1 = series(found, statistic="f1", version=version)["whole"]["value"]
        assert f1 == pytest.approx(f1_score(true, said, average="macro"))
        area = series(found, statistic="auroc", version=version)["whole"]
        assert area["value"] == pytest.approx(roc_auc_score(true, [one["_p"] for one in known]), abs=0.004)
        brier = series(found, statistic="brier", version=version)["whole"]["value"]
        assert brier == pytest.approx(np.mean([(one["_p"] - one["_label"]) ** 2 for one in known]), abs=1e-4)
        labelled = series(found, measure="labelled", version=version)["whole"]
        assert labelled["value"] == pytest.approx(len(known) / len(own))


def test_calls_have_quantiles_and_sums(bench: Any) -> None:
    made, rows = bench
    found = report(made, measures=("latency", "output_tokens", "errors", "label_delay"), version="8")
    own = [one["attrs"] for one in rows if one["version"] == "8"]
    times = [one["latency_s"] for one in own]
    assert series(found, measure="latency", statistic="mean")["whole"]["value"] == pytest.approx(
        np.mean(times)
    )
    high = series(found, measure="latency", statistic="p95")["whole"]["value"]
    assert high == pytest.approx(np.quantile(times, 0.95), rel=0.09)
    tokens = series(found, measure="output_tokens", statistic="sum")["whole"]["value"]
    assert tokens == sum(one["output_tokens"] for one in own)
    assert series(found, measure="errors")["whole"]["value"] == 0.0
    labelled = sum(one["_label"] is not None for one in rows if one["version"] == "8")
    assert series(found, measure="label_delay", statistic="mean")["whole"]["records"] == labelled


def test_slices_are_series_of_their_own_and_add_up(bench: Any) -> None:
    made, rows = bench
    found = report(made, measures=("records",), by_slice=True)
    for part in "ab":
        own = [row for row in found["series"] if row["slice"] == part]
        assert sum(row["whole"]["records"] for row in own) == sum(
            one["attrs"]["device"] == part for one in rows
        )


def test_a_new_version_is_an_event_and_a_range_is_compared(bench: Any) -> None:
    made, rows = bench
    half = BEGIN_US + 5 * MINUTE_US
    found = report(
        made, measures=("records",), since_us=half, until_us=half + 4 * MINUTE_US, versus="previous"
    )
    assert ("version_seen", "8") in {(event.kind, event.name) for event in found["events"]}
    assert found["versus"] is not None
    row = series(found, measure="records", version="7")
    before = [one for one in rows if half - 4 * MINUTE_US <= one["_us"] < half and one["version"] == "7"]
    assert row["versus"]["whole"]["value"] == len(before)
    assert found["quiet_since"] is None


def test_labels_that_a_policy_chose_are_weighted(tmp_path: Path) -> None:
    """Errors are asked for ten times as often: their share among labels is too high, the estimate is not."""
    with workbench(write_project(tmp_path)) as made:
        rng = np.random.default_rng(3)
        wrong = rng.random(1000) < 0.1
        rows = [
            {"id": f"q{n}", "version": "7", "inputs": {"x": 0.2}, "outputs": {"label": 0, "score": 0.8}}
            for n in range(1000)
        ]
        made.feed(rows)
        made.work()
        left, requests = np.where(wrong, 10.0, 1.0), []
        for place in range(300):
            chance = left / left.sum()
            at = int(rng.choice(1000, p=chance))
            requests.append(
                {"model": "toy", "record_id": f"q{at}", "policy": "bal", "reason": "bal", "round": 1,
                 "probability": chance[at], "created_us": made.now_us, "position": place,
                 "population": int((left > 0).sum()), "is_audit": False,
                 "floor": float(chance[left > 0].min() * (left > 0).sum())}
            )  # fmt: skip
            left[at] = 0.0
        with write(made.engine) as connection:
            connection.execute(insert(table_of(LabelRequest)), requests)
        made.label({one["record_id"]: int(wrong[int(one["record_id"][1:])]) for one in requests})
        made.work()
        found = series(report(made), statistic="accuracy", version="7")
        assert found["method"] == "weighted"
        assert found["whole"]["low"] < 1 - wrong.mean() < found["whole"]["high"]
        assert found["whole"]["value"] == pytest.approx(1 - wrong.mean(), abs=0.03)


def test_a_numeric_target_has_errors_and_no_accuracy(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as made:
        rng = np.random.default_rng(5)
        said, true = rng.normal(0, 1, 200), rng.normal(0, 1, 200)
        made.feed(
            [{"id": f"n{n}", "inputs": {"x": 0.2}, "outputs": {"label": float(said[n])}} for n in range(200)]
        )
        made.label({f"n{n}": float(true[n]) for n in range(200)})
        made.work()
        found = report(made)
        assert found["is_numeric"]
        assert {row["statistic"] for row in found["series"]} == {"share", "mae", "rmse"}
        mae, rmse = (series(found, statistic=name)["whole"]["value"] for name in ("mae", "rmse"))
        assert mae == pytest.approx(np.abs(said - true).mean())
        assert rmse == pytest.approx(math.sqrt(((said - true) ** 2).mean()))


@pytest.mark.parametrize("is_fractional", [False, True])
def test_performance_has_errors_of_a_declared_number_and_accuracy_of_a_class(
    tmp_path: Path, is_fractional: bool
) -> None:
    """Whole numbers under scoring, fractional ones under classification: the task says what they are."""
    task = "classification" if is_fractional else "scoring"
    config = CONFIG.replace("[models.toy]\n", f'[models.toy]\ntask = "{task}"\n')
    with workbench(write_project(tmp_path, config=config)) as made:
        said = np.arange(200) % 40 / (8.0 if is_fractional else 1.0)
        true = said + (np.arange(200) % 4 == 0) * 2.0
        made.feed(
            [{"id": f"n{n}", "inputs": {"x": 0.2}, "outputs": {"label": float(said[n])}} for n in range(200)]
        )
        made.label({f"n{n}": float(true[n]) for n in range(200)})
        made.work()
        found = report(made)
        assert found["is_numeric"] is not is_fractional
        if is_fractional:
            assert series(found, statistic="accuracy")["whole"]["value"] == pytest.approx(0.75)
        else:
            assert series(found, statistic="mae")["whole"]["value"] == pytest.approx(0.5)


@pytest.mark.parametrize("score_of", ["answer", "positive"])
def test_performance_notes_scores_of_the_positive_class_when_they_are_read_as_the_answers(
    tmp_path: Path, score_of: str
) -> None:
    config = CONFIG.replace("[models.toy]\n", f'[models.toy]\nscore_of = "{score_of}"\n')
    with workbench(write_project(tmp_path, config=config)) as made:
        said = [int(n % 5 == 0) for n in range(200)]
        answers = [{"label": one, "score": 0.9 if one else 0.1} for one in said]
        made.feed([{"id": f"n{n}", "inputs": {"x": 0.2}, "outputs": one} for n, one in enumerate(answers)])
        made.label({f"n{n}": one for n, one in enumerate(said)})
        made.work()
        found = report(made)
        brier = series(found, statistic="brier")["whole"]["value"]
        warned = list(score_warnings(made.settings, "toy"))
    if score_of == "positive":
        assert brier == pytest.approx(0.01)
        assert (found["note"], warned) == (None, [])
    else:
        assert brier == pytest.approx(0.8 * 0.81 + 0.2 * 0.01)
        note = found["note"] or ""
        assert "80% of the scores" in note
        assert "Brier 0.650 as read, 0.010 if so" in note
        assert warned == [f"score_of: {note}"]


@pytest.fixture
def client(bench: Any) -> Client:
    made, _ = bench
    return Client(every_app(made.engine, settings=made.settings))


@pytest.mark.parametrize(
    ("query", "field", "reason"),
    [
        ("series?step=90", "step", "whole minutes expected, got 90 s"),
        ("series?step=999999999w", "step", "at most 366 days expected, got 7e+09"),
        ("series?since=0001-01-01T00:00:00Z", "since", "at most 300 steps of 30 days expected"),
        ("series?step=soon", "step", "a time such as 5m, 1h or 1d expected, got 'soon'"),
        ("series?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "until", "is empty"),
        ("series?since=2020-01-01T00:00:00Z&step=1m", "step", "counts from"),
        ("performance?since=2026-09-21T00:00:00Z&until=2026-09-23T00:00:00Z&step=1m", "step", "m"),
        ("performance?since=2026-09-01T00:00:00Z&versus=day", "versus", "a range of at most a day expected"),
    ],
)
def test_a_bad_parameter_is_named(client: Client, query: str, field: str, reason: str) -> None:
    answer = client.get(f"/v1/models/toy/{query}")
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert reason in answer.json()["detail"]


def test_an_unknown_model_and_an_unknown_measure_are_refused(client: Client) -> None:
    assert client.get("/v1/models/zebra/series").status_code == 404
    assert client.get("/v1/models/toy/series?measure=charm").status_code == 422


def test_a_long_range_has_few_points(client: Client) -> None:
    found = client.get("/v1/models/toy/series?since=2020-01-01T00:00:00Z&measure=records").json()
    assert 1 < len(found["start"]) <= MOST_POINTS
    assert step_us("15m") == 15 * MINUTE_US


def test_the_overview_draws_each_version_and_names_the_accuracys(bench: Any) -> None:
    made, _ = bench
    page = Client(every_app(made.engine, made.journal, models=("toy",)))
    text = page.get("/m/toy?range=90d&versus=previous&slice=a").text
    assert text.count('<figure class="trend">') > 6
    assert "first records of version 8" in text
    assert "Accuracy of version 8, labelled records" in text
    assert "no labels of the champion yet" in text
    assert "range: one of 1h, 6h, 1d, 7d, 30d, 90d expected" in page.get("/m/toy?range=5y").text
    assert "No records since" in text  # the workbench's clock is not today's


@pytest.mark.parametrize(
    ("statistic", "figures", "text"),
    [
        ("accuracy", (0.5, 0.25, 0.75), "50 % (25 to 75)"),
        ("sum", (0.0421,), "0.0421"),
        ("mean", (1.5, 1.25, 1.75), "1.5 (1.25 to 1.75)"),
    ],
)
def test_figures_are_told_with_their_interval(statistic: str, figures: tuple[float, ...], text: str) -> None:
    assert figure_text(statistic, *figures) == text


def test_a_challenger_has_shares_and_agreement_of_its_own(tmp_path: Path) -> None:
    """It is certain of the other class above 0.9."""
    config = f'{CONFIG}\n[models.toy.challengers.2]\npredictor = "other.py:predict"\n'
    path = write_project(tmp_path, config=config)
    (tmp_path / "other.py").write_text(MODEL.replace("x > 0.5", "(x > 0.5) & (x <= 0.9)"))
    with workbench(path) as made:
        xs = [n / 100 for n in range(100)]
        made.feed([{"id": f"c{n}", "inputs": {"x": x}, "attrs": {"device": "a"}} for n, x in enumerate(xs)])
        made.work()
        found = report(made, measures=("flags", "agreement", "live_tests", "records"))
        agreement = series(found, measure="agreement", version="2")
        assert agreement["whole"]["value"] == pytest.approx(0.91)
        assert agreement["whole"]["records"] == 100
        flags = series(found, measure="challenger_flags", name="too_high", version="2")
        assert (flags["whole"]["value"], flags["whole"]["records"]) == (pytest.approx(0.09), 100)
        own = series(found, measure="flags", name="too_high", version="1")
        assert own["whole"]["value"] == pytest.approx(0.09)
        asked = series(found, measure="live_tests", name="test_nudge", version="1")
        passed = "SELECT count(*) FROM live_answer WHERE status IN ('passed', 'failed')"
        assert [(asked["whole"]["records"],)] == made.rows(passed)


def test_answers_and_calls_of_any_shape_and_size_stop_no_worker(tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        {"outputs": {"label": 1, "probs": [[0.1, 0.9], [0.5, 0.5]]}, "attrs": {"latency_s": 1.7e308}},
        {"outputs": {"label": 1, "score": [0.1, 0.9]}, "attrs": {"latency_s": [0.1, 0.2]}},
        {"outputs": {"label": 1.7e308, "score": 1e300}, "attrs": {"cost_usd": -1.7e308}},
    ]
    with workbench(write_project(tmp_path)) as made:
        for number, record in enumerate(odd):
            made.feed([{"id": f"r{number}-{at}", "inputs": {"x": 0.5}, **record} for at in range(3)])
        made.work()
        for label in (-1.7e308, 0.5, None):
            made.label({f"r2-{at}": label for at in range(3)})
        made.work()
        assert made.count("records") == 9
        found = report(made, measures=("latency", "cost"))
        assert [each["whole"]["records"] for each in found["series"]] == [3, 3, 3, 3, 3]
        sums = made.rows("SELECT weight, squares, total FROM measure_count")
        assert all(math.isfinite(one) for row in sums for one in row)


def labelled(made: Workbench) -> list[tuple[Any, ...]]:
    """Records of two classes in a block, each labelled 1."""
    made.feed(
        [
            {"id": f"r{at}", "version": "1", "inputs": {"x": 0.1}, "outputs": {"label": at % 2, "score": 0.5}}
            for at in range(20)
        ]
    )
    made.label({f"r{at}": 1 for at in range(20)})
    made.work()
    return made.rows("SELECT * FROM outcome_count ORDER BY 1, 2, 3, 4, 5, 6, 7, 8")


def test_labels_withdrawn_when_their_minutes_are_hours_leave_no_figure(tmp_path: Path) -> None:
    hour_us = 60 * MINUTE_US
    with workbench(write_project(tmp_path)) as made:
        labelled(made)
        made.now_us += 7 * 24 * hour_us
        with write(made.engine) as connection:
            roll_up(connection, "toy", before_us=START_US, now_us=made.now_us)
        made.label({f"r{at}": None for at in range(20)})
        made.work()
        found = report(made, since_us=START_US - hour_us, step_us=hour_us)
        assert [(each["statistic"], each["whole"]["value"]) for each in found["series"]] == [("share", 0.0)]


def test_versions_without_end_are_others_and_a_registered_one_behind_them_is_not(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as made:
        said: list[str] = []
        for block in range(8):
            if block == 6:
                made.execute(
                    "INSERT INTO model_version (model, version, status, digest, created_us, changed_us, note,"
                    " source) SELECT model, 'late', 'retired', 'd', 1, 1, '', source FROM model_version"
                )
                made.restart()
            versions = ["late" if block > 5 and not at % 2 else f"{block}-{at}" for at in range(500)]
            records = [
                {
                    "id": f"r{block}-{at}",
                    "version": version,
                    "inputs": {"x": 0.95},
                    "outputs": {"label": 1, "score": 0.95},
                }
                for at, version in enumerate(versions)
            ]
            made.feed(records, after_s=15)
            said += [f"r{block}-{at}" for at in range(500)]
            made.work()
        made.label(dict.fromkeys(said, 1))
        made.work()
        made.label(dict.fromkeys(said[::2], 0))
        made.work()
        for table, number, of in (
            ("record_count", "records", 4000),
            ("flag_count", "flags", None),
            ("outcome_count", "records", 4000),
            ("measure_count", "records", None),
        ):
            counted = made.rows(f"SELECT version, sum({number}), min({number}) FROM {table} GROUP BY 1")
            names = {version for version, _, _ in counted}
            assert names <= {"1", "late", "__other__", *(f"0-{at}" for at in range(PLACES))}, table
            assert of is None or sum(rows for _, rows, _ in counted) == of
            assert all(least >= 0 for _, _, least in counted)
        late = {
            row[0]: row[1:] for row in made.rows("SELECT version, sum(records) FROM record_count GROUP BY 1")
        }
        assert (late["late"], late["__other__"]) == ((500,), (4000 - 500 - PLACES,))


def test_a_new_prompt_is_an_event_and_a_restart_tells_it_once(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as made:
        for block in range(4):
            attrs = {"prompt_version": "p1" if block < 2 else "p2"}
            rows = [{"id": f"r{block}-{at}", "inputs": {"x": 0.7}, "attrs": attrs} for at in range(12)]
            made.feed(rows, after_s=60)
            made.work()
            if block == 2:
                made.restart()
        found = report(made, measures=("records",))
    events = [(one.kind, one.name, one.text) for one in found["events"]]
    assert events == [("prompt_version", "p2", "first records of prompt version p2")]


def test_the_largest_slices_have_series_and_the_others_are_counted(tmp_path: Path) -> None:
    place_database(tmp_path / "state.db")
    engine = open_database(f"sqlite:///{tmp_path / 'state.db'}")
    with write(engine) as connection:
        rows = [
            {
                "model": "toy",
                "slice": f"s{n:02}",
                "minute_us": BEGIN_US - day * 1440 * MINUTE_US,
                "version": "1",
            }
            | {"records": (n + 1) if day == 0 else 1000, "entities": 1}
            for n in range(15)
            for day in (0, 3)
            if day == 0 or n < 3
        ]
        connection.execute(insert(table_of(RecordCount)), rows)
    asked = SeriesRequest(now_us=BEGIN_US + 1, since_us=BEGIN_US - 5 * 1440 * MINUTE_US)
    with engine.connect() as connection:
        found = series_json(connection, SeriesCut("toy", by_slice=True), asked, measures=("records",))
        assert [row["slice"] for row in found["series"]] == [f"s{n:02}" for n in range(3, 15)]
        assert found["slices_left_out"] == 3
        one = series_json(connection, SeriesCut("toy", slice="s01"), asked, measures=("records",))
        assert one["series"][0]["whole"]["value"] == 1002
        whole = series_json(connection, SeriesCut("toy"), asked, measures=("records",))
        assert whole["series"][0]["whole"]["value"] == 3000 + sum(range(1, 16))
    engine.dispose()
