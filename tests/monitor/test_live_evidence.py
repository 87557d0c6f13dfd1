"""Records that one of champion and challenger alone flags: exact in storms, after crashes, of this pair."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from outrider.dataops.improvement.gate import LevelFlags, ShadowEvidence, judge_shadow
from outrider.dataops.journal.row_expiry import START, expire_rows
from outrider.dataops.state.database import write
from outrider.monitor.trainer.evidence import shadow_evidence
from tests.end_to_end.service import CONFIG, MODEL, write_project

from .test_canary import CHECKS as EVENTS
from .test_canary import challenge
from .workbench import Workbench, workbench

CHECKS = '''
import numpy as np

from outrider.assertions import Findings, Window, assertion


@assertion
def unsure(batch):
    """Score below 0.545."""
    return batch.column("outputs.score") < 0.545


@assertion(level="critical")
def doubtful(batch):
    """Score below 0.52."""
    return batch.column("outputs.score") < 0.52


@assertion(window=Window(rows=8))
def led_up(batch):
    """The record before one with a score above 0.98, which may be of an earlier block."""
    rows, score = [], batch.column("outputs.score")
    for entity, at in batch.groups("entity"):
        if len(at) > 1 and batch.is_new[at[-1]] and score[at[-1]] > 0.98:
            rows.append(at[-2])
    return Findings(np.array(rows, dtype=np.int64), np.ones(len(rows)))
'''
FAILING = MODEL.replace(
    'x = batch.column("inputs.x")', 'x = batch.column("inputs.x")\n    assert (x >= 0).all()'
)
UNSURE, DOUBTFUL, SURE = 0.54, 0.51, 0.8


def project(folder: Path, *, per_minute: int = 1000) -> Path:
    config = CONFIG + f"\n[flags]\nper_minute = {per_minute}\n"
    path = write_project(folder, config=config, checks=CHECKS)
    (folder / "model.py").write_text(FAILING, encoding="utf-8")
    return path


def block(bench: Workbench, scores: Sequence[tuple[float, float]], name: str = "a", **rest: Any) -> None:
    """Feed a block; of each record the score that production gave and the one that the challenger gives."""
    bench.feed(
        [
            {
                "id": f"{name}{n}",
                "entity": f"e{n % 3}",
                "version": "1",
                "inputs": {"x": theirs},
                "outputs": {"label": 1, "score": score},
                **rest,
            }
            for n, (score, theirs) in enumerate(scores)
        ]
    )


def evidence(bench: Workbench, champion: str = "1") -> ShadowEvidence:
    with bench.engine.connect() as connection:
        return shadow_evidence(connection, "toy", champion, "2")


def counts(bench: Workbench, champion: str = "1") -> tuple[int, int, int]:
    found = evidence(bench, champion)
    return found.rows, found.only_champion, found.only_candidate


@pytest.mark.parametrize("cuts", [[300], [10, 150, 140]])
def test_counts_in_a_storm_are_exact_however_the_stream_is_cut(tmp_path: Path, cuts: list[int]) -> None:
    scores = (
        [(SURE, DOUBTFUL)] * 150 + [(UNSURE, SURE)] * 30 + [(UNSURE, DOUBTFUL)] * 20 + [(SURE, SURE)] * 100
    )
    with workbench(project(tmp_path, per_minute=10)) as bench:
        challenge(bench)
        start = 0
        for number, size in enumerate(cuts):
            block(bench, scores[start : start + size], name=f"{number}.")
            start += size
            bench.work()
            bench.restart()
        kept = bench.rows("SELECT count(*) FROM flag WHERE slot = '2' AND assertion = 'unsure'")[0][0]
        assert kept < 50
        found = evidence(bench)
    assert (found.rows, found.champion_flagged, found.candidate_flagged) == (300, 50, 170)
    assert (found.only_champion, found.only_candidate) == (30, 150)
    assert found.levels == (LevelFlags("critical", 0, 170), LevelFlags("warning", 30, 150))
    assert (found.entities, found.entity_hours) == (3, 3)
    assert found.difference == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize("slot", ["champion", "2"])
def test_a_block_whose_commit_dies_counts_once(tmp_path: Path, slot: str) -> None:
    with workbench(project(tmp_path)) as bench:
        challenge(bench)
        block(bench, [(SURE, UNSURE), (UNSURE, SURE), (SURE, SURE)])
        bench.execute(
            f"CREATE TRIGGER dies BEFORE INSERT ON cursor WHEN NEW.slot = '{slot}' AND NEW.seq > 1 "
            "BEGIN SELECT RAISE(ABORT, 'the process dies'); END"
        )
        with pytest.raises(IntegrityError, match="the process dies"):
            bench.work()
        assert bench.rows(f"SELECT count(*) FROM judged_block WHERE slot = '{slot}' AND seq > 1") == [(0,)]
        bench.execute("DROP TRIGGER dies")
        bench.restart()
        bench.work()
        assert counts(bench) == (3, 1, 1)
        bench.restart()
        bench.work()
        assert counts(bench) == (3, 1, 1)


def test_a_flag_that_a_later_block_brings_marks_its_record_once(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        challenge(bench)
        block(bench, [(SURE, SURE)] * 3, name="a")
        bench.work()
        block(bench, [(SURE, 0.99)], name="b")
        bench.work()
        assert counts(bench) == (4, 0, 1)
        bench.restart()
        block(bench, [(0.99, SURE)], name="c")
        bench.work()
        assert counts(bench) == (5, 1, 1)
        assert bench.rows("SELECT record_id, slot FROM flag WHERE assertion = 'led_up' ORDER BY slot") == [
            ("a0", "2"),
            ("b0", "champion"),
        ]


def test_an_event_that_is_found_again_is_one_record(tmp_path: Path) -> None:
    """The first record of a run of one entity is another with each block: a window holds eight."""
    checks = EVENTS.replace('return batch.column("inputs.x") > 0.9', 'return batch.column("inputs.x") > 9')
    with workbench(write_project(tmp_path, checks=checks)) as bench:
        challenge(bench)
        for name in "abcd":
            bench.feed([{"id": f"{name}{n}", "entity": "e", "inputs": {"x": 0.97}} for n in range(4)])
            bench.work()
        found = evidence(bench)
    assert (found.rows, found.champion_flagged, found.candidate_flagged) == (16, 1, 1)


def test_records_count_where_both_answered(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        block(bench, [(UNSURE, SURE)] * 4, name="before")
        challenge(bench)
        block(bench, [(UNSURE, SURE)] * 2, name="both")
        bench.work()
        block(bench, [(UNSURE, -1.0)] * 5, name="none")
        bench.work()
        assert counts(bench) == (2, 2, 0)


def test_what_production_did_not_answer_is_judged_of_the_replica(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        challenge(bench)
        bench.feed([{"id": f"a{n}", "inputs": {"x": x}} for n, x in enumerate((SURE, UNSURE))])
        bench.work()
        bench.feed([{"id": "b", "inputs": {"x": -1.0}}])
        bench.work()
        found = evidence(bench)
    assert (found.rows, found.champion_flagged, found.candidate_flagged) == (2, 1, 1)
    assert (found.entities, found.entity_hours) == (0, 1)


def test_live_tests_which_ask_the_champion_alone_are_left_out(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        challenge(bench)
        bench.feed([{"id": f"a{n}", "inputs": {"x": 0.4535}} for n in range(40)])  # 0.05 more: another label
        bench.work()
        flagged = bench.rows("SELECT DISTINCT assertion, slot FROM flag WHERE record_id LIKE 'a%'")
        assert flagged == [("test_nudge", "champion")]
        found = evidence(bench)
    assert [one.level for one in found.levels] == []
    assert (found.rows, found.only_champion, found.only_candidate) == (40, 0, 0)


def test_only_this_champion_counts(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        challenge(bench)
        block(bench, [(UNSURE, SURE)] * 4, name="a")
        block(bench, [(SURE, UNSURE)] * 3, name="b", version="3")
        bench.work()
        assert (counts(bench, "1"), counts(bench, "3")) == ((4, 4, 0), (3, 0, 3))
        check = judge_shadow(evidence(bench, "3"), 5)
    told = "3 were judged in time, 5 are needed; 4 more answers were of other versions than the champion"
    assert check.reason == f"live records: {told}"


def test_records_without_marks_erased_and_expired_ones_do_not_count(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        challenge(bench)
        for name in "abc":
            block(bench, [(UNSURE, SURE)] * 4, name=name)
            bench.work()
        bench.execute("DELETE FROM record WHERE id = 'c0'")
        assert counts(bench) == (11, 11, 0)
        first, second = (row[0] for row in bench.rows("SELECT DISTINCT seq FROM judged_block ORDER BY 1")[:2])
        bench.execute("DELETE FROM judged_block WHERE seq = :seq AND slot = 'champion'", seq=first)
        assert counts(bench) == (7, 7, 0)
        with write(bench.engine) as connection:
            expire_rows(connection, "toy", after=START, until=second, limit=100, now_us=bench.now_us)
        assert counts(bench) == (3, 3, 0)
        assert "3 were judged in time, 5 are needed" in judge_shadow(evidence(bench), 5).reason


def test_a_model_without_challengers_keeps_no_marks(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        block(bench, [(UNSURE, SURE)] * 4)
        bench.work()
        assert bench.rows("SELECT count(*) FROM judged_block") == [(0,)]
