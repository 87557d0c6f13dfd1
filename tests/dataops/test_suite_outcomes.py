import dataclasses
import datetime
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine, text

from outrider.assertions import Batch
from outrider.behavioral_tests import MFT, Example, Outcome
from outrider.behavioral_tests.outcome import Measure
from outrider.dataops.improvement import suite_outcomes
from outrider.dataops.state.database import write
from tests.databases import migrated

OUTCOME = Outcome(
    name="test_negation",
    kind="MFT",
    capability="negation",
    description="a denied word",
    cases=40,
    failures=3,
    not_applicable=2,
    tolerance=0.05,
    rate=0.075,
    low=0.026,
    high=0.199,
    examples=(Example("c1", 1.0, {"text": "not <good>"}, {"label": "positive"}, label={"label": "neg"}),),
    suite="test_mood",
    revision="abc",
    measures=(Measure("selection rate", 0.272, 0.26, 0.28, 9000, "men"),),
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = migrated(tmp_path / "state.db")
    yield engine
    engine.dispose()


def test_test_without_an_answer_of_the_model_replaces_no_outcome(engine: Engine) -> None:
    late = dataclasses.replace(OUTCOME, error="ServerError: http://far gave no answer within 2 s")
    with write(engine) as connection:
        suite_outcomes.keep(connection, "mood", "1", [OUTCOME], source="registered", now_us=1)
        for version in ("1", "2"):
            suite_outcomes.keep(connection, "mood", version, [late], source="gate", now_us=2)
    with engine.connect() as connection:
        found = suite_outcomes.list_outcomes(connection, "mood")
    assert [(row.version, row.status, row.at_us) for row in found] == [("1", "failed", 1)]


def test_the_newest_outcome_of_a_test_is_kept_for_each_version(engine: Engine) -> None:
    mended = dataclasses.replace(OUTCOME, failures=0, rate=0.0, low=0.0, examples=(), revision="abd")
    with write(engine) as connection:
        suite_outcomes.keep(connection, "mood", "1", [OUTCOME], source="registered", now_us=1)
        suite_outcomes.keep(connection, "mood", "2", [OUTCOME], source="gate", now_us=2)
        suite_outcomes.keep(connection, "mood", "2", [mended], source="cli", now_us=3)
        suite_outcomes.keep(connection, "other", "2", [OUTCOME], source="gate", now_us=4)
    with engine.connect() as connection:
        rows = suite_outcomes.list_outcomes(connection, "mood")
        assert suite_outcomes.revisions(connection, "mood", "2") == {("test_mood", "test_negation"): "abd"}
    assert [(row.version, row.status, row.failures, row.source, row.at_us) for row in rows] == [
        ("1", "failed", 3, "registered", 1),
        ("2", "passed", 0, "cli", 3),
    ]
    assert rows[0].measures == ()  # of tests that are judged as a whole alone


def test_figures_of_a_whole_test_are_listed_with_it(engine: Engine) -> None:
    whole = dataclasses.replace(OUTCOME, cases=1, failures=1, rate=1.0, low=0.2, high=1.0, examples=())
    with write(engine) as connection:
        suite_outcomes.keep(connection, "mood", "1", [whole], source="gate", now_us=1)
    with engine.connect() as connection:
        (row,) = suite_outcomes.list_outcomes(connection, "mood")
    assert row.measures[0]["group"] == "men"


def test_what_is_kept_reads_back_as_the_outcome(engine: Engine) -> None:
    with write(engine) as connection:
        suite_outcomes.keep(connection, "mood", "1", [OUTCOME], source="gate", now_us=7)
    with engine.connect() as connection:
        found = suite_outcomes.read_outcome(connection, "mood", "1", "test_mood", "test_negation")
        assert suite_outcomes.read_outcome(connection, "mood", "1", "test_mood", "test_x") is None
        columns = connection.execute(text("SELECT * FROM suite_outcome")).mappings().one()
    assert found is not None
    assert (found.pop("source"), found.pop("at_us")) == ("gate", 7)
    assert Outcome.from_dict(found) == OUTCOME
    assert {name: columns[name] for name in ("status", "rate", "low", "high", "revision", "kind")} == {
        "status": "failed", "rate": 0.075, "low": 0.026, "high": 0.199, "revision": "abc", "kind": "MFT",
    }  # fmt: skip


def test_cases_with_dates_and_bytes_are_kept(engine: Engine) -> None:
    day = datetime.date(2026, 1, 5)
    columns = {"inputs.born": [day], "inputs.raw": [b"ab"], "inputs.days": [[day]], "label.due": [day]}
    outcome = MFT(
        name="test_due",
        cases=Batch.from_columns(columns, model="mood"),
        expect=lambda _, after: np.ones(after.rows),
    ).run(lambda batch: {"due": batch.column("inputs.born"), "raw": batch.column("inputs.raw")})
    (example,) = outcome.examples
    assert example.inputs == {"born": "2026-01-05", "raw": "YWI=", "days": ["2026-01-05"]}
    assert example.label == {"due": "2026-01-05"}
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict()))).examples == outcome.examples
    with write(engine) as connection:
        suite_outcomes.keep(connection, "mood", "1", [outcome], source="gate", now_us=1)


def test_an_infinite_figure_is_an_error_of_its_test_and_an_infinite_input_is_null(engine: Engine) -> None:
    with pytest.raises(ValueError, match="ratio: an interval of two numbers expected"):
        Measure("ratio", 1.0, 0.0, float("inf"), 9)
    whole = dataclasses.replace(OUTCOME, cases=1, measures=(Measure("ratio", float("inf"), 0.0, 1.0, 9),))
    cases = Batch.from_columns({"inputs.x": [[1.0, float("inf")]]}, model="mood")
    ran = MFT(name="test_x", cases=cases, expect=lambda _, after: np.ones(after.rows)).run(
        lambda batch: {"seen": np.array([{"score": float("inf")}] * batch.rows, dtype=object)}
    )
    with write(engine) as connection:
        suite_outcomes.keep(connection, "mood", "1", [whole, ran], source="gate", now_us=1)
    with engine.connect() as connection:
        rows = suite_outcomes.list_outcomes(connection, "mood")
    assert [row.measures[0]["value"] for row in rows if row.measures] == [None]
