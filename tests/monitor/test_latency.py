"""A worker that is held to an objective: what it sheds, skips and judges later, and that it adds up."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outrider.assertions import load_assertions
from outrider.commands import doctor
from outrider.dataops.journal.journal import Entry
from outrider.dataops.ledger import backfill
from outrider.dataops.ledger.backfill import open_gaps
from outrider.monitor.server.app import build_app
from outrider.monitor.views.every import every_router
from outrider.monitor.views.service import Service
from outrider.monitor.worker import replay as replaying
from outrider.monitor.worker.objectives import Objectives
from tests.asgi import get
from tests.end_to_end.service import CHECKS, CONFIG, write_project
from tests.keyrings import keyring_in

from .workbench import Workbench, workbench

SLO = CONFIG + "\n[flags]\nper_minute = 100000\n\n[models.toy.latency]\nslo_s = 1.0\n"
COST_S = 0.01
SKIPPED = 700
"""Of the 1,000 records of :func:`skipped`: those that were received more than 0.4 s ago."""
HELD = """

@assertion(window=Window(rows=2, lateness_s=5.0, idle_s=60.0, columns=("inputs.x",)))
def held_back(batch):
    return batch.column("inputs.x") > 0.8
"""


class FixedPace(Objectives):
    """Each judged record takes 10 ms, whatever the machine, and time stands still meanwhile."""

    def worked(self, model: str, slot: str, began: float, *, rows: int) -> None:
        super().worked(model, slot, self.timer() - rows * COST_S, rows=rows)


def paced(bench: Workbench) -> Objectives:
    return FixedPace(bench.settings.models, clock=lambda: bench.now_us / 1e6, timer=lambda: 0.0)


def record(number: int, x: float = 0.2, **rest: Any) -> dict[str, Any]:
    return {"id": f"r{number}", "inputs": {"x": x}, "attrs": {"device": "a"}, **rest}


def records(start: int, rows: int, *, entities: int = 20) -> list[dict[str, Any]]:
    return [record(n, (n * 37 % 100) / 100, entity=f"e{n % entities}") for n in range(start, start + rows)]


def learn_the_pace(bench: Workbench) -> None:
    bench.feed(records(100_000, 10))
    bench.work()


def adds_up(bench: Workbench) -> int:
    """Every record up to the champion's cursor is exactly one thing; how many there are."""
    cursor = bench.worker.context.cursors["toy", "champion"]
    offered = bench.journal.count_records(0, cursor, model="toy")
    with bench.engine.connect() as connection:
        waiting = sum(gap.records - gap.passed for gap in open_gaps(connection))
    became = ["records", "duplicates", "conflicts", "poison", "unopened", "unreadable"]
    became += ["shed:sampled", "shed:expired"]
    counts = {name: bench.count(name) for name in became}
    assert sum(counts.values()) + waiting == offered, (counts, waiting, offered)
    assert counts["records"] == bench.rows("SELECT count(*) FROM record")[0][0]
    return offered


def replay_agrees(bench: Workbench, config: Path, *, slot: str = "champion") -> None:
    """A replay of the revisions that ran finds the flags that they found."""
    judges = load_assertions(config.parent / "checks.py")
    until = replaying.judged_until(bench.engine, "toy", slot)
    gaps = replaying.skipped(bench.engine, "toy")
    which = replaying.stretch(bench.journal, judges, since_us=0, until=until, gaps=gaps)
    model = bench.settings.models["toy"]
    found = replaying.replay(bench.engine, bench.journal, "toy", model, judges, which, slot=slot).fired()
    for judge in judges:
        known = replaying.stored_flags(bench.engine, "toy", judge.name, judge.revision, which, slot=slot)
        assert found.get(judge.name, set()) == known, judge.name
    assert any(found.values())


def test_overload_samples_whole_entities_and_their_weights_make_up_for_the_others(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=SLO)
    with workbench(config, objectives=paced) as bench:
        learn_the_pace(bench)
        bench.feed(records(0, 160))
        bench.work()
        shed = bench.count("shed:sampled")
        assert 40 <= shed <= 150
        assert adds_up(bench) == 170
        weights = dict(bench.rows("SELECT weight, count(*) FROM record GROUP BY 1"))
        assert min(weights) == 1.0 < max(weights)
        assert sum(w * n for w, n in weights.items()) == pytest.approx(170)
        kept = {row[0] for row in bench.rows("SELECT DISTINCT entity FROM record WHERE weight > 1")}
        per_entity = bench.rows("SELECT entity, count(*) FROM record WHERE weight > 1 GROUP BY 1")
        assert {count for _, count in per_entity} == {8}
        assert len(kept) == (160 - shed) / 8
        replay_agrees(bench, config)
        metric = bench.registry.get_sample_value
        labels = {"model": "toy", "outcome": "shed_sampled"}
        assert metric("outrider_slo_records_total", labels) == shed


