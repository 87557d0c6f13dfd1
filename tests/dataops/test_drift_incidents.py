"""Drift of stored profiles opens tickets, which say what, since when and where."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sqlalchemy import Engine, insert, text

from outrider.assertions import Batch
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.explanation import iso
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.ledger.profiles import LayoutRow, ProfileRow
from outrider.dataops.ledger.stored_profiles import insert_layouts, insert_profiles
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import ChampionChange
from outrider.dataops.state.tables import table_of
from tests.requirements import require_data

HOUR_US = 3_600_000_000
START_US = 500_000 * HOUR_US
TARGETS = [WebhookTarget("http://127.0.0.1:9/", ("incident.opened", "incident.resolved"))]
Draw = Callable[[pd.DataFrame], pd.DataFrame]


def customers(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": rng.normal(41, 9, rows),
            "income": np.exp(rng.normal(10, 1, rows)),
            "plan": rng.choice(["Basic", "Pro", "Team"], rows, p=[0.7, 0.2, 0.1]),
            "branch": rng.choice(["north", "south", "west"], rows),
            "score": rng.random(rows),
        }
    )


def usual(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def older(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(age=frame.age + 12)


ACS = ("AGEP", "SCHL", "MAR", "RELP", "CIT", "MIG", "ANC", "SEX")


class Hours:
    """Profiles of hours by slice, as the worker stores them, and the incidents behind each."""

    def __init__(
        self,
        engine: Engine,
        *,
        first: pd.DataFrame | None = None,
        names: tuple[str, ...] = ("age", "income", "plan"),
    ) -> None:
        self.engine, self.names = engine, names
        self.rng = np.random.default_rng(7)
        self.hours = 0
        self.book = IncidentBook("m", AlarmRule(), TARGETS)
        self.layout = ProfileLayout.fit(self.batch(customers(self.rng, 3000) if first is None else first))
        row = LayoutRow(self.layout.digest, 0, "", 3000, self.layout.to_json())
        with write(engine) as connection:
            insert_layouts(connection, "m", [row])

    def batch(self, frame: pd.DataFrame) -> Batch:
        inputs = [name for name in self.names if name in frame]
        outputs = [name for name in ("score", "prediction") if name in frame]
        return Batch.from_pandas(frame[[*inputs, *outputs]], model="m", inputs=inputs, outputs=outputs)

    @property
    def now_us(self) -> int:
        return START_US + self.hours * HOUR_US

    def pass_by(self, hours: int, change: Draw = usual) -> None:
        """Commit hours with the slices of ``branch``."""
        for _ in range(hours):
            frame = change(customers(self.rng, 600))
            self.commit({str(part): own for part, own in frame.groupby("branch")})

    def commit(self, parts: dict[str, pd.DataFrame]) -> None:
        start, digest, seq = self.now_us, self.layout.digest, self.hours
        rows = [
            ProfileRow(
                3600, start, "champion", "1", part, seq, digest, len(own),
                Profile.of(self.batch(own), self.layout).to_bytes(),
            )
            for part, own in parts.items()
        ]  # fmt: skip
        self.hours += 1
        with write(self.engine) as connection:
            insert_profiles(connection, "m", rows)
            self.book.settle(connection, now_us=self.now_us + 60_000_000)

    def promote(self) -> None:
        change = {
            "model": "m", "version": "2", "action": "promoted", "by": "", "reason": "", "at_us": self.now_us,
        }  # fmt: skip
        with write(self.engine) as connection:
            connection.execute(insert(table_of(ChampionChange)), [change])

    def incidents(self) -> list[IncidentRow]:
        with self.engine.connect() as connection:
            found = stored_incidents.list_incidents(connection, now_us=self.now_us)
        return [row for row in reversed(found) if row.assertion != "records"]

    def told(self, event: str) -> list[dict[str, Any]]:
        with self.engine.connect() as connection:
            rows = connection.execute(text("SELECT event, payload FROM outbox ORDER BY rowid")).all()
        return [json.loads(row.payload)["data"] for row in rows if row.event == event]


@pytest.fixture
def hours(engine: Engine) -> Hours:
    return Hours(engine)


def test_two_usual_days_open_nothing_and_a_shift_opens_a_ticket_that_says_what_and_since_when(
    hours: Hours,
) -> None:
    hours.pass_by(48)
    assert hours.incidents() == []
    onset = hours.now_us
    hours.pass_by(4, older)
    (found,) = hours.incidents()
    assert (found.kind, found.level, found.assertion, found.slice) == ("drift", "info", "inputs.age", "")
    details = found.details
    assert details["severity"] == "ticket"
    assert details["onset"]["first"] <= iso(onset) < details["onset"]["last"]
    first = details["explained_by"][0]
    assert first["assertion"] == "inputs.age"
    assert first["change"].startswith("median 4")
    assert details["before"]["share"] < details["now"]["share"]
    assert details["action"] == "retrain"
    assert details["subject_page"].startswith("/m/m/drift?since=")
    assert {one["assertion"] for one in details["explained_by"]} == {"inputs.age"}
    (told,) = hours.told("incident.opened")
    assert (told["severity"], told["level"]) == ("ticket", "info")


def test_a_column_that_is_what_it_was_ends_the_ticket_and_a_second_shift_opens_another(hours: Hours) -> None:
    hours.pass_by(26)
    hours.pass_by(4, older)
    hours.pass_by(6)
    (found,) = hours.incidents()
    assert found.status == "resolved"
    assert "inputs.age is what it was before" in found.note
    hours.pass_by(4, older)
    assert [row.status for row in hours.incidents()] == ["resolved", "open"]


def test_a_shift_in_one_slice_is_told_of_that_slice_first(hours: Hours) -> None:
    def poorer(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(income=frame.income.where(frame.branch != "north", frame.income / 4))

    hours.pass_by(26)
    hours.pass_by(5, poorer)
    found = hours.incidents()[0]
    assert (found.assertion, found.slice) == ("inputs.income", "north")


def test_columns_of_one_onset_are_one_ticket_and_unseen_categories_ask_for_the_sender(hours: Hours) -> None:
    def lower(frame: pd.DataFrame) -> pd.DataFrame:
        return older(frame.assign(plan=frame.plan.str.lower()))

    hours.pass_by(26)
    hours.pass_by(3, lower)
    (found,) = hours.incidents()
    assert {one["assertion"] for one in found.details["explained_by"]} == {"inputs.age", "inputs.plan"}


def test_nulls_in_part_are_a_ticket_and_a_column_that_is_gone_is_a_silence(hours: Hours) -> None:
    def half(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(income=frame.income.where(np.arange(len(frame)) % 2 == 0))

    hours.pass_by(26)
    hours.pass_by(2, half)
    hours.pass_by(3, lambda frame: half(frame).drop(columns="age"))
    kinds = {row.assertion: (row.kind, row.level, row.details["action"]) for row in hours.incidents()}
    assert kinds["inputs.income"] == ("drift", "info", "check_sender")
    assert kinds["inputs.age"] == ("silence", "warning", "check_sender")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"income": np.nan, "plan": "Basic"}, {"inputs.income", "inputs.plan"}),
        ({"age": "forty"}, {"inputs.age"}),
        ({"age": np.inf}, {"inputs.age"}),
    ],
    ids=["null and constant", "of another type", "infinite"],
)
def test_a_column_that_says_nothing_any_more_is_a_silence(
    hours: Hours, changed: dict[str, Any], expected: set[str]
) -> None:
    hours.pass_by(26)
    hours.pass_by(3, lambda frame: frame.assign(**changed))
    kinds = {one["assertion"]: row.kind for row in hours.incidents() for one in row.details["explained_by"]}
    assert kinds == dict.fromkeys(expected, "silence")
    assert all(row.details["severity"] == "page" for row in hours.incidents())


def test_what_a_person_resolves_is_the_new_normal(hours: Hours) -> None:
    hours.pass_by(26)
    hours.pass_by(4, older)
    (found,) = hours.incidents()
    with write(hours.engine) as connection:
        stored_incidents.resolve(connection, found.id, now_us=hours.now_us, why="as expected")
    hours.book = IncidentBook("m", AlarmRule(), TARGETS)
    hours.pass_by(30, older)
    assert len(hours.incidents()) == 1
    hours.pass_by(4)
    assert [row.status for row in hours.incidents()] == ["resolved", "open"]


def test_a_promotion_ends_tickets_and_begins_another_reference(hours: Hours) -> None:
    hours.pass_by(26)
    hours.pass_by(4, older)
    hours.promote()
    hours.pass_by(28, older)
    (found,) = hours.incidents()
    assert found.status == "resolved"
    assert "another reference" in found.note


@pytest.mark.costly("a day of minutes passes")
def test_behind_a_promotion_inputs_are_held_against_the_former_reference_for_a_day(hours: Hours) -> None:
    def lower(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(score=frame.score / 2)

    hours.pass_by(26)
    hours.promote()
    hours.pass_by(26, lower)
    assert hours.incidents() == []  # outputs of another version
    hours.pass_by(3)
    assert [row.assertion for row in hours.incidents()] == ["outputs.score"]
    hours.book = IncidentBook("m", AlarmRule(), TARGETS)
    with write(hours.engine) as connection:
        stored_incidents.resolve(connection, hours.incidents()[0].id, now_us=hours.now_us, why="seen")
    hours.promote()
    hours.pass_by(26)
    hours.promote()
    hours.pass_by(3, older)
    assert [row.assertion for row in hours.incidents()] == ["outputs.score", "inputs.age"]


def test_inputs_may_be_held_against_what_the_champion_learned_from(engine: Engine) -> None:
    hours = Hours(engine)
    learned = hours.batch(customers(hours.rng, 5_000).assign(income=lambda frame: frame.income / 3))
    for _ in range(2):  # the state is read again
        hours.book = IncidentBook("m", AlarmRule(drift_reference="dataset"), TARGETS)
        hours.book.training = lambda: ("dataset m-train@3", learned)
        hours.pass_by(16)
    (found,) = hours.incidents()
    assert [one["assertion"] for one in found.details["explained_by"]] == ["inputs.income"]
    assert found.details["reference"]["dataset"] == "dataset m-train@3"
    assert found.details["onset"]["likeliest"] == iso(START_US)


def test_a_worker_that_starts_again_decides_the_same(hours: Hours) -> None:
    hours.pass_by(26)
    hours.pass_by(1, lambda frame: frame.assign(age=frame.age + 4))
    hours.book = IncidentBook("m", AlarmRule(), TARGETS)
    hours.pass_by(4, lambda frame: frame.assign(age=frame.age + 4))
    assert [row.assertion for row in hours.incidents()] == ["inputs.age"]


def test_a_column_that_comes_where_it_lacked_is_neither(hours: Hours) -> None:
    for hour in range(30):
        frame = customers(hours.rng, 600)
        parts = {str(part): own for part, own in frame.groupby("branch")}
        hours.commit(parts | {"north": parts["north"].drop(columns="age")} if hour < 26 else parts)
    assert hours.incidents() == []


def test_a_column_that_only_grows_is_not_judged(hours: Hours) -> None:
    hours.pass_by(
        40, lambda frame: frame.assign(age=60.0 * hours.hours + 60.0 * hours.rng.random(len(frame)))
    )
    assert hours.incidents() == []


def test_few_windows_say_nothing(hours: Hours) -> None:
    hours.pass_by(12)
    hours.pass_by(8, older)
    assert hours.incidents() == []


def test_people_who_answer_years_later_are_no_drift_and_other_people_are_a_ticket(engine: Engine) -> None:
    folder = require_data("acs_employment_ma")
    usual_years, later = (pd.read_parquet(folder / f"{name}.parquet") for name in ("reference", "analysis"))
    later = later.merge(pd.read_parquet(folder / "analysis_target.parquet"), on="id")
    later = later[later.year == 2018]
    rng, rows = np.random.default_rng(5), 1_000

    def people(frame: pd.DataFrame, weights: NDArray[np.float64] | None = None) -> pd.DataFrame:
        return frame.sample(rows, weights=weights, random_state=rng)

    def accuracy(frame: pd.DataFrame) -> float:
        return float((frame.prediction == frame.employed).mean())

    hours = Hours(engine, first=usual_years.sample(3_000, random_state=rng), names=ACS)
    for _ in range(26):
        hours.commit({"": people(usual_years)})
    for _ in range(6):
        hours.commit({"": people(later)})
    assert hours.incidents() == []  # no share has moved by five points since 2015
    older = np.where(later.AGEP >= 50, 3.0, 1.0)
    for _ in range(4):
        hours.commit({"": people(later, older)})
    (found,) = hours.incidents()
    assert (found.kind, found.level, found.assertion) == ("drift", "info", "inputs.AGEP")
    assert {one["assertion"] for one in found.details["explained_by"]} >= {"inputs.AGEP", "inputs.MAR"}
    assert accuracy(later.sample(20_000, weights=older, random_state=rng)) > accuracy(usual_years) - 0.02
