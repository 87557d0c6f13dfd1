"""Incidents name the version that explains them, and none where versions share the rise."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, text

from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.ledger.minutes import MINUTE_US
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.state.database import write

START_US = 1_790_000_000_000_000 - 1_790_000_000_000_000 % MINUTE_US
RULE = AlarmRule(horizon_s=86_400.0, baseline_s=4 * 3600.0, quiet_s=600.0)
Minute = Mapping[str, tuple[int, float]]
"""Entities and share of flags, by version."""


class Counted:
    """Minutes of exact counts, looked at by the service's own decision."""

    def __init__(self, engine: Engine, seed: int = 0, model: str = "m") -> None:
        self.engine, self.model, self.rng = engine, model, np.random.default_rng(seed)
        self.book = IncidentBook(model, RULE)
        self.now_us = START_US
        self.run(
            "INSERT INTO assertion (model, name, revision, kind, level, description, owner, active,"
            " suspended_until_us, suspension, first_seen_us, first_seq, definition, window_by, judged_us,"
            " reads, of_sender)"
            " VALUES (:m, 'x', 'r', 'assertion', 'warning', '', '', 1, 0, '', 0, 0, '', '', 0, '[]', 0)",
            m=model,
        )

    def run(self, sql: str, **values: Any) -> None:
        with write(self.engine) as connection:
            connection.execute(text(sql), values)

    def minute(self, versions: Minute, *, part: str = "") -> None:
        self.count(versions, part)
        self.now_us += MINUTE_US
        with write(self.engine) as connection:
            self.book.settle(connection, now_us=self.now_us)

    def count(self, versions: Minute, part: str = "") -> None:
        for version, (entities, share) in versions.items():
            n = int(self.rng.poisson(entities))
            own = {"m": self.model, "part": part, "at": self.now_us, "v": version}
            if n:
                self.run("INSERT INTO record_count VALUES (:m, :part, :at, :v, :n, :n)", **own, n=n)
            if hits := int(self.rng.binomial(n, share)):
                sql = "INSERT INTO flag_count VALUES (:m, 'champion', 'x', 'r', :part, :at, :v, :n, :n, :n)"
                self.run(sql, **own, n=hits)

    def minutes(self, number: int, at: Callable[[int], Minute]) -> list[IncidentRow]:
        for minute in range(number):
            self.minute(at(minute))
        with self.engine.connect() as connection:
            found = stored_incidents.list_incidents(connection, now_us=self.now_us)
        return [row for row in reversed(found) if row.model == self.model]


def test_a_canary_that_is_worse_is_named_and_over_once_it_is_gone(engine: Engine) -> None:
    counted = Counted(engine)

    def at(minute: int) -> Minute:
        return {"1": (190, 0.05)} | ({"2-canary": (10, 0.5)} if minute >= 90 else {})

    (row,) = counted.minutes(130, at)
    first = row.details["explained_by"][0]
    assert (first["assertion"], first["slice"], first["version"]) == ("x", "", "2-canary")
    assert first["now"]["share"] == pytest.approx(0.5, abs=0.1)
    assert row.opened_us - (START_US + 90 * MINUTE_US) < 15 * MINUTE_US
    assert row.details["before"]["share"] == pytest.approx(0.05, abs=0.02)
    assert "of the entities of version 2-canary in the last" in row.sentence
    rows = counted.minutes(30, lambda _: {"1": (200, 0.05)})
    assert [one.status for one in rows] == ["resolved"]


@pytest.mark.parametrize(("entities", "share"), [(40, 0.9), (10, 0.5)])
def test_two_canaries_that_are_worse_are_an_incident_each(
    engine: Engine, entities: int, share: float
) -> None:
    def at(minute: int) -> Minute:
        worse = dict.fromkeys(("2", "3"), (entities, share)) if minute >= 90 else {}
        return {"1": (20 * entities, 0.05)} | worse

    rows = Counted(engine).minutes(130, at)
    assert sorted(row.details["explained_by"][0]["version"] for row in rows) == ["2", "3"]


@pytest.mark.parametrize("ended_by", ["rule", "person"])
def test_what_was_told_of_all_records_is_not_told_of_a_version_again(engine: Engine, ended_by: str) -> None:
    counted = Counted(engine)

    def at(minute: int) -> Minute:
        share = 0.5 if 90 <= minute < 115 else 0.05
        return {"2" if 100 <= minute < 115 else "1": (100, share)}

    (row,) = counted.minutes(118, at)
    if ended_by == "person":
        with write(engine) as connection:
            stored_incidents.resolve(connection, row.id, now_us=counted.now_us, why="mended")
    rows = counted.minutes(40, lambda _: {"1": (100, 0.05)})
    assert [(one.id, one.status) for one in rows] == [(row.id, "resolved")]


def test_a_version_that_all_records_moved_to_is_named(engine: Engine) -> None:
    (row,) = Counted(engine).minutes(140, lambda at: {"2": (100, 0.3)} if at >= 90 else {"1": (100, 0.05)})
    assert row.details["explained_by"][0]["version"] == "2"


@pytest.mark.parametrize("seed", range(3))
def test_versions_that_rise_together_are_no_cause(engine: Engine, seed: int) -> None:
    def at(minute: int) -> Minute:
        share = 0.25 if minute >= 100 else 0.05
        return {"1": (190, share), "2": (10, share)}

    (row,) = Counted(engine, seed).minutes(130, at)
    assert [one.get("version") for one in row.details["explained_by"]] == [None]


def test_invented_versions_that_are_worse_are_named_together(engine: Engine) -> None:
    def at(minute: int) -> Minute:
        return {"1": (100, 0.05), OTHERS: (20, 0.9 if minute >= 90 else 0.05)}

    (row,) = Counted(engine).minutes(120, at)
    assert row.details["explained_by"][0]["version"] == OTHERS
    assert "of the entities of other versions in the last" in row.sentence


@pytest.mark.parametrize("seed", range(2))
def test_rollouts_canaries_and_storms_of_the_usual_share_are_no_alarm(engine: Engine, seed: int) -> None:
    counted = Counted(engine, seed)

    def at(minute: int) -> Minute:
        new = min(1.0, max(0.0, (minute - 60) / 60))  # a rollout over an hour
        volume = 2_000 if 130 <= minute < 140 else 200
        return {"1": (int(volume * (1 - new)), 0.1), "2": (int(volume * new), 0.1), "3": (2, 0.1)}

    assert counted.minutes(180, at) == []


def test_a_canary_of_a_harder_slice_is_no_worse(engine: Engine) -> None:
    counted = Counted(engine)

    def hard(minute: int) -> Minute:
        return {"1": (40, 0.4)} | ({"2": (10, 0.4)} if minute >= 60 else {})

    for minute in range(110):
        counted.count({"1": (150, 0.05)}, "easy")
        counted.minute(hard(minute), part="hard")
    assert counted.minutes(0, hard) == []


def test_versions_that_have_always_differed_are_no_alarm(engine: Engine) -> None:
    assert Counted(engine).minutes(120, lambda _: {"1": (100, 0.05), "2": (100, 0.3)}) == []