def overload(bench: Workbench, start: int, blocks: int, *, after_s: float) -> int:
    """Blocks of twice what fits, one after the other; the number of the next record."""
    for _ in range(blocks):
        bench.feed(records(start, 80), after_s=after_s)
        bench.work()
        start += 80
    return start


def weights_and_offered(bench: Workbench) -> tuple[float, float]:
    """Weights of what was judged with what is carried, and the records that were offered."""
    (weight,) = bench.rows("SELECT sum(weight) FROM record")[0]
    carried = bench.rows("SELECT coalesce(sum(carried), 0) FROM admission")[0][0]
    return weight + carried, adds_up(bench)


@pytest.mark.costly("something is killed at each of many places, and begun again")
@pytest.mark.parametrize("is_killed", [False, True])
def test_another_period_samples_other_entities_and_windows_begin_anew(
    tmp_path: Path, *, is_killed: bool
) -> None:
    config = write_project(tmp_path, config=SLO, checks=CHECKS + HELD)
    with workbench(config, objectives=paced) as bench:
        learn_the_pace(bench)
        new_version(bench, "challenger")
        period_us = bench.worker.context.pipelines["toy"].period_us
        start, chosen = 0, []
        for _ in range(4):
            bench.now_us += period_us - bench.now_us % period_us
            first, before = start, bench.count("records")
            start = overload(bench, start, 3, after_s=0.2)
            assert before < bench.count("records") < before + 240
            query = "SELECT DISTINCT entity FROM record WHERE CAST(substr(id, 2) AS INTEGER) >= :first"
            chosen.append({row[0] for row in bench.rows(query + " AND weight > 1", first=first)})
            if is_killed:
                bench.restart()
                learn_again(bench)
        assert len({frozenset(one) for one in chosen}) == 4
        assert len(bench.rows("SELECT seq FROM rotation")) == 3
        weight, offered = weights_and_offered(bench)
        assert weight == pytest.approx(offered)
        said = "SELECT count(*) FROM flag WHERE json_extract(evidence, '$.windows_restarted') IS NOT NULL"
        assert bench.rows(f"{said} AND slot = 'champion'")[0][0] > 0
        assert bench.rows(f"{said} AND slot = '2'")[0][0] > 0
        replay_agrees(bench, config)
        replay_agrees(bench, config, slot="2")


def learn_again(bench: Workbench) -> None:
    """A new process knows its pace after its first unit."""
    bench.feed([record(10**7 + bench.now_us % 10**9 + n) for n in range(5)], after_s=0.01)
    bench.work()


def test_what_sheds_nothing_never_rotates(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=SLO)
    with workbench(config, objectives=paced) as bench:
        learn_the_pace(bench)
        for start in range(0, 200, 10):
            bench.feed(records(start, 10), after_s=300.0)
            bench.work()
        assert bench.rows("SELECT * FROM rotation") == bench.rows("SELECT * FROM admission") == []
        restarted = "json_extract(evidence, '$.windows_restarted')"
        assert bench.rows(f"SELECT count({restarted}) FROM flag") == [(0,)]


def test_what_nobody_stands_for_is_carried_over_a_restart(tmp_path: Path) -> None:
    """One entity that is not admitted offers all records of some units; those behind them stand for it."""
    config = write_project(tmp_path, config=SLO)
    with workbench(config, objectives=paced) as bench:
        learn_the_pace(bench)
        for number in range(12):
            start = 1000 * number
            entity = f"e{number}"
            rows = [record(n, 0.9, entity=entity) for n in range(start, start + 160)]
            bench.feed(rows, after_s=0.2)
            bench.work()
            if bench.rows("SELECT carried FROM admission WHERE carried > 0"):
                break
        assert bench.rows("SELECT carried FROM admission") != [(0.0,)]
        bench.restart()
        learn_again(bench)
        assert bench.rows("SELECT carried FROM admission") == [(0.0,)]
        weight, offered = weights_and_offered(bench)
        assert weight == pytest.approx(offered)
        replay_agrees(bench, config)


