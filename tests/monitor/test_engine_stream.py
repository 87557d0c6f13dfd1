"""The stream over engines in processes of their own: hangs, deaths, swaps and what is asked ahead."""

import itertools
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np

from outrider.assertions import Batch, load_assertions
from outrider.behavioral_tests.sampling import sample_rows
from outrider.dataops.state.disabled_versions import left_out
from outrider.monitor.views.overview.reader import read_overview
from outrider.monitor.worker import replay as replaying
from outrider.monitor.worker.live_budget import TimeBudget
from tests.end_to_end.service import CONFIG, write_project

from .workbench import Workbench, workbench

CHALLENGER = (
    "INSERT INTO model_version (model, version, status, digest, created_us, changed_us, note, source)"
    " SELECT model, '2', 'challenger', digest, created_us, changed_us, '', source FROM model_version"
)
OF_ONE_TRUNK = (
    "UPDATE model_version SET source = (SELECT json_set(source, '$.adapted_from', 'toy@1') FROM model_version"
    " WHERE version = '1') WHERE version = '2'"
)
HANGING = """

[models.other]
predictor = "other.py:predict"
inputs = ["x"]
classes = [0, 1]

[models.other.shadow]
deadline_s = 0.5
"""
OTHER = """
import time


def predict(batch):
    time.sleep(600)
"""


def stream(rows: int, seed: int = 0, *, prefix: str = "r") -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "id": f"{prefix}{seed}-{n}",
            "inputs": {"x": round(rng.random(), 6)},
            "attrs": {"device": "a"},
            "entity": f"e{n % 5}",
        }
        for n in range(rows)
    ]


def feed(bench: Workbench, blocks: int) -> None:
    """Blocks of which every third repeats records of the one before, in units of their own."""
    for number in range(blocks):
        repeated = stream(30, number - 1)[:10] if number % 3 == 2 else []
        bench.feed([*stream(30, number), *repeated], after_s=1.5)


def kept(bench: Workbench) -> list[list[tuple[Any, ...]]]:
    return [
        bench.rows("SELECT id, record_id, assertion, severity FROM flag ORDER BY id"),
        bench.rows(
            "SELECT slot, name, value FROM counter"
            " WHERE name NOT LIKE 'cost_ns%' AND name NOT LIKE 'answer_%' ORDER BY slot, name"
        ),  # but for what it took
        bench.rows("SELECT id, predicted, digest FROM record ORDER BY id"),
        bench.rows("SELECT test, status, count(*) FROM live_answer GROUP BY 1, 2 ORDER BY 1, 2"),
    ]


def judged_until(bench: Workbench, seq: int, *slots: str) -> bool:
    found = dict(bench.rows("SELECT slot, seq FROM cursor WHERE model = 'toy'"))
    return all(found.get(slot, 0) >= seq for slot in slots)


def test_a_killed_engine_changes_no_flag_count_or_answer(tmp_path: Path) -> None:
    seen = []
    for case in ("here", "in processes"):
        config = write_project(tmp_path / case)
        with workbench(config, has_processes=case != "here") as bench:
            feed(bench, 9)
            kills = 0
            rested = itertools.count(0.0, 100.0).__next__  # however long it takes to start again
            bench.worker.context.pipelines["toy"].time = TimeBudget(clock=rested)
            while not judged_until(bench, 9, "champion"):
                bench.worker.step()
                assert bench.engines is not None
                pid = next(iter(bench.engines.clients.values())).pid
                if pid is not None and kills < 3 and bench.count("records") >= 60 * kills:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
                bench.engines.wait(0.005)
            assert kills == (0 if case == "here" else 3)
            seen.append(kept(bench))
            judges = load_assertions(config.parent / "checks.py")
            which = replaying.stretch(bench.journal, judges, since_us=0, until=9)
            model = bench.settings.models["toy"]
            found = replaying.replay(bench.engine, bench.journal, "toy", model, judges, which).fired()
            for judge in judges:
                known = replaying.stored_flags(bench.engine, "toy", judge.name, judge.revision, which)
                assert found.get(judge.name, set()) == known
    assert seen[0] == seen[1]
    assert ("champion", "duplicates", 30) in seen[0][1]


def test_a_model_that_hangs_is_left_out_and_never_holds_up_another(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=CONFIG + HANGING)
    (tmp_path / "other.py").write_text(OTHER, encoding="utf-8")
    with workbench(config, has_processes=True) as bench:
        bench.feed(stream(20), model="other")
        bench.work_until(lambda: _queued(bench, "other"))
        feed(bench, 6)
        bench.work_until(lambda: judged_until(bench, 7, "champion"))
        assert bench.engines is not None
        toy = next(client for client in bench.engines.clients.values() if client.group == "toy@1")
        assert not any(toy.restarts.values())
        for number in range(1, 5):
            bench.feed(stream(20, number), model="other", after_s=1.5)
        versions = bench.worker.context.versions["other"]
        bench.work_until(lambda: bool(versions.failures))
        bench.feed(stream(20, 5), model="other", after_s=1.5)
        judged = "SELECT count(*) FROM record WHERE model = 'other'"
        bench.work_until(
            lambda: bench.rows(judged)[0][0] + bench.worker._backfills.owed_records("other") == 120
        )
        assert bench.worker._backfills.owed_records("other") >= 20  # of the units that it held up
        why = "no answer within 1 s"
        assert versions.failures == {"1": why}
        bench.worker._refresh(force=True)
        with bench.engine.connect() as connection:
            assert left_out(connection, "other") == {"1": why}
        overview = read_overview(bench.engine, "other", now_us=bench.now_us)
        assert [view.left_out for view in overview.versions] == [why]
        metric = bench.registry.get_sample_value
        assert metric("outrider_shadows_left_out", {"model": "other", "role": "champion"}) == 1
        restarts = metric("outrider_engine_restarts_total", {"model": "other", "reason": "deadline"})
        assert restarts is not None
        assert restarts >= 3
        assert bench.rows("SELECT count(*) FROM answer WHERE model = 'other'") == [(0,)]


