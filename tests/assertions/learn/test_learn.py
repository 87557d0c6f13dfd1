"""Assertions learned from reference data: what they find, and how often they fire afterwards."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from outrider.assertions import Batch, load_assertions
from outrider.assertions.checker import severities_of
from outrider.assertions.learn import Proposal, learn, merged
from outrider.assertions.learn.faults import resolution
from outrider.dataops.learned.proposals import accept
from outrider.errors import ConfigError
from tests.requirements import require_data
from tests.soak import examples
from tests.strategies import batches


def adult() -> Batch:
    frame = pd.read_parquet(require_data("adult_census") / "adult.parquet")
    inputs = [str(name) for name in frame if name != "income"]
    return Batch.from_pandas(frame, model="adult", inputs=inputs, labels=["income"])


def census(part: str) -> Batch:
    frame = pd.read_parquet(require_data("acs_employment_ma") / f"{part}.parquet")
    outputs = ["prediction", "predicted_probability"]
    inputs = [str(name) for name in frame if name not in ("id", "employed", "year", *outputs)]
    return Batch.from_pandas(frame, model="acs", inputs=inputs, outputs=outputs, id="id")


def elec2() -> Batch:
    """One stream of half-hours."""
    frame = pd.read_parquet(require_data("elec2") / "elec2.parquet")
    names = ("nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
    columns: dict[str, Any] = {f"inputs.{name}": frame[name].to_numpy() for name in names}
    columns["entity"] = ["nsw"] * len(frame)
    columns["ts"] = np.datetime64("1996-05-07", "us") + frame["step"].to_numpy() * np.timedelta64(30, "m")
    return Batch.from_columns(columns, model="elec2")


def rate(proposal: Proposal, batch: Batch) -> float:
    return float(np.count_nonzero(severities_of(proposal.assertion(), batch)) / batch.rows)


def test_rates_expected_in_one_year_hold_in_the_next_three() -> None:
    proposals, later = learn(census("reference")), census("analysis")
    inside = [low <= rate(one, later) <= high for one in proposals for low, high in [one.interval]]
    assert len(inside) >= 40
    assert np.mean(inside) >= 0.9
    # The one that fires often found something: ages are cut off at another value from 2016 on.
    loudest = max(proposals, key=lambda one: rate(one, later))
    assert loudest.name == "AGEP_range"
    assert rate(loudest, later) < 0.006


@pytest.mark.parametrize(
    ("column", "change", "proposal"),
    [
        ("inputs.age", lambda ages: [-one for one in ages], "age_range"),
        ("inputs.workclass", lambda words: [word.upper() for word in words], "workclass_categories"),
        ("inputs.sex", lambda words: [None for _ in words], "no_null_inputs"),
        ("inputs.sex", lambda words: ["Female" for _ in words], "relationship_against_sex"),
    ],
)
def test_injected_faults_are_found(column: str, change: Any, proposal: str) -> None:
    batch = adult()
    [found] = [one for one in learn(batch.slice(0, 24_000)) if one.name == proposal]
    later = batch.slice(24_000)
    husbands = later.column("inputs.relationship") == "Husband"
    hit = husbands & (np.random.default_rng(0).random(later.rows) < 0.05)
    values = later.to_arrow().column(column).to_pylist()
    wrong = change(values)
    faulty = later.with_columns({column: [w if h else v for v, w, h in zip(values, wrong, hit, strict=True)]})
    flagged = severities_of(found.assertion(), faulty) > 0
    assert flagged[hit].mean() > 0.9
    assert flagged[~hit].mean() < 0.001


def test_changes_of_a_label_are_learned_within_entities_whatever_the_order_of_the_file() -> None:
    rng = np.random.default_rng(0)
    states = np.array(["new", "paid", "sent", "done"])
    order = np.tile(np.arange(4), 300)
    columns: dict[str, Any] = {
        "entity": np.repeat([f"o{one}" for one in range(300)], 4).tolist(),
        "ts": np.datetime64("2026-01-05", "us") + np.arange(1200) * np.timedelta64(1, "s"),
        "outputs.label": states[order].tolist(),
        "inputs.sum": rng.random(1200),
    }
    shuffled = Batch.from_columns(columns, model="m").take(rng.permutation(1200))
    [found] = [one for one in learn(shuffled) if one.kind == "transitions"]
    assert found.parameters["allowed"] == [["new", "paid"], ["paid", "sent"], ["sent", "done"]]
    assert (found.fired, found.held_out) == (0, 360)
    back = Batch.from_columns({"entity": ["x"] * 2, "outputs.label": ["sent", "new"]}, model="m")
    assert severities_of(found.assertion(), back).tolist() == [0.0, 1.0]


def test_columns_that_determine_or_order_each_other_are_learned() -> None:
    rng = np.random.default_rng(0)
    country = rng.choice(["DE", "FR", "JP"], 3000)
    start = rng.normal(size=3000)
    columns: dict[str, Any] = {
        "inputs.country": country.tolist(),
        "inputs.currency": [{"JP": "JPY"}.get(one, "EUR") for one in country],
        "inputs.start": start,
        "inputs.end": start + rng.exponential(size=3000),
    }
    found = {one.name: one for one in learn(Batch.from_columns(columns, model="m"))}
    assert dict(found["country_determines_currency"].parameters["mapping"])["JP"] == "JPY"
    assert "start_at_most_end" in found
    assert "end_at_most_start" not in found


def test_rates_come_from_the_later_records_and_a_column_that_moves_is_named() -> None:
    rng = np.random.default_rng(0)
    level = np.concatenate([np.zeros(2100), np.full(900, 0.3)])
    columns: dict[str, Any] = {
        "inputs.warm": rng.random(3000) * 0.5 + level,
        "inputs.still": rng.random(3000),
        "ts": np.datetime64("2026-01-05", "us") + np.arange(3000) * np.timedelta64(1, "s"),
    }
    order = rng.permutation(3000)  # where they stand does not matter once they have times
    shuffled = Batch.from_columns(columns, model="m").take(order)
    found = {one.name: one for one in learn(shuffled, max_fire_rate=1.0)}
    assert found["warm_range"].fired / found["warm_range"].held_out == pytest.approx(0.6, abs=0.05)
    assert found["warm_range"].drift.keys() == {"inputs.warm"}
    assert "Drifts: inputs.warm by 0." in found["warm_range"].to_python()
    assert found["still_range"].drift == {}
    assert Proposal.from_dict(json.loads(json.dumps(found["warm_range"].as_dict()))) == found["warm_range"]
    assert "warm_range" not in {one.name for one in learn(shuffled)}


def test_a_proposal_of_before_drift_was_told_is_read() -> None:
    fields = proposal().as_dict()
    del fields["drift"]
    assert Proposal.from_dict(fields) == proposal()


def test_rules_that_fire_often_in_the_next_period_were_marked() -> None:
    market = elec2()
    loud = 0
    for begin in range(0, 32_000, 4000):
        later = market.slice(begin + 12_000, 4000)
        for one in learn(market.slice(begin, 12_000)):
            if rate(one, later) > 0.005:
                loud += 1
                assert one.drift, one.name
    assert loud >= 5
    assert not any(one.drift for one in learn(adult()))


def test_all_proposals_together_fire_within_the_rate() -> None:
    batch = adult().slice(0, 24_000)
    for most in (0.005, 0.0002):
        proposals = learn(batch, max_fire_rate=most)
        fired = [severities_of(one.assertion(), batch.slice(16_800)) > 0 for one in proposals]
        assert len(proposals) > 10
        assert np.logical_or.reduce(fired).mean() <= most


@pytest.mark.parametrize("column", ["nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"])
def test_a_sensor_that_is_stuck_for_a_day_is_found(column: str) -> None:
    proposals = [one for one in learn(elec2().slice(18_000, 20_000)) if one.kind == "stuck"]
    later = elec2().slice(38_000, 4000)
    [found] = [one for one in proposals if one.parameters["column"] == f"inputs.{column}"]
    value = later.column(f"inputs.{column}").copy()
    value[1000:1048] = value[1000]
    stuck = severities_of(found.assertion(), later.with_columns({f"inputs.{column}": value})) > 0
    assert stuck[1001:1048].any()
    assert rate(found, later) <= 0.001


def test_records_that_come_once_an_hour_are_one_entity_to_a_learned_rule() -> None:
    columns: dict[str, Any] = {
        "entity": ["s"] * 500,
        "ts": np.datetime64("2026-01-05", "us") + np.arange(500) * np.timedelta64(3, "h"),
        "inputs.x": np.random.default_rng(0).random(500),
    }
    [found] = [one for one in learn(Batch.from_columns(columns, model="m")) if one.kind == "stuck"]
    assert found.parameters == {"column": "inputs.x", "rows": 4, "idle_s": 21_600.0}


@pytest.mark.parametrize(
    ("column", "least"), [("age", 0.97), ("education-num", 1.0), ("hours-per-week", 0.99)]
)
def test_another_unit_shows_in_the_steps_of_a_column(column: str, least: float) -> None:
    name = f"inputs.{column}"
    proposals = [one for one in learn(adult().slice(0, 24_000)) if one.parameters.get("column") == name]
    later = adult().slice(24_000)
    wrong = later.with_columns({name: later.column(name) * 2.54})
    fired = [severities_of(one.assertion(), wrong) > 0 for one in proposals]
    assert {"range", "resolution"} <= {one.kind for one in proposals}
    assert np.logical_or.reduce(fired).mean() >= least


def people(**more: Any) -> Batch:
    rng = np.random.default_rng(0)
    columns = {
        "inputs.age": rng.normal(40.0, 9.0, 2000).clip(18, 90),
        "inputs.room_temperature": rng.normal(21.0, 1.5, 2000),
        "inputs.reach_cm": rng.normal(70.0, 4.0, 2000),
        "inputs.reading": rng.normal(21.0, 1.5, 2000),
        "outputs.label": rng.choice(["a", "b"], 2000).tolist(),
        "label.label": rng.choice(["a", "b"], 2000).tolist(),
    }
    return Batch.from_columns(columns | more, model="m")


def test_learn_proposes_no_rule_that_reads_a_label() -> None:
    reference = people()
    live = Batch(reference.to_arrow().drop_columns(["label.label"]), model="m")
    proposals = learn(reference)
    assert "no_null_outputs" in {one.name for one in proposals}
    for proposal in proposals:  # every one of them judges records as they come, before their labels
        assert "label." not in json.dumps(proposal.parameters)
        assert rate(proposal, live) <= 0.005


def test_learn_takes_units_from_the_name_of_a_column_or_a_declaration_alone() -> None:
    found = {one.parameters["column"]: one for one in learn(people()) if one.kind == "units"}
    assert found.keys() == {"inputs.room_temperature", "inputs.reach_cm"}
    assert found["inputs.room_temperature"].parameters["conversions"].keys() == {
        "Fahrenheit for Celsius",
        "Kelvin for Celsius",
    }
    assert "Kelvin" not in found["inputs.reach_cm"].why
    kelvin = people(**{"inputs.room_temperature": people().column("inputs.room_temperature") + 273.15})
    assert rate(found["inputs.room_temperature"], kelvin) > 0.99
    declared = learn(people(), units={"inputs.reading": "celsius"})
    assert "inputs.reading" in {one.parameters["column"] for one in declared if one.kind == "units"}
    with pytest.raises(ValueError, match=r"units: no column 'inputs.other'"):
        learn(people(), units={"inputs.other": "kg"})
    with pytest.raises(ValueError, match=r"units: 'inputs.age': a unit such as celsius.*got 'years'"):
        learn(people(), units={"inputs.age": "years"})


def test_a_resolution_is_measured_through_rounding_and_not_seen_in_what_has_none() -> None:
    rng = np.random.default_rng(0)
    count = rng.integers(100, 8000, 5000)
    step, tolerance = resolution(np.round(count / 6723, 6)) or (0.0, 0.0)
    assert step == pytest.approx(1 / 6723, rel=1e-6)
    assert tolerance < 1e-6
    for value in (
        rng.random(5000),
        np.round(rng.random(5000), 7),
        rng.normal(size=5000),
        rng.lognormal(size=99),
    ):
        assert resolution(value) is None
    for value in (np.zeros(5000), np.array([1e308, -1e308, 0.0]), rng.integers(-(2**62), 2**62, 99) / 1.0):
        resolution(value)  # says something or nothing, and warns of nothing


def test_columns_of_like_range_are_told_apart_where_one_record_can_show_it() -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "inputs.rooms": rng.gamma(4.0, 1.0, 6000),
        "inputs.area": rng.gamma(4.0, 5.0, 6000),
        "inputs.left": rng.random(6000),
        "inputs.right": rng.random(6000),
        "inputs.from": rng.choice(["1", "2", "3"], 6000, p=[0.9, 0.09, 0.01]).tolist(),
        "inputs.to": rng.choice(["1", "2", "3"], 6000, p=[0.01, 0.09, 0.9]).tolist(),
    }
    batch = Batch.from_columns(columns, model="m")
    found = {one.name: one for one in learn(batch.slice(0, 4000)) if one.kind == "swaps"}
    assert found.keys() == {"area_swapped_rooms", "from_swapped_to"}
    later = batch.slice(4000)
    for first, second, name in (("area", "rooms", "area_swapped_rooms"), ("from", "to", "from_swapped_to")):
        one, other = (later.column(f"inputs.{column}") for column in (first, second))
        wrong = later.with_columns({f"inputs.{first}": other.tolist(), f"inputs.{second}": one.tolist()})
        assert rate(found[name], wrong) > 0.4
        assert rate(found[name], later) <= 0.002


def test_too_few_records_speak_for_nothing() -> None:
    assert learn(Batch.from_columns({"inputs.age": [1.0] * 20}, model="m")) == []
    with pytest.raises(ValueError, match="held_out"):
        learn(Batch.from_columns({"inputs.age": [1.0] * 20}, model="m"), held_out=1.0)


def test_a_proposal_survives_json_and_becomes_the_same_assertion_from_a_file(tmp_path: Path) -> None:
    batch = adult()
    proposals = learn(batch.slice(0, 24_000))
    assert [Proposal.from_dict(one.as_dict()) for one in proposals] == proposals
    path = tmp_path / "checks" / "learned.py"
    assert accept(proposals, path)
    loaded = {judge.name: judge for judge in load_assertions(path)}
    later = batch.slice(24_000)
    for one in proposals:
        assert loaded[one.name].revision == one.assertion().revision
        assert (
            severities_of(loaded[one.name], later).tolist() == severities_of(one.assertion(), later).tolist()
        )


def proposal(name: str = "age_range", high: int = 90) -> Proposal:
    parameters = {"column": "inputs.age", "low": 17, "high": high}
    return Proposal("range", name, "bounds", parameters, 7000, 3000, 1, "17 to 90")


OWN = '''"""Checks of the team."""

import numpy as np

from outrider.assertions import assertion
from outrider.assertions.library import required

present = required(["inputs.age"])


@assertion
def own(batch):
    return np.zeros(batch.rows, dtype=bool)
'''


def test_accepting_is_idempotent_keeps_what_people_wrote_and_renews_what_was_learned(tmp_path: Path) -> None:
    path = tmp_path / "checks.py"
    path.write_text(OWN, encoding="utf-8")
    assert accept([proposal(), proposal("other")], path)
    assert not accept([proposal()], path)
    once = path.read_text(encoding="utf-8")
    assert "import bounds, required" in once
    assert OWN.partition("present")[2] in once
    assert accept([proposal(high=95)], path)
    assert path.read_text(encoding="utf-8") == once.replace("high=90", "high=95", 1)
    assert [judge.name for judge in load_assertions(path)] == [
        "required_age",
        "own",
        "age_range",
        "other",
    ]


def test_a_name_that_a_person_gave_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="present on line 8 was not learned"):
        merged(OWN, [proposal("present")])
    with pytest.raises(ConfigError, match="Python expected"):
        merged("def (", [proposal()])


@pytest.mark.parametrize(
    "change",
    [
        {"factory": "eval"},
        {"name": "x; import os"},
        {"parameters": {"column": "a"}},
        {"parameters": {"code": 1}},
    ],
)
def test_what_is_no_proposal_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="proposal"):
        Proposal.from_dict(proposal().as_dict() | change)


def test_numbers_that_are_names_have_no_range() -> None:
    columns = {"inputs.order": np.arange(3000), "inputs.items": np.arange(3000) % 40}
    names = {one.name for one in learn(Batch.from_columns(columns, model="m"))}
    assert "items_range" in names
    assert "order_range" not in names


@settings(max_examples=examples(60))
@given(batches(min_size=4, max_size=12))
def test_whatever_the_columns_hold_proposals_are_python_that_makes_the_same_assertions(batch: Batch) -> None:
    many = Batch.concat([batch] * 3)
    proposals = learn(many, min_support=2, max_fire_rate=1.0)
    space: dict[str, Any] = {}
    exec(merged("", proposals), space)
    for one in proposals:
        assert space[one.name].revision == one.assertion().revision
        again = Proposal.from_dict(json.loads(json.dumps(one.as_dict())))
        assert again.assertion().revision == one.assertion().revision


def test_a_column_that_is_named_like_code_stays_a_name(tmp_path: Path) -> None:
    column = 'inputs.x\nraise SystemExit("owned")\r#"""\u2028²'
    batch = Batch.from_columns({column: np.arange(3000) % 40}, model="m")
    proposals = learn(batch)
    accept(proposals, tmp_path / "learned.py")
    [judge] = [one for one in load_assertions(tmp_path / "learned.py") if one.name.endswith("_range")]
    assert severities_of(judge, batch.with_columns({column: [99] * 3000})).all()
    assert not accept(proposals, tmp_path / "learned.py")