class EvenCost(FixedPace):
    """Each unit takes 0.2 s, whether its records are new or not."""

    def worked(self, model: str, slot: str, began: float, *, rows: int) -> None:
        Objectives.worked(self, model, slot, self.timer() - 20 * COST_S, rows=rows)


def test_repeats_are_work_done_and_no_reason_to_shed_what_comes_behind_them(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=SLO)

    def objectives(bench: Workbench) -> Objectives:
        return EvenCost(bench.settings.models, clock=lambda: bench.now_us / 1e6, timer=lambda: 0.0)

    with workbench(config, objectives=objectives) as bench:
        for _ in range(60):  # a client that saw no answer sends the same again and again
            bench.feed(records(0, 20))
            bench.work()
        bench.feed(records(1000, 20))
        bench.work()
        assert (bench.count("records"), bench.count("duplicates")) == (40, 59 * 20)
        assert bench.count("shed:sampled") == 0
        adds_up(bench)


def skipped(bench: Workbench) -> None:
    """A backlog of blocks that are too old, one of them with labels, and young ones behind it."""
    learn_the_pace(bench)
    for block in range(10):
        bench.feed(records(100 * block, 100, entities=60), after_s=0.2)
        if block == 4:
            bench.label({"r7": 1, "r450": 0})


@pytest.mark.parametrize("crash_after", [0, 1, 6])
def test_a_skipped_backlog_is_judged_later_and_adds_up_wherever_the_worker_dies(
    tmp_path: Path, crash_after: int
) -> None:
    config = write_project(tmp_path, config=SLO, checks=CHECKS + HELD)
    with workbench(config, objectives=paced) as bench:
        skipped(bench)
        bench.worker.step()
        (gap,) = bench.rows("SELECT records, at_seq - after_seq, done_us FROM backfill")
        assert gap == (SKIPPED, 0, None)
        adds_up(bench)
        for _ in range(crash_after):
            bench.worker.step()
            adds_up(bench)
        bench.restart()
        learn_the_pace(bench)
        bench.work()
        assert adds_up(bench) == 1020
        assert bench.count("backfilled") == SKIPPED
        assert bench.count("labels") == 2
        assert bench.rows("SELECT records, passed FROM backfill WHERE done_us IS NOT NULL") == [
            (SKIPPED, SKIPPED)
        ]
        replay_agrees(bench, config)


def test_late_flags_and_flags_of_restarted_windows_say_so(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=SLO)
    with workbench(config, objectives=paced) as bench:
        skipped(bench)
        bench.work()
        late = "json_extract(evidence, '$.backfilled')"
        by_id = "CAST(substr(record_id, 2) AS INTEGER)"
        judged_late = f"SELECT count(*), sum({late}) FROM flag WHERE {by_id} < {SKIPPED}"
        (flags, said) = bench.rows(judged_late)[0]
        assert flags == said > 0
        assert bench.rows(f"SELECT count({late}) FROM flag WHERE {by_id} >= {SKIPPED}") == [(0,)]
        restarted = "json_extract(evidence, '$.windows_restarted')"
        behind = (
            f"SELECT count(*), count({restarted}) FROM flag WHERE assertion = :a AND {by_id} >= {SKIPPED}"
        )
        behind += f" AND {by_id} < 100000"
        (flags, said) = bench.rows(behind, a="flips")[0]
        assert flags == said > 0
        assert bench.rows(behind, a="too_high")[0][1] == 0  # it has no window
        metric = bench.registry.get_sample_value
        assert metric("outrider_skips_total", {"model": "toy"}) == 1
        backfilled = {"model": "toy", "outcome": "backfilled"}
        assert metric("outrider_slo_records_total", backfilled) == SKIPPED


def test_windows_do_not_see_across_a_gap(tmp_path: Path) -> None:
    """``flips`` compares a record with the one before: neither side of a gap knows the other."""
    config = write_project(tmp_path, config=SLO)
    with workbench(config, objectives=paced) as bench:
        bench.feed([record(0, 0.1, entity="e")])
        bench.work()
        bench.feed([record(1, 0.8, entity="e"), *records(1000, 100)], after_s=0.1)
        bench.feed([record(2, 0.1, entity="e")], after_s=1.0)
        bench.worker.step()
        bench.restart()  # what is rebuilt does not see across it either
        bench.work()
        assert bench.flags("flips").isdisjoint({"r1", "r2"})
        assert bench.count("backfilled") == 101
        replay_agrees(bench, config)


