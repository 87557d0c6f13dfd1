"""A version that production runs on a part of the traffic while it is a challenger here: two judgements."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.dataops.ledger.commit import flag_id
from outrider.monitor.trainer.evidence import shadow_evidence
from tests.end_to_end.service import write_project

from .workbench import Workbench, workbench

CHECKS = '''
import numpy as np

from outrider.assertions import Findings, WeakLabels, Window, assertion


@assertion
def too_high(batch):
    """x above 0.9."""
    return batch.column("inputs.x") > 0.9


@assertion(window=Window(rows=8))
def run(batch):
    """Records above 0.9 of one entity: one event, found again with each of them."""
    high = batch.column("inputs.x") > 0.9
    rows, subjects, members = [], [], []
    for entity, at in batch.groups("entity"):
        at = at[high[at]]
        if entity is not None and len(at) and batch.is_new[at[-1]]:
            rows.append(at[0])
            subjects.append(f"{entity}/run")
            members.append(at)
    n = len(rows)
    weak = WeakLabels(
        np.array(rows, dtype=np.int64), np.arange(n), ["replace"] * n, ["outputs.label"] * n, np.full(n, -1),
        [0] * n, np.full(n, 0.7),
    )
    return Findings(np.array(rows, dtype=np.int64), np.ones(n), subjects, members, (), weak)
'''


def challenge(bench: Workbench, version: str = "2") -> None:
    bench.feed([record(1000, 0.5)])
    bench.work()
    bench.execute(
        "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us, note)"
        " SELECT model, :version, 'challenger', digest, source, created_us, changed_us, ''"
        " FROM model_version",
        version=version,
    )
    bench.worker._refresh(force=True)


def record(number: int, x: float, **rest: Any) -> dict[str, Any]:
    return {"id": f"r{number}", "inputs": {"x": x}, "entity": "e", "version": "2", **rest}


def test_flags_of_a_version_that_serves_and_is_a_challenger_are_kept_of_both(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS)) as bench:
        challenge(bench)
        outputs = {"label": 1, "score": 0.97}
        bench.feed([record(n, 0.97, outputs=outputs) for n in range(20)])
        bench.work()
        every = {f"r{n}" for n in range(20)}
        assert bench.flags("too_high", slot="2") == bench.flags("too_high") == every
        for slot in ("champion", "2"):
            assert bench.count("flags:too_high", slot) == 20
            query = "SELECT sum(flags), sum(kept) FROM flag_count WHERE slot = :s AND assertion = 'too_high'"
            assert bench.rows(query, s=slot) == [(20, 20)]
        judged = "SELECT DISTINCT slot, version FROM flag WHERE assertion = 'too_high' ORDER BY 1"
        assert bench.rows(judged) == [("2", "2"), ("champion", "2")]
        with bench.engine.connect() as connection:
            evidence = shadow_evidence(connection, "toy", "1", "2")
        # Production's answers are its own: they tell nothing of the champion.
        assert (evidence.rows, evidence.others) == (0, 20)
        revision = bench.rows("SELECT revision FROM assertion WHERE name = 'too_high'")[0][0]
        ids = {row[0] for row in bench.rows("SELECT id FROM flag WHERE slot = 'champion'")}
        assert {flag_id("toy", "2", "too_high", revision, key) for key in every} <= ids


def test_events_of_a_challenger_go_on_behind_a_restart(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS)) as bench:
        challenge(bench)
        bench.feed([record(n, 0.97, version="1") for n in range(3)])
        bench.work()
        bench.restart()
        bench.feed([record(n, 0.97, version="1") for n in range(3, 6)])
        bench.work()
        assert bench.rows("SELECT count(*) FROM flag WHERE slot = '2' AND assertion = 'run'") == [(1,)]
        assert bench.count("flags:run", "2") == bench.count("flags:run") == 1
        assert bench.count("flags:too_high", "2") == 6
        members = "SELECT count(*) FROM flag_record JOIN flag ON flag.id = flag_id WHERE slot = :s"
        assert bench.rows(members, s="2") == bench.rows(members, s="champion") == [(6,)]
        assert bench.rows("SELECT count(*) FROM flag_record") == [(12,)]
        weak = bench.rows("SELECT slot, flag_id IN (SELECT id FROM flag) FROM weak_label ORDER BY 1")
        assert weak == [("2", 1), ("champion", 1)]


def test_a_replay_finds_the_challengers_flags_and_stores_none_twice(tmp_path: Path) -> None:
    config = write_project(tmp_path, checks=CHECKS)
    with workbench(config) as bench:
        challenge(bench)
        bench.feed([record(n, 0.97, version="1") for n in range(6)])
        bench.work()
        before = bench.rows("SELECT id, slot FROM flag ORDER BY id")
        weak = bench.rows("SELECT count(*) FROM weak_label")
        for slot in ("champion", "2"):
            told = CliRunner().invoke(
                app, ["replay", "toy", "--slot", slot, "--check", "--write", "--config", str(config)]
            )
            assert told.exit_code == 0, told.output
        assert bench.rows("SELECT id, slot FROM flag ORDER BY id") == before
        assert bench.rows("SELECT count(*) FROM weak_label") == weak == [(2,)]


@pytest.mark.costly("needs as many records as a promise is about")
def test_answers_of_production_and_of_a_challenger_are_profiled_apart_and_once(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS)) as bench:
        challenge(bench)
        for block in range(30):
            rows = range(2000 + 50 * block, 2050 + 50 * block)
            bench.feed([record(n, n % 50 / 50, version="1") for n in rows], after_s=4)
            bench.work()
            if block % 9 == 8:
                bench.restart()
        bench.feed([record(9999, 0.5, version="1")], after_s=60)
        bench.work()
        stored = bench.rows("SELECT slot, version, sum(rows) FROM profile GROUP BY slot, version ORDER BY 1")
        assert stored == [("2", "2", 1500), ("champion", "1", 1501)]  # one came before it
