"""Labels say that a version got worse: an incident says since when, for whom, and what to do."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import Engine, text

from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.explanation import iso
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.loss_alarms import lost_until_alarm
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.alarms.version_losses import read_losses
from outrider.dataops.ledger.commit import Effects, apply
from outrider.dataops.ledger.minutes import DAY_US
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.database import write
from outrider.dataops.triggers.inputs import read_incidents
from tests.table_rows import append

Floats = NDArray[np.float64]
RULE = AlarmRule(horizon_s=86_400.0)
START_US = 1_790_000_040_000_000
TARGETS = [WebhookTarget("http://127.0.0.1:9/", ("incident.opened", "incident.resolved"))]


class Labelled:
    """Commits minutes of records with their labels, as the worker does."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.book = IncidentBook("m", RULE, TARGETS)
        self.rng = np.random.default_rng(0)
        self.seq = 0
        self.now_us = START_US

    def minute(
        self,
        wrong: dict[str, float],
        *,
        records: int = 50,
        version: str = "1",
        entities: int = 0,
        answers: tuple[str, str] = ("0", "1"),
        shift: float | None = None,
        chance: float | None = None,
    ) -> None:
        """Commit one minute: share of wrong answers by slice, or of numbers that are ``shift`` off."""
        self.seq += 2
        self.now_us += 60_000_000
        received = {self.seq - 1: self.now_us, self.seq: self.now_us}
        effects = Effects("m", "champion", self.seq, received_us=self.now_us, received=received)
        ids: list[str] = []
        for part, share in wrong.items():
            for row in range(records):
                key = f"r{self.seq}-{part}{row}"
                ids.append(key)
                is_wrong = self.rng.random() < share
                told, truth = answers if is_wrong else (answers[1], answers[1])
                if shift is not None:
                    truth = repr(float(self.rng.normal()))
                    told = repr(float(truth) + self.rng.normal() * (shift if is_wrong else 1.0))
                entity = f"e{row % entities}" if entities else None
                place = (self.seq - 1, row, self.now_us, row, version, entity, part, told, 1.0, False)
                append(effects.records, ("m", key, *place))
                given = ("m", key, "human", truth, '{"label": 0}', self.now_us, self.now_us, None)
                append(effects.labels, (self.seq, len(ids), *given))
        self.commit(effects, ids, chance)

    def numbers(self, errors: Floats, chances: Floats) -> None:
        """Ask for labels of numbers, each with its chance; commit them by hundreds."""
        ids = [f"n{self.seq}-{row}" for row in range(len(errors))]
        with write(self.engine) as connection:
            connection.exec_driver_sql(
                "INSERT INTO label_request (model, record_id, policy, reason, probability, round,"
                " created_us, position, population, is_audit, floor)"
                " VALUES ('m', ?, 'bal', 'flagged', ?, 1, 0, 0, 12000, 0, 0.05)",
                list(zip(ids, chances.tolist(), strict=True)),
            )
        for begin in range(0, len(ids), 100):
            self.seq += 2
            self.now_us += 60_000_000
            received = {self.seq - 1: self.now_us, self.seq: self.now_us}
            effects = Effects("m", "champion", self.seq, received_us=self.now_us, received=received)
            for row, (key, error) in enumerate(
                zip(ids[begin:], errors[begin : begin + 100].tolist(), strict=False)
            ):
                truth = float(self.rng.normal(1_000, 300))
                place = self.seq - 1, row, self.now_us, row, "1", None, None, repr(truth + error), 1.0, False
                append(effects.records, ("m", key, *place))
                given = "m", key, "human", repr(truth), '{"label": 0}', self.now_us, self.now_us, None
                append(effects.labels, (self.seq, row + 1, *given))
            self.commit(effects, [])

    def commit(self, effects: Effects, ids: list[str], chance: float | None = None) -> None:
        with write(self.engine) as connection:
            if chance is not None:
                connection.exec_driver_sql(
                    "INSERT INTO label_request (model, record_id, policy, reason, probability, round,"
                    " created_us, position, population, is_audit, floor)"
                    " VALUES ('m', ?, 'random', 'audit', ?, 1, 0, 0, 1000, 1, 0)",
                    [(key, chance) for key in ids],
                )
            apply(connection, effects)
            self.book.follow(connection, (), now_us=self.now_us)

    def quiet(self) -> None:
        """Let a minute pass."""
        self.now_us += 60_000_000
        with write(self.engine) as connection:
            self.book.settle(connection, now_us=self.now_us)

    def correct(self, value: str) -> None:
        """Give all records another label."""
        self.seq += 1
        self.now_us += 60_000_000
        effects = Effects(
            "m", "champion", self.seq, received_us=self.now_us, received={self.seq: self.now_us}
        )
        with self.engine.connect() as connection:
            ids = connection.execute(text("SELECT id FROM record")).scalars().all()
        for row, key in enumerate(ids):
            given = ("m", key, "expert", value, '{"label": 0}', self.now_us, self.now_us, None)
            append(effects.labels, (self.seq, row, *given))
        self.commit(effects, [])

    def incidents(self) -> list[IncidentRow]:
        with self.engine.connect() as connection:
            return list(reversed(stored_incidents.list_incidents(connection, now_us=self.now_us)))

    def retrains(self) -> list[str]:
        """Incidents that start a retraining where critical ones do."""
        with self.engine.connect() as connection:
            return [one.id for one in read_incidents(connection, "m", "critical")]

    def told(self) -> list[tuple[str, dict[str, Any]]]:
        with self.engine.connect() as connection:
            found = connection.execute(text("SELECT event, payload FROM outbox ORDER BY rowid")).all()
        return [(row.event, json.loads(row.payload)["data"]) for row in found]