def test_what_is_too_old_to_be_judged_later_is_shed_and_its_labels_stand(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=SLO + "backfill_s = 10.0\n")
    with workbench(config, objectives=paced) as bench:
        skipped(bench)
        bench.worker.step()
        bench.now_us += 60_000_000
        bench.work()
        assert adds_up(bench) == 1010
        assert bench.count("backfilled") == 0
        assert bench.count("shed:expired") == 1000  # by then the young ones are old too
        assert bench.count("labels") == 2


def test_what_has_left_the_journal_is_counted_as_shed(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=SLO)
    with workbench(config, objectives=paced) as bench:
        skipped(bench)
        bench.worker.step()
        (after, until) = bench.rows("SELECT after_seq, until_seq FROM backfill")[0]
        bench.journal.expire([after + 1, after + 2, until])
        bench.work()
        assert bench.count("shed:expired") == 300
        assert bench.count("backfilled") == SKIPPED - 300
        assert bench.rows("SELECT passed FROM backfill WHERE done_us IS NOT NULL") == [(SKIPPED,)]


def new_version(bench: Workbench, status: str) -> None:
    bench.execute(
        "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us, note)"
        " SELECT model, '2', :status, digest, source, created_us, changed_us, '' FROM model_version",
        status=status,
    )
    bench.worker._refresh(force=True)


def test_another_champion_goes_on_with_what_was_skipped_and_replay_knows_who_judged_what(
    tmp_path: Path,
) -> None:
    config = write_project(tmp_path, config=SLO, checks=CHECKS + HELD)
    with workbench(config, objectives=paced) as bench:
        skipped(bench)
        for _ in range(6):
            bench.worker.step()
        assert 0 < bench.count("backfilled") < SKIPPED
        bench.execute("UPDATE model_version SET status = 'retired'")
        new_version(bench, "champion")
        bench.work()
        versions = bench.rows("SELECT version, sum(records) FROM backfill GROUP BY 1")
        assert [version for version, _ in versions] == ["1", "2"]
        assert sum(count for _, count in versions) == SKIPPED
        adds_up(bench)
        replay_agrees(bench, config)


def test_challengers_pass_over_a_gap_whole(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=SLO)
    with workbench(config, objectives=paced) as bench:
        learn_the_pace(bench)
        new_version(bench, "challenger")
        skipped(bench)
        bench.work()
        cursors = dict(bench.rows("SELECT slot, seq FROM cursor WHERE slot != 'backfill'"))
        assert cursors["2"] == cursors["champion"]
        (gap,) = backfill_of(bench)
        answered = bench.rows(
            "SELECT count(*) FROM answer WHERE version = '2' AND seq > :after AND seq <= :until",
            after=gap.after_seq,
            until=gap.until_seq,
        )
        assert answered == [(0,)]
        assert bench.count("records", slot="2") > 0


def backfill_of(bench: Workbench) -> list[backfill.SkippedBlocks]:
    with bench.engine.connect() as connection:
        return backfill.gaps(connection, "toy")


JUDGE = """
[models.toy.judges.grader]
predictor = "judge.py:grade"
reads = ["inputs.x"]
answer = {{ good = "boolean" }}
"""


def pressed(rows: int) -> Callable[[Workbench], dict[str, bool]]:
    def moved(bench: Workbench) -> dict[str, bool]:
        """Who went on in the step in which so many records came at once."""
        before, judge = dict(bench.worker.context.cursors), bench.worker._judges._slots["toy", "judge.grader"]
        asked = bench.rows("SELECT count(*) FROM live_answer WHERE status != 'shed'")[0][0]
        shed = bench.count("shed:sampled")
        number = bench.now_us % 10**9
        bench.feed([record(10 * number + n, 0.5) for n in range(rows)])
        bench.worker.step()
        cursors = bench.worker.context.cursors
        went = {
            "live tests": bench.rows("SELECT count(*) FROM live_answer WHERE status != 'shed'")[0][0] > asked,
            "challengers": cursors["toy", "2"] > before["toy", "2"],
            "judges": judge.pending is not None
            or cursors["toy", "judge.grader"] > before["toy", "judge.grader"],
            "records": bench.count("shed:sampled") == shed,
        }
        while bench.worker.step() or judge.pending is not None:
            time.sleep(0.01)
        return went

    return moved