def test_expected_rates_count_entities_and_days_not_records() -> None:
    rng = np.random.default_rng(0)
    day = np.sort(rng.integers(40, size=8000))
    odd = (day == 35) & (rng.random(8000) < 0.15)
    columns = {
        "ts": np.datetime64("2026-01-05", "us") + day * np.timedelta64(1, "D"),
        "inputs.height": np.where(odd, 9.0, rng.normal(1.7, 0.1, 8000)),
    }

    def height(**more: Any) -> Proposal:
        found = learn(Batch.from_columns({**columns, **more}, model="m"), max_fire_rate=0.05)
        return next(one for one in found if one.kind == "range")

    by_day, by_row = height(), height(ts=np.full(8000, columns["ts"][0]))
    assert (by_day.fired > 0, by_day.stretch) == (True, "")
    assert by_day.effect > 3.0
    assert by_day.interval[1] > 1.5 * by_day.expected_fire_rate
    assert by_row.stretch == "rows whose event times do not differ"
    assert f"; holds for {by_row.stretch}." in by_row.to_python()
    nothing = np.where(odd, 1.7, columns["inputs.height"])
    few = height(**{"inputs.height": nothing, "entity": [f"e{row % 6}" for row in range(8000)]})
    many = height(**{"inputs.height": nothing})
    assert few.fired <= 2 * many.fired + 2
    assert few.interval[1] > 5 * many.interval[1]