@pytest.fixture
def labelled(engine: Engine) -> Labelled:
    return Labelled(engine)


def test_a_usual_loss_opens_none_and_a_rise_in_a_slice_opens_one_with_its_cause(labelled: Labelled) -> None:
    for _ in range(25):
        labelled.minute({"a": 0.1, "b": 0.2})
    assert labelled.incidents() == []
    onset = labelled.now_us + 60_000_000
    while not labelled.incidents():
        labelled.minute({"a": 0.1, "b": 0.6})
    assert labelled.now_us - onset < 3 * 60_000_000
    (found,) = labelled.incidents()
    assert (found.kind, found.level, found.assertion, found.slice) == ("performance", "warning", "loss", "b")
    details = found.details
    assert details["onset"]["first"] <= iso(onset) <= details["onset"]["last"]
    assert details["explained_by"][0]["slice"] == "b"
    assert details["before"]["low"] < 0.2 < details["before"]["high"]
    assert details["now"]["share"] > 0.5
    assert details["confused"][0] | {"before": 0, "now": 0} == {
        "predicted": "0", "label": "1", "before": 0, "now": 0,
    }  # fmt: skip
    assert details["labels"]["arrived"] is None or details["labels"]["labelled"] > 0
    assert details["action"] == "retrain"
    assert len(details["records"]) == 5
    assert labelled.retrains() == [found.id], "though its level is below critical"
    event, told = labelled.told()[0]
    assert (event, told["explained_by"], told["version"]) == (
        "incident.opened", details["explained_by"], "1",
    )  # fmt: skip


def test_it_is_over_once_the_loss_is_what_it_was_and_rises_anew(labelled: Labelled) -> None:
    for share, minutes in ((0.1, 25), (0.5, 4)):
        for _ in range(minutes):
            labelled.minute({"a": share})
    assert [row.status for row in labelled.incidents()] == ["open"]
    for _ in range(6):
        labelled.minute({"a": 0.1})
    (found,) = labelled.incidents()
    assert found.status == "resolved"
    assert "what it was before" in found.note
    for _ in range(5):
        labelled.minute({"a": 0.5})
    assert [row.status for row in labelled.incidents()] == ["resolved", "open"]


def test_what_a_person_resolves_is_the_new_normal(labelled: Labelled) -> None:
    for share, minutes in ((0.1, 25), (0.5, 4)):
        for _ in range(minutes):
            labelled.minute({"a": share})
    (found,) = labelled.incidents()
    with write(labelled.engine) as connection:
        stored_incidents.resolve(connection, found.id, now_us=labelled.now_us, why="wanted")
    for _ in range(15):
        labelled.minute({"a": 0.5})
    assert [row.status for row in labelled.incidents()] == ["resolved"]


def test_corrected_labels_end_it(labelled: Labelled) -> None:
    for share, minutes in ((0.1, 25), (0.5, 4)):
        for _ in range(minutes):
            labelled.minute({"a": share})
    labelled.correct("1")
    (found,) = labelled.incidents()
    assert found.status == "open"  # all that were wrong still are
    labelled.correct("0")
    (found,) = labelled.incidents()
    assert found.status == "resolved"
    assert "labels were corrected" in found.note