def test_a_growing_backlog_sheds_live_tests_then_challengers_then_judges_then_records(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=SLO + JUDGE.format())
    (tmp_path / "judge.py").write_text(
        "import time\n\ndef grade(batch):\n    time.sleep(0.3)\n    return {'good': [True] * batch.rows}\n",
        encoding="utf-8",
    )
    with workbench(config, objectives=paced) as bench:
        learn_the_pace(bench)
        new_version(bench, "challenger")
        bench.work()
        went = {rows: pressed(rows)(bench) for rows in (15, 22, 27, 35, 120)}
    order = ["live tests", "challengers", "judges", "records"]
    shed = {rows: [name for name in order if not who[name]] for rows, who in went.items()}
    assert shed == {15: [], 22: order[:1], 27: order[:2], 35: order[:3], 120: order}


def test_without_an_objective_nothing_is_shed_or_skipped(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path), objectives=paced) as bench:
        skipped(bench)
        bench.work()
        assert bench.count("records") == 1010
        assert bench.rows("SELECT count(*) FROM backfill") == [(0,)]


@pytest.mark.costly("something is killed at each of many places, and begun again")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_whatever_comes_when_and_whoever_dies_it_adds_up_and_replays(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = write_project(tmp_path, config=SLO, checks=CHECKS + HELD)
    with workbench(config, objectives=paced) as bench:
        learn_the_pace(bench)
        new_version(bench, "challenger")
        start, champions = 0, ["1", "2"]
        for _ in range(14):
            for _ in range(rng.choice([1, 1, 2, 8])):
                rows = rng.choice([1, 5, 30, 100])
                repeated = rng.randrange(start + 1)  # some come again
                bench.feed(
                    records(repeated if rng.random() < 0.1 else start, rows),
                    after_s=rng.choice([0.01, 0.2, 1.0] + [500.0] * (seed == 2)),
                )
                start += rows
            for _ in range(rng.choice([0, 1, 5, 20])):
                bench.worker.step()
                adds_up(bench)
            if rng.random() < 0.15:
                bench.restart()
            if rng.random() < 0.15 and seed % 2:
                champions.reverse()
                for version, status in zip(champions, ("champion", "challenger"), strict=True):
                    bench.execute(
                        "UPDATE model_version SET status = :status WHERE version = :version",
                        status=status,
                        version=version,
                    )
                bench.worker._refresh(force=True)
        bench.work()
        assert adds_up(bench) == start + 10
        assert bench.count("shed:sampled") > 0
        assert bench.count("backfilled") > 0
        replay_agrees(bench, config)
        if not seed % 2:
            replay_agrees(bench, config, slot="2")


def test_the_page_and_doctor_say_how_old_records_are_and_what_was_skipped(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=SLO)
    with workbench(config, objectives=paced) as bench:
        assert doctor._latency(config) == {"toy": "no record judged yet"}
        skipped(bench)
        bench.worker.step()
        assert doctor._latency(config)["toy"].endswith("objective 1 s); 700 skipped wait")
        page = overview_page(bench)
        assert "<b>700</b> records wait for the backfill. Windows restarted then." in page
        bench.work()
        page = overview_page(bench)
        assert "objective 1 s" in page
        assert "700 judged later" in page
        assert "wait to be judged later" not in page
        assert "700 judged later" in doctor._latency(config)["toy"]


def overview_page(bench: Workbench) -> str:
    app = build_app(
        fault=lambda: None,
        routers=[every_router(Service.open(bench.settings, keyring_in(bench.settings.data_folder)))],
    )
    return get(app, "/m/toy", headers={"Authorization": "Bearer key"}).text


@pytest.mark.parametrize("bits_changed", [False, True])
def test_a_damaged_block_among_what_was_skipped_is_counted_too(
    tmp_path: Path, bits_changed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = write_project(tmp_path, config=SLO)
    with workbench(config, objectives=paced) as bench:
        learn_the_pace(bench)
        (seq,) = bench.journal.append([Entry("records", "toy", 7, b"not arrow")], bench.now_us)
        if bits_changed:
            bench.journal._db.execute(
                "UPDATE block SET payload = x'6e6f74206172726f76' WHERE seq = ?", (seq,)
            )
        for block in range(6):
            bench.feed(records(100 * block, 100), after_s=0.3)
        bench.work()
        assert adds_up(bench) == 617
        assert bench.count("unreadable") == 7
        assert "dead letter: record '' of model 'toy': unreadable" in caplog.text
        assert bench.count("backfilled") > 0
        assert bench.count("shed:expired") == 0
