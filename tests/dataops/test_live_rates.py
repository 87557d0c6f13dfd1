"""Rates of live tests in the worker's transaction, and the incidents that their alarms are."""

import numpy as np
from sqlalchemy import Engine

from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.incident_row import IncidentRow
from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.flags.live_rates import Alarm, current_rates, follow, list_rates
from outrider.dataops.flags.rate_limit import NewFlags
from outrider.dataops.ledger.commit import Effects, LiveVerdicts
from outrider.dataops.state.database import write

NOW_US = 1_790_000_000_000_000


def verdicts(
    failed: list[bool], *, seq: list[int], version: str = "1", level: str = "warning"
) -> LiveVerdicts:
    return LiveVerdicts(
        test="t",
        revision="a",
        level=level,
        tolerance=0.1,
        confidence=0.95,
        version=version,
        seq=np.array(seq),
        failed=np.array(failed),
        weight=np.full(len(failed), 8.0),
        keys=np.array([f"r{n}" for n in range(len(failed))], dtype=object),
    )


def committed(engine: Engine, *parts: LiveVerdicts) -> list[Alarm]:
    effects = Effects("m", "champion", 9, received_us=NOW_US)
    effects.received = {seq: NOW_US + seq for part in parts for seq in part.seq.tolist()}
    effects.live_verdicts += parts
    with write(engine) as connection:
        return follow(connection, effects)[1]


def test_an_alarm_is_of_the_block_that_proves_it_however_blocks_are_joined(engine: Engine) -> None:
    failed = [n % 4 != 2 for n in range(16)] + [False] * 400
    seq = [*range(1, 17), *[17] * 400]
    (alarm,) = committed(engine, verdicts(failed, seq=seq, version="joined"))
    apart = []
    for one, number in zip(failed[:16], seq[:16], strict=True):
        apart += committed(engine, verdicts([one], seq=[number], version="apart"))
    assert [found.view.alarm_us for found in apart] == [alarm.view.alarm_us]
    assert (apart[0].view.low, apart[0].view.asked) == (alarm.view.low, alarm.view.asked)
    assert alarm.view.low > 0.1
    committed(engine, verdicts(failed[16:], seq=seq[16:], version="apart"))
    with engine.connect() as connection:
        joined, again = (current_rates(connection, "m", {"t": "a"}, v)[0] for v in ("joined", "apart"))
        assert joined.low < 0.1  # by now it could be chance, had somebody looked only once
        assert (joined.rate, joined.low, joined.alarm_us) == (again.rate, again.low, again.alarm_us)
        assert len(list_rates(connection, "m")) == 2
        assert current_rates(connection, "m", {"t": "b"}, "joined") == []
    assert committed(engine, verdicts([True] * 50, seq=[18] * 50, version="joined")) == []  # told once


class Book:
    """An incident book over proven failures of version 1."""

    def __init__(self, engine: Engine, level: str = "warning") -> None:
        self.engine = engine
        self.book = IncidentBook("m", AlarmRule(), live={"t": "a"}, version="1")
        self.now_us = NOW_US
        alarms = committed(engine, verdicts([True] * 20, seq=[1] * 20, level=level))
        self.step(alarms=alarms)

    def step(self, *, failures: int = 0, alarms: list[Alarm] | None = None, after_s: float = 1.0) -> None:
        self.now_us += int(after_s * 1e6)
        found = [NewFlags("t", "a", "warning", "", self.now_us, failures, failures, "r9")] if failures else []
        with write(self.engine) as connection:
            self.book.follow(connection, found, now_us=self.now_us, alarms=alarms or [])

    def incidents(self) -> list[IncidentRow]:
        with self.engine.connect() as connection:
            return list(reversed(stored_incidents.list_incidents(connection, now_us=self.now_us)))


def test_an_alarm_is_an_incident_that_counts_further_failures_and_outlives_silence(engine: Engine) -> None:
    book = Book(engine)
    book.step(failures=3)
    book.step(after_s=86_400)
    (row,) = book.incidents()
    assert (row.kind, row.status, row.flags, row.slice) == ("live_test", "open", 23, "")
    with engine.connect() as connection:
        assert not book.book.is_due(connection, now_us=book.now_us)


def test_after_a_silence_that_was_asked_for_it_is_told_anew(engine: Engine) -> None:
    book = Book(engine)
    until = book.now_us + 60_000_000
    with write(engine) as connection:
        stored_incidents.mute(connection, book.incidents()[0].id, until_us=until, now_us=book.now_us)
    book.step(failures=5)
    assert [row.status for row in book.incidents()] == ["muted"]
    book.step(failures=1, after_s=120)
    assert [row.status for row in book.incidents()] == ["resolved", "open"]


def test_what_a_person_resolved_is_not_told_again_for_the_same_version(engine: Engine) -> None:
    book = Book(engine)
    with write(engine) as connection:
        stored_incidents.resolve(connection, book.incidents()[0].id, now_us=book.now_us, why="known")
    book.step(failures=50)
    assert [row.status for row in book.incidents()] == ["resolved"]


def test_another_version_revision_or_no_test_at_all_ends_it(engine: Engine) -> None:
    book = Book(engine)
    book.book.live = {}
    with engine.connect() as connection:
        assert book.book.is_due(connection, now_us=book.now_us)
    book.step()
    (row,) = book.incidents()
    assert (row.status, row.note.rpartition("; ")[2]) == ("resolved", "it is no live test any more")


def test_versions_that_production_runs_side_by_side_do_not_acquit_each_other(engine: Engine) -> None:
    book = Book(engine)
    book.book.version = None  # production alone has the model
    committed(engine, verdicts([False] * 9, seq=[20] * 9, version="2"))
    book.step()
    assert [row.status for row in book.incidents()] == ["open"]
    with engine.connect() as connection:
        (shown,) = current_rates(connection, "m", {"t": "a"}, None)
        assert (shown.version, shown.alarm_us is None) == ("1", False)
    committed(engine, verdicts([False] * 9, seq=[3_700_000_000] * 9, version="2"))
    book.step()
    assert [row.status for row in book.incidents()] == ["resolved"]  # version 1 is asked no more
    with engine.connect() as connection:
        assert current_rates(connection, "m", {"t": "a"}, None)[0].version == "2"


def test_tests_for_information_open_nothing(engine: Engine) -> None:
    assert Book(engine, level="info").incidents() == []