def test_engine_that_is_stopped_is_started_again_and_its_unit_is_answered(tmp_path: Path) -> None:
    config = write_project(tmp_path, config=CONFIG + "\n[models.toy.shadow]\ndeadline_s = 1.0\n")
    with workbench(config, has_processes=True) as bench:
        bench.feed(stream(20))
        bench.work_until(lambda: judged_until(bench, 1, "champion"))
        assert bench.engines is not None
        (client,) = bench.engines.clients.values()
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        bench.feed(stream(20, 1))
        bench.work_until(lambda: judged_until(bench, 2, "champion"))
        assert client.restarts["deadline"] >= 1
        assert bench.rows("SELECT count(*) FROM answer WHERE version = '1'") == [(2,)]
        assert (bench.count("records"), bench.worker._backfills.owed_records("toy")) == (40, 0)
        assert not bench.worker.context.versions["toy"].failures


def _queued(bench: Workbench, model: str) -> bool:
    assert bench.engines is not None
    return any(c.group == f"{model}@1" and c.waiting_rows > 0 for c in bench.engines.clients.values())


def test_swaps_under_load_lose_and_repeat_nothing(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    with workbench(config, has_processes=True) as bench:
        bench.execute(CHALLENGER)
        number = 0

        def block() -> None:
            nonlocal number
            number = bench.feed(stream(30, number), after_s=1.5)
            bench.work_until(lambda: judged_until(bench, number - 1, "champion"))  # one is always under way

        for new, old in (("1", ""), ("2", "1"), ("1", "2")):
            bench.execute("UPDATE model_version SET status = 'retired' WHERE version = :v", v=old)
            bench.execute("UPDATE model_version SET status = 'champion' WHERE version = :v", v=new)
            while bench.worker.context.versions["toy"].champion != new:
                block()
            block()
            block()
        bench.work_until(lambda: judged_until(bench, number, "champion"))
        borders = bench.rows("SELECT seq, version FROM champion_border ORDER BY seq")
        assert [version for _, version in borders] == ["1", "2", "1"]
        assert (bench.count("records"), bench.count("poison"), bench.count("duplicates")) == (
            30 * number,
            0,
            0,
        )
        for seq in range(1, number + 1):
            version = [v for border, v in borders if border < seq][-1]
            found = bench.rows("SELECT version FROM answer WHERE seq = :seq", seq=seq)
            assert (version,) in found, (seq, found, borders)


def test_challengers_are_asked_with_the_champion_and_noise_is_kept_beside_both(tmp_path: Path) -> None:
    shadow = "\n[models.toy.shadow]\nnoise_rate = 0.5\n"
    config = write_project(tmp_path, config=CONFIG + shadow)
    with workbench(config) as bench:
        asked: list[tuple[str, ...]] = []
        submit = bench.worker.engines.submit

        def counted(ask: Any) -> None:
            asked.append(ask.versions)
            submit(ask)

        bench.worker.engines.submit = counted  # type: ignore[method-assign]
        bench.execute(CHALLENGER)
        bench.execute(OF_ONE_TRUNK)
        bench.worker._refreshed = 0.0
        bench.work()  # it is loaded
        feed(bench, 6)
        bench.work()
        records = [versions for versions in asked if len(versions) == 2]
        assert records == [("1", "2")] * 6  # the others are live tests
        assert {versions for versions in asked if len(versions) == 1} == {("1",)}
        answers = dict(bench.rows("SELECT version, count(*) FROM answer GROUP BY 1"))
        assert answers == {"1": 6, "2": 6, "~again:1": 6, "~again:2": 6}
        query = "SELECT payload FROM answer WHERE version = :version ORDER BY seq"
        twice = [
            [key for (payload,) in bench.rows(query, version=version) for key in Batch.from_ipc(payload).keys]
            for version in ("~again:1", "~again:2")
        ]
        every = [key for (key,) in bench.rows("SELECT id FROM record ORDER BY seq, row")]
        drawn = sample_rows("~noise", every, rate=0.5, seed=0)
        assert twice[0] == twice[1] == np.array(every)[drawn].tolist()
        assert 60 < len(twice[0]) < 120
        assert bench.count("records") == bench.count("records", "2") == 180
        assert bench.count("flags:too_high") == bench.count("flags:too_high", "2")