def test_a_promotion_of_a_worse_version_is_found_and_rolled_back_to_the_former(labelled: Labelled) -> None:
    for _ in range(25):
        labelled.minute({"a": 0.1})
    began = labelled.now_us + 60_000_000
    for _ in range(6):
        labelled.minute({"a": 0.4}, version="2")
    (found,) = labelled.incidents()
    assert (found.details["version"], found.details["former"], found.details["action"]) == (
        "2", "1", "roll_back",
    )  # fmt: skip
    assert found.details["onset"]["likeliest"] == iso(began)
    assert labelled.retrains() == []
    labelled.minute({"a": 0.1}, version="3")
    (found,) = labelled.incidents()
    assert (found.status, found.note.rpartition("; ")[2]) == ("resolved", "version 2 is judged no more")


def test_large_errors_of_numbers_count_once_it_is_known_what_is_large(labelled: Labelled) -> None:
    for share, minutes in ((0.0, 30), (0.6, 10)):
        assert labelled.incidents() == []
        for _ in range(minutes):
            labelled.minute({"a": share}, shift=5.0)
    (found,) = labelled.incidents()
    assert found.details["before"]["share"] == pytest.approx(0.1, abs=0.05)
    assert "far off" in found.note


@pytest.mark.costly("labels of a rare class come until an alarm")
def test_follow_minute_opens_an_incident_of_a_rare_class_when_its_recall_is_lost(labelled: Labelled) -> None:
    """Of 200 labels a class has two: its loss is a point of all, which no alarm of all records sees."""
    classes = {"0": ("1", "0"), "fraud": ("0", "fraud")}

    def minute(fraud: float) -> None:
        for name, share, records in (("0", 0.05, 200), ("fraud", fraud, 2)):
            labelled.minute({"a": share}, records=records, answers=classes[name])

    for _ in range(30):
        minute(0.2)
    assert labelled.incidents() == []
    minutes = 0
    while not labelled.incidents() and minutes < 15:
        minute(1.0)
        minutes += 1
    (found,) = labelled.incidents()
    assert (found.kind, found.slice, found.details["explained_by"][0]["slice"]) == (
        "performance", "label=fraud", "label=fraud",
    )  # fmt: skip
    assert "on records of label=fraud" in found.note
    assert found.details["before"]["share"] == pytest.approx(0.2, abs=0.15)
    for _ in range(40):
        minute(0.1)
    assert [one.status for one in labelled.incidents()] == ["resolved"]


