"""Group metrics: against slow loops, weights, small groups, gaps and the verdicts on them."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import INV, MFT, Outcome, Suite, expect, group_metrics, perturb
from outrider.behavioral_tests.fairness import METRICS, GroupMetrics, Metric

ROWS = 600


def _records(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(np.array(["f", "m", None], dtype=object), ROWS, p=[0.4, 0.55, 0.05]),
            "region": rng.choice(["north", "south"], ROWS),
            "score": rng.random(ROWS).round(3),
            "weight": rng.choice([1.0, 4.0], ROWS),
        }
    )
    frame["truth"] = np.where(rng.random(ROWS) < frame.score.to_numpy(), "yes", "no")
    frame["said"] = np.where(frame.score > np.where(frame.sex == "m", 0.4, 0.6), "yes", "no")
    frame.loc[rng.random(ROWS) < 0.05, "said"] = "later"
    frame.loc[rng.random(ROWS) < 0.05, "truth"] = None
    return frame


def _or_none(series: "pd.Series[str]") -> list[str | None]:
    return [value if isinstance(value, str) else None for value in series]


def _batch(frame: pd.DataFrame) -> Batch:
    return Batch.from_columns(
        {
            "inputs.sex": _or_none(frame.sex),
            "attrs.region": frame.region.tolist(),
            "weight": frame.weight.to_numpy(),
            "outputs.label": frame.said.tolist(),
            "outputs.score": frame.score.to_numpy(),
            "label.label": _or_none(frame.truth),
        },
        model="m",
    )


def _by_loop(frame: pd.DataFrame, metric: Metric) -> float:
    """The definition, record by record."""
    up = down = 0.0
    for row in frame.to_dict("records"):
        known = isinstance(row["truth"], str)
        selected, real = row["said"] == "yes", row["truth"] == "yes"
        counts, hit = {
            "selection_rate": (True, selected),
            "tpr": (known and real, selected),
            "fpr": (known and not real, selected),
            "ppv": (known and selected, real),
            "accuracy": (known, row["said"] == row["truth"]),
            "calibration": (known, row["score"] - real),
        }[metric]
        if counts:
            up += row["weight"] * hit
            down += row["weight"]
    return up / down


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_of_one_column_are_what_a_loop_gives(metric: Metric) -> None:
    frame = _records()
    found = group_metrics(_batch(frame), by="sex", positive="yes", score="score").of(metric)
    assert [rate.group for rate in found] == ["sex=(missing)", "sex=f", "sex=m"]
    parts = [frame[frame.sex.isna()], frame[frame.sex == "f"], frame[frame.sex == "m"]]
    for rate, part in zip(found, parts, strict=True):
        assert rate.value == pytest.approx(_by_loop(part, metric))
        assert rate.low < rate.value < rate.high


def test_several_columns_make_intersections() -> None:
    frame = _records()
    found = group_metrics(_batch(frame), by=["sex", "attrs.region"], positive="yes")
    assert list(found.rows)[2:4] == ["sex=f, region=north", "sex=f, region=south"]
    part = frame[(frame.sex == "m") & (frame.region == "south")]
    assert found.of("tpr")[-1].value == pytest.approx(_by_loop(part, "tpr"))
    assert sum(found.rows.values()) == ROWS


def test_metrics_agree_with_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    frame = _records()
    frame = frame[frame.truth.notna() & frame.sex.notna()].reset_index(drop=True)
    found = group_metrics(_batch(frame), by="sex", positive="yes")
    for rate_tpr, rate_ppv, group in zip(found.of("tpr"), found.of("ppv"), ["f", "m"], strict=True):
        part = frame[frame.sex == group]
        weights = {"sample_weight": part.weight, "pos_label": "yes", "average": "binary"}
        real, said = part.truth == "yes", part.said == "yes"
        weights |= {"pos_label": True}
        assert rate_tpr.value == pytest.approx(metrics.recall_score(real, said, **weights))
        assert rate_ppv.value == pytest.approx(metrics.precision_score(real, said, **weights))


def test_no_records_have_no_groups() -> None:
    found = group_metrics(_batch(_records()).slice(0, 0), by=["sex", "region"], positive="yes")
    assert (dict(found.rows), found.rates) == ({}, ())
    assert math.isnan(found.gap("tpr").value)


def test_only_the_selection_rate_is_known_without_labels() -> None:
    batch = Batch.from_columns({"inputs.sex": ["f", "m"], "outputs.label": [0, 1]}, model="m")
    found = group_metrics(batch, by="sex")
    assert {rate.metric for rate in found.rates} == {"selection_rate"}
    with pytest.raises(KeyError, match="unknown metric tpr, there are selection_rate; tpr needs labels"):
        found.of("tpr")


def test_a_frame_shows_every_group_with_limits_and_counts() -> None:
    frame = group_metrics(_batch(_records()), by="sex", positive="yes", score="score").to_pandas()
    assert frame.index.name == "group"
    assert {"rows", "tpr", "tpr_low", "tpr_high", "tpr_rows", "calibration"} <= set(frame.columns)
    assert (frame["tpr_rows"] < frame["rows"]).all()


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"by": "gender"}, KeyError, "no column 'gender' to group by; the records have: inputs.sex"),
        ({"by": []}, ValueError, "at least one column"),
        ({"by": "sex", "prediction": "answer"}, KeyError, "outputs.label"),
        ({"by": "sex", "positive": "Yes"}, ValueError, "positive='Yes' is neither predicted nor a label"),
    ],
)
def test_slips_are_named(kwargs: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        group_metrics(_batch(_records()), **{"positive": "yes"} | kwargs)


def test_labels_of_another_type_count_where_they_equal() -> None:
    columns = {"inputs.sex": ["f", "m"], "outputs.label": [True, False], "label.label": ["1", "1"]}
    found = group_metrics(Batch.from_columns(columns, model="m"), by="sex")
    assert [rate.value for rate in found.of("accuracy")] == [1.0, 0.0]


def test_labels_that_equal_no_answer_are_refused() -> None:
    columns = {"inputs.sex": ["f"], "outputs.label": [1], "label.label": ["one"]}
    with pytest.raises(TypeError, match="could never be equal"):
        group_metrics(Batch.from_columns(columns, model="m"), by="sex")


def _two_groups(rates: tuple[float, float], rows: tuple[int, int]) -> Batch:
    said = [int(at < rate * n) for rate, n in zip(rates, rows, strict=True) for at in range(n)]
    sex = ["f"] * rows[0] + ["m"] * rows[1]
    return Batch.from_columns({"inputs.sex": sex, "outputs.label": said}, model="m")


def test_a_gap_names_the_two_groups_and_its_interval_holds_the_estimate() -> None:
    gap = group_metrics(_two_groups((0.1, 0.3), (300, 400)), by="sex").gap("selection_rate")
    assert (gap.highest, gap.lowest) == ("sex=m", "sex=f")
    assert gap.value == pytest.approx(0.2)
    assert gap.ratio == pytest.approx(1 / 3)
    assert 0.1 < gap.low < 0.2 < gap.high < 0.3
    assert gap.ratio_low < gap.ratio < gap.ratio_high < 1


def test_small_groups_are_named_and_do_not_count() -> None:
    found = group_metrics(_two_groups((1.0, 0.3), (3, 400)), by="sex")
    gap = found.gap("selection_rate")
    assert gap.left_out == ("sex=f",)
    assert math.isnan(gap.value)
    assert found.gap("selection_rate", least_rows=3).value == pytest.approx(0.7)


def test_a_gap_of_nothing_lies_between_two_groups() -> None:
    batch = Batch.from_columns({"inputs.sex": ["f", "m"] * 30, "outputs.label": [0, 0, 1, 1] * 15}, model="m")
    gap = group_metrics(batch, by="sex").gap("selection_rate")
    assert (gap.value, gap.highest, gap.lowest) == (0.0, "sex=f", "sex=m")


def test_the_simultaneous_interval_of_the_gap_covers_whatever_the_number_of_groups() -> None:
    """Six groups of one rate: an interval of the two outermost alone would miss 0.0 far too often."""
    rng = np.random.default_rng(2)
    missed = 0
    group = np.repeat([f"g{at}" for at in range(6)], 80).tolist()
    for _ in range(300):
        batch = Batch.from_columns(
            {"inputs.group": group, "outputs.label": (rng.random(480) < 0.3).astype(np.int64)}, model="m"
        )
        missed += group_metrics(batch, by="group").gap("selection_rate").low > 0
    assert missed <= 0.05 * 300


def test_the_interval_of_calibration_covers() -> None:
    rng = np.random.default_rng(6)
    covered = []
    for _ in range(300):
        score = rng.beta(1, 9, 200)
        columns = {
            "inputs.sex": ["f"] * 200,
            "outputs.label": (score > 0.1).astype(np.int64),
            "outputs.score": score,
            "label.label": (rng.random(200) < np.minimum(score + 0.05, 1)).astype(np.int64),
        }
        (rate,) = group_metrics(Batch.from_columns(columns, model="m"), by="sex", score="score").of(
            "calibration"
        )
        covered.append(rate.low <= -0.05 <= rate.high)
    assert np.mean(covered) >= 0.94


def _gap_test(batch: Batch, **kwargs: Any) -> Outcome:
    rule = expect.group_gap("selection_rate", by="sex", **kwargs)
    test = MFT(cases=batch.with_outputs({}), expect=rule, name="test_gap", capability="fairness")
    return test.run(lambda _: {"label": batch.column("outputs.label")})


@pytest.mark.parametrize(
    ("kwargs", "status"),
    [
        ({"at_most": 0.25}, "passed"),
        ({"at_most": 0.15}, "failed"),
        ({"at_most": 0.15, "sure": True}, "passed"),
        ({"at_most": 0.05, "sure": True}, "failed"),
        ({"min_ratio": 0.8}, "failed"),
        ({"min_ratio": 0.3}, "passed"),
        ({"min_ratio": 0.3, "at_most": 0.1}, "failed"),
        ({"at_most": 0.1, "least_rows": 1000}, "skipped"),
    ],
)
def test_the_verdict_is_of_the_estimate_or_only_when_sure(kwargs: dict[str, Any], status: str) -> None:
    outcome = _gap_test(_two_groups((0.1, 0.3), (150, 200)), **kwargs)
    assert outcome.status == status
    assert {measure.group for measure in outcome.measures} >= {"sex=f", "sex=m"} or status == "skipped"


def test_the_outcome_says_every_group_and_travels_as_json() -> None:
    outcome = _gap_test(_two_groups((1.0, 0.3), (3, 400)), at_most=0.1)
    assert outcome.status == "skipped"
    assert [measure.group for measure in outcome.measures] == ["sex=f (too few)", "sex=m"]
    failed = _gap_test(_two_groups((0.1, 0.3), (150, 200)), at_most=0.1)
    assert "gap 0.200" in failed.message
    back = Outcome.from_dict(json.loads(json.dumps(failed.to_dict(), allow_nan=False)))
    assert back.measures == failed.measures


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "at_most= or min_ratio= expected"),
        ({"metric": "recall", "at_most": 0.1}, "metric must be one of selection_rate"),
        ({"metric": "calibration", "at_most": 0.1}, "needs score="),
        ({"metric": "calibration", "min_ratio": 0.8, "score": "s"}, "has no ratio"),
    ],
)
def test_a_rule_that_could_not_fail_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expect.group_gap(by="sex", **kwargs)


def test_the_rule_is_data() -> None:
    rule = expect.group_gap("tpr", by=["sex", "race"], at_most=0.1, sure=True)
    spec = json.loads(json.dumps(expect.spec_of(rule)))
    again = expect.from_spec(spec)
    assert again.scope == "suite"
    assert expect.spec_of(again) == expect.spec_of(rule)


def test_a_flip_of_the_protected_attribute_runs_on_cases_of_the_suite() -> None:
    flip = INV(perturb=perturb.tabular.flip("sex", {"f": "m", "m": "f"}), name="test_flip")

    def predict(batch: Batch) -> dict[str, Any]:
        return {"label": (batch.column("inputs.sex") == "m").astype(np.int64)}

    (outcome,) = Suite("s", (flip,)).run(predict, cases=_two_groups((0.1, 0.3), (30, 20)))
    assert (outcome.cases, outcome.failures) == (50, 50)


def test_a_gap_without_cases_is_judged_on_a_dataset_version() -> None:
    gap = MFT(expect=expect.group_gap("tpr", by="sex", at_most=0.1), name="test_gap")
    rows = _two_groups((0.1, 0.3), (200, 200))
    labelled = rows.with_outputs({}).with_columns({"label.label": np.ones(400, dtype=np.int64)})

    def predict(batch: Batch) -> dict[str, Any]:
        return {"label": rows.column("outputs.label")}

    assert Suite("s", (gap,)).run(predict) == ()
    (outcome,) = Suite("s", (gap,)).run(predict, cases=labelled)
    assert outcome.status == "failed"
    assert outcome.measures[-1].value == pytest.approx(0.2)
    with pytest.raises(ValueError, match="test_gap has no cases of its own"):
        gap.examples()
    with pytest.raises(ValueError, match="labels= needs cases="):
        MFT(labels=[1])


def test_groups_are_in_alphabetical_order_and_metrics_are_kept_apart() -> None:
    found: GroupMetrics = group_metrics(_batch(_records()), by="region", positive="yes")
    assert list(found.rows) == ["region=north", "region=south"]
    assert len(found.rates) == 2 * 5


def test_groups_of_too_few_entities_take_part_in_no_gap() -> None:
    rows = 600
    sex = np.array(["f", "m"], dtype=object)[np.arange(rows) % 2]
    entity = np.where(sex == "f", np.arange(rows) % 4, 100 + np.arange(rows) % 200)
    columns: dict[str, Any] = {"inputs.sex": sex, "outputs.label": np.arange(rows) % 3 == 0}
    alone = group_metrics(Batch.from_columns(columns, model="m"), by="sex", positive=True)
    columns["entity"] = [f"e{number}" for number in entity.tolist()]
    found = group_metrics(Batch.from_columns(columns, model="m"), by="sex", positive=True)
    assert alone.gap("selection_rate").left_out == ()
    assert found.gap("selection_rate").left_out == ("sex=f",)
    few, many = found.of("selection_rate")
    assert (few.low, few.high, few.rows) == (0.0, 1.0, 300)
    assert 0.0 < many.low < many.high < 1.0
