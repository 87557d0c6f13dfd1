"""Precision and accuracy from labels that a policy chose: the policy's taste for severe flags is undone."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Connection, Engine, insert

from outrider.assertions.flags.quality import Rate, WeightedRate, rate_of
from outrider.assertions.selection import Policy
from outrider.dataops.flags import quality
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.monitor.views.overview.reader import read_overview
from tests.databases import migrated
from tests.dataops.label_requests import request_labels

RECORDS, FLAGGED, BUDGET = 2000, 700, 200


@dataclass(frozen=True)
class Stream:
    """Records of which a severe flag is more often right than a mild one."""

    engine: Engine
    wrong: dict[str, bool]
    flagged: frozenset[str]

    @property
    def precision(self) -> float:
        return sum(self.wrong[name] for name in self.flagged) / len(self.flagged)

    @property
    def accuracy(self) -> float:
        return 1.0 - sum(self.wrong.values()) / len(self.wrong)


def stream(engine: Engine, seed: int) -> Stream:
    rng = np.random.default_rng(seed)
    names = [f"r{number:05}" for number in range(RECORDS)]
    severity = np.where(np.arange(RECORDS) < FLAGGED, rng.uniform(0.01, 1.0, RECORDS), 0.0)
    rng.shuffle(severity)
    wrong = rng.random(RECORDS) < np.where(severity > 0, severity**2, 0.05)
    shared: dict[str, object] = {"model": "m", "seq": 1, "ts_us": 0}
    records: list[dict[str, object]] = [
        {**shared, "id": name, "row": row, "digest": 0, "predicted": "0", "version": "1"}
        for row, name in enumerate(names)
    ]
    flag = {"assertion": "odd", "revision": "1", "slot": "champion", "level": "info"}
    flags = [
        {**shared, **flag, "id": name, "record_id": name, "row": row, "severity": float(severity[row])}
        for row, name in enumerate(names)
        if severity[row] > 0
    ]
    active: dict[str, object] = {
        "name": "odd",
        "revision": "1",
        "kind": "assertion",
        "level": "info",
        "description": "",
    }
    active |= {"owner": "", "active": True, "suspended_until_us": 0, "first_seen_us": 0, "model": "m"}
    with write(engine) as connection:
        connection.execute(insert(tables.Record), records)
        connection.execute(insert(tables.Flag), flags)
        connection.execute(insert(tables.AssertionRow), [active])
    told = dict(zip(names, wrong.tolist(), strict=True))
    return Stream(engine, told, frozenset(str(flag["record_id"]) for flag in flags))


def ask(found: Stream, policy: Policy, seed: int, *, budget: int = BUDGET, seq: int = 10) -> list[str]:
    """Two rounds of requests, each answered by a perfect labeller."""
    chosen = []
    for number in range(2):
        with write(found.engine) as connection:
            asked = request_labels(
                connection, model="m", budget=budget // 2, policy=policy, seed=seed, now_us=number
            )
            give(connection, found, [one.record_id for one in asked], seq + number)
        chosen += [one.record_id for one in asked]
    return chosen


def give(connection: Connection, found: Stream, names: list[str], seq: int) -> None:
    rows: list[dict[str, object]] = [
        {
            "seq": seq,
            "row": row,
            "model": "m",
            "record_id": name,
            "source": "human",
            "value": "1" if found.wrong[name] else "0",
            "label": {},
            "ts_us": 0,
            "received_us": 0,
        }
        for row, name in enumerate(names)
    ]
    connection.execute(insert(improvement_tables.Label), rows)


def precision(found: Stream) -> Rate:
    with found.engine.connect() as connection:
        known = quality.labelled_records(connection, "m").judged
        return quality.precisions(connection, "m", known)["odd"]


@pytest.fixture
def found(engine: Engine) -> Stream:
    return stream(engine, 0)


def fresh(folder: Path, seed: int) -> Stream:
    return stream(migrated(folder / f"{seed}.db"), seed)


def test_weighted_intervals_cover_the_truth_and_plain_ones_do_not(tmp_path: Path) -> None:
    seeds = range(12)
    weighted = plain = accurate = 0
    errors = []
    for seed in seeds:
        found = fresh(tmp_path, seed)
        asked = ask(found, "uniform", seed)
        rate = precision(found)
        assert isinstance(rate, WeightedRate)
        naive = rate_of([found.wrong[name] for name in asked if name in found.flagged])
        weighted += rate.low <= found.precision <= rate.high
        plain += naive.low <= found.precision <= naive.high
        errors.append(rate.share - found.precision)
        accuracy = read_overview(found.engine, "m", now_us=0).accuracy[""]["1"]
        accurate += accuracy.low <= found.accuracy <= accuracy.high
        found.engine.dispose()
    assert weighted >= 10  # of 12, at 95 %
    assert accurate >= 10
    assert plain <= 1
    assert abs(np.mean(errors)) < 0.05


def test_it_says_that_it_is_weighted(found: Stream) -> None:
    asked = ask(found, "uniform", 0)
    rate = precision(found)
    assert isinstance(rate, WeightedRate)
    assert rate.trials == len([name for name in asked if name in found.flagged])
    assert rate.basis == f"weighted, n {rate.trials}, effective n {rate.estimate.effective:.0f}"
    assert rate.estimate.effective < rate.trials


def test_labels_that_nobody_asked_for_count_alike(found: Stream) -> None:
    some = sorted(found.flagged)[:40]
    with write(found.engine) as connection:
        give(connection, found, some, 5)
    assert precision(found) == rate_of([found.wrong[name] for name in some])


def test_labels_that_came_unasked_are_set_aside_beside_enough_that_were_asked_for(found: Stream) -> None:
    asked = ask(found, "uniform", 0)
    alone = precision(found)
    others = sorted(found.flagged - set(asked))
    with write(found.engine) as connection:
        give(connection, found, others[:30], 50)
    assert precision(found) == alone


def test_where_labels_arrive_for_most_records_they_all_count(found: Stream) -> None:
    ask(found, "uniform", 0, budget=40)
    with write(found.engine) as connection:
        give(connection, found, sorted(found.flagged), 50)
    assert precision(found) == rate_of([found.wrong[name] for name in found.flagged])


def test_events_of_several_records_have_no_weight(found: Stream) -> None:
    ask(found, "uniform", 0)
    with write(found.engine) as connection:
        members = [
            {"flag_id": name, "record_id": "r00000", "model": "m", "seq": 1, "row": 0}
            for name in found.flagged
            if name != "r00000"
        ]
        connection.execute(insert(tables.FlagRecord), members)
    assert not isinstance(precision(found), WeightedRate)


@pytest.mark.parametrize(
    ("predicted", "labels", "wrong"),
    [
        (["true", "false"], ["1", "1"], [False, True]),
        (['"1"', '"01"'], ["1", '"1"'], [False, True]),
        (["0.10000000149011612", "7"], ["0.1", "8"], None),
    ],
)
def test_labelled_records_are_judged_by_type_and_not_at_all_for_numbers(
    engine: Engine, predicted: list[str], labels: list[str], wrong: list[bool] | None
) -> None:
    names = ["a", "b"]
    record = {"model": "m", "seq": 1, "ts_us": 0, "digest": 0}
    label = {"model": "m", "seq": 2, "source": "human", "label": {}, "ts_us": 0, "received_us": 0}
    with write(engine) as connection:
        connection.execute(
            insert(tables.Record),
            [
                record | {"id": name, "row": at, "predicted": said}
                for at, (name, said) in enumerate(zip(names, predicted, strict=True))
            ],
        )
        connection.execute(
            insert(improvement_tables.Label),
            [
                label | {"record_id": name, "row": at, "value": value}
                for at, (name, value) in enumerate(zip(names, labels, strict=True))
            ],
        )
        found = quality.labelled_records(connection, "m")
    assert found.is_numeric == (wrong is None)
    assert len(found.records) == 2
    judged = {record.id: record.wrong for record in found.judged}
    assert judged == ({} if wrong is None else dict(zip(names, wrong, strict=True)))


def test_a_record_that_states_no_version_counts_for_the_champion_of_its_time(tmp_path: Path) -> None:
    engine = migrated(tmp_path / "state.db")
    shared: dict[str, object] = {"model": "m", "ts_us": 0, "row": 0, "digest": 0, "predicted": "0"}
    stated = {"r1": (1, None), "r2": (5, None), "r3": (5, "9")}
    label = {
        "model": "m",
        "row": 0,
        "source": "human",
        "value": "0",
        "label": "{}",
        "ts_us": 0,
        "received_us": 1,
    }
    with write(engine) as connection:
        borders = [{"model": "m", "seq": 0, "version": "1"}, {"model": "m", "seq": 3, "version": "2"}]
        connection.execute(insert(tables.ChampionBorder), borders)
        for place, (name, (seq, version)) in enumerate(stated.items()):
            connection.execute(
                insert(tables.Record), [{**shared, "id": name, "seq": seq, "version": version}]
            )
            connection.execute(
                insert(improvement_tables.Label), [{**label, "seq": 10 + place, "record_id": name}]
            )
        found = quality.labelled_records(connection, "m").records
    assert {one.id: one.version for one in found} == {"r1": "1", "r2": "2", "r3": "9"}
    engine.dispose()