def test_lost_until_alarm_tells_how_many_labels_of_a_rare_class_would_be_one(labelled: Labelled) -> None:
    def told() -> int | None:
        with labelled.engine.connect() as connection:
            losses = read_losses(connection, "m", "1")
        assert losses is not None
        assert losses.rare(0.05) == ["label=fraud"]
        return lost_until_alarm(losses, "label=fraud", RULE)

    def minute(share: float) -> None:
        labelled.minute({"a": 0.05}, records=200, answers=("1", "0"))
        labelled.minute({"a": share}, records=2, answers=("0", "fraud"))

    minute(0.2)
    assert told() is None
    for _ in range(30):
        minute(0.2)
    labels = told()
    assert labels is not None
    assert labelled.incidents() == []
    for _ in range(labels // 2):
        minute(1.0)
    assert [one.slice for one in labelled.incidents()] == ["label=fraud"]


def test_few_entities_prove_no_more_than_themselves(labelled: Labelled) -> None:
    for share, minutes in ((0.1, 25), (1.0, 6)):
        for _ in range(minutes):
            labelled.minute({"a": share}, entities=3)
    assert labelled.incidents() == []
    with labelled.engine.connect() as connection:
        seen = connection.execute(
            text("SELECT sum(records), max(block) FROM loss_count WHERE slice = 'a'")
        ).one()
    assert tuple(seen) == (3, 0)


def test_chosen_labels_count_by_their_weight(labelled: Labelled) -> None:
    """One stream of labels is of hard records, which are chosen ten times as often: no loss has risen."""
    for minute in range(60):
        is_hard_chosen = minute >= 30
        labelled.minute(
            {"a": 0.5}, records=45 if is_hard_chosen else 5, chance=0.9 if is_hard_chosen else 0.1
        )
        labelled.minute({"a": 0.05}, records=50, chance=0.1)
    assert labelled.incidents() == []
    with labelled.engine.connect() as connection:
        wrong = connection.execute(
            text(
                "SELECT block >= 33, sum((bucket = -1) * records) * 1.0 / sum(records)"
                " FROM loss_count GROUP BY 1"
            )
        ).all()
    assert wrong[1][1] > 2 * wrong[0][1]


def test_a_change_of_champion_ends_it_before_the_new_one_has_labels(labelled: Labelled) -> None:
    for share, minutes in ((0.1, 25), (0.5, 4)):
        for _ in range(minutes):
            labelled.minute({"a": share})
    with write(labelled.engine) as connection:
        connection.exec_driver_sql(
            "INSERT INTO champion_change (model, version, replaced, action, by, reason, at_us)"
            " VALUES ('m', '2', '1', 'promoted', 'somebody', '', ?)",
            (labelled.now_us + 1,),
        )
    for _ in range(3):
        labelled.quiet()
    (found,) = labelled.incidents()
    assert (found.status, found.note.rpartition("; ")[2]) == ("resolved", "another version became champion")
    for _ in range(4):
        labelled.minute({"a": 0.5}, version="2")
    newest = labelled.incidents()[-1]
    assert (newest.status, newest.details["event"]["kind"]) == ("open", "promoted")
    assert newest.details["action"] == "retrain", "the version before had become as bad"


@pytest.mark.parametrize("seed", range(3))
def test_wrong_answers_that_are_labelled_later_are_no_rise(engine: Engine, seed: int) -> None:
    labelled = Labelled(engine)
    labelled.rng = np.random.default_rng(seed)
    waiting: list[list[str]] = []
    for _ in range(40):
        labelled.seq += 2
        labelled.now_us += 60_000_000
        now_us, seq = labelled.now_us, labelled.seq
        effects = Effects(
            "m", "champion", seq, received_us=now_us, received={seq - 1: now_us, seq: now_us}, version="1"
        )
        wrong = labelled.rng.random(50) < 0.2
        keys = [f"r{seq}-{row}" for row in range(50)]
        waiting.append([key for key, is_wrong in zip(keys, wrong, strict=True) if is_wrong])
        for row, (key, is_wrong) in enumerate(zip(keys, wrong, strict=True)):
            place = (seq - 1, row, now_us, row, "1", None, "a", "0" if is_wrong else "1", 1.0, False)
            append(effects.records, ("m", key, *place))
        due = [key for key, is_wrong in zip(keys, wrong, strict=True) if not is_wrong]
        due += waiting.pop(0) if len(waiting) > 10 else []
        for row, key in enumerate(due):
            given = ("m", key, "human", "1", '{"label": 0}', now_us, now_us, None)
            append(effects.labels, (seq, row, *given))
        labelled.commit(effects, due)
    assert labelled.incidents() == []


def test_slice_of_the_name_of_a_class_does_not_hide_its_loss(labelled: Labelled) -> None:
    for minute in range(45):
        wrong = {"label=fraud": 0.05, "b": 0.05}
        labelled.minute(wrong, records=100, answers=("1", "0"))
        labelled.minute({"b": 0.2 if minute < 30 else 1.0}, records=2, answers=("0", "fraud"))
    assert [one.slice for one in labelled.incidents()] == ["label=fraud"]


def test_incident_opens_when_errors_grow_though_failures_were_labelled_first(engine: Engine) -> None:
    """A mean error of 56 that becomes 254; one record in twenty fails, and is surely asked about."""
    made, rng = Labelled(engine), np.random.default_rng(3)
    is_failure = rng.random(12_000) < 0.05
    error = rng.normal(0, np.where(is_failure, 400.0, 53.0))
    asked = np.where(is_failure, 1.0, 0.05)
    chosen = np.flatnonzero(rng.random(12_000) < asked)
    chosen = chosen[np.argsort(~is_failure[chosen] + 1.1 * rng.random(len(chosen)))]
    made.numbers(error[chosen], asked[chosen])
    for _ in range(3):
        made.now_us += DAY_US // 2
        made.numbers(rng.normal(0, 53, 400), np.full(400, 0.05))
    assert made.incidents() == []
    made.numbers(rng.normal(0, 318, 800), np.full(800, 0.05))
    [incident] = made.incidents()
    assert incident.details["before"]["share"] < 0.1 < 0.5 < incident.details["now"]["share"]
