"""Evidence on a policy's limits, from what the worker stored: flags, agreement, times."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.dataops.improvement.gate_limits import FlagLimit, LimitEvidence, PolicyLimits, judge_limits
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.payloads.objects import LocalObjects
from outrider.monitor.settings.config import Settings
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.limit_evidence import limit_evidence, unknown_assertions
from outrider.monitor.trainer.shadow_tests import ShadowTests

from .shadow_sample import MODEL, open_stream
from .test_canary import challenge
from .test_live_evidence import SURE, UNSURE, block, project
from .workbench import Workbench, workbench


def silent(batch: Batch) -> dict[str, Any]:
    return {}


def gathered(
    settings: Settings,
    engine: Engine,
    journal: SqliteJournal,
    limits: PolicyLimits,
    model: str,
    version: str = "2",
) -> LimitEvidence:
    context = JobContext(settings, engine, LocalObjects(settings.data_folder / "objects"), journal)
    with engine.connect() as connection:
        return limit_evidence(context, connection, model, limits, ("1", version), (silent, silent), None)


def of_bench(bench: Workbench, limits: PolicyLimits) -> LimitEvidence:
    return gathered(bench.settings, bench.engine, bench.journal, limits, "toy")


def outcomes(limits: PolicyLimits, found: LimitEvidence) -> list[str]:
    return [check.outcome for check in judge_limits(limits, found, max_drop=0.02)]


def test_shares_of_flags_are_those_of_the_candidate_s_answers(tmp_path: Path) -> None:
    limits = PolicyLimits(flags=[FlagLimit("unsure", 0.5), FlagLimit("doubtful", 0.001)])
    with workbench(project(tmp_path)) as bench:
        challenge(bench)
        for number in range(30):  # three hours each: fifteen stretches of three entities
            scores = [(UNSURE, UNSURE if n == 0 and number % 5 == 0 else SURE) for n in range(6)]
            block(bench, scores, name=f"{number}.")
            bench.now_us += 10_800_000_000
            bench.work()
        unsure, doubtful = of_bench(bench, limits).flags
        with bench.engine.connect() as connection:
            assert unknown_assertions(connection, "toy", limits) == []
    assert (unsure.rows, unsure.judged, unsure.flagged, unsure.thinned) == (180, 180, 6, 0)
    assert unsure.low < unsure.value < unsure.high
    assert unsure.value == pytest.approx(6 / 180, abs=0.01)
    assert unsure.stretches in (45, 46, 47, 48)
    assert (doubtful.flagged, doubtful.value) == (0, 0.0)
    assert outcomes(limits, LimitEvidence(flags=[unsure, doubtful])) == ["passed", "undecided"]


def test_a_storm_whose_flags_are_not_kept_is_not_passed(tmp_path: Path) -> None:
    limits = PolicyLimits(flags=[FlagLimit("unsure", 0.999)])
    with workbench(project(tmp_path, per_minute=10)) as bench:
        challenge(bench)
        block(bench, [(SURE, UNSURE)] * 200)
        bench.work()
        found = of_bench(bench, limits)
    assert found.flags[0].flagged + found.flags[0].thinned == 200
    assert found.flags[0].thinned > 100
    assert outcomes(limits, found) == ["undecided"]


def test_assertions_that_judge_no_challenger_are_named(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        challenge(bench)
        limits = PolicyLimits(flags=[FlagLimit(name, 0.1) for name in ("unsuer", "test_nudge", "unsure")])
        with bench.engine.connect() as connection:
            first, second = unknown_assertions(connection, "toy", limits)
            assert unknown_assertions(connection, "toy", PolicyLimits()) == []
        found = of_bench(bench, limits)
    assert first == "gate.flags names 'unsuer', which is no assertion of the model; nearest: unsure"
    assert second == "gate.flags names 'test_nudge', a live test, which asks the champion alone"
    assert outcomes(limits, found) == ["failed"] * 3


def test_times_of_live_answers_are_the_candidate_s(tmp_path: Path) -> None:
    limits = PolicyLimits(p99_ms=1e6)
    with workbench(project(tmp_path)) as bench:
        challenge(bench)
        block(bench, [(SURE, SURE)] * 40)
        bench.work()
        found = of_bench(bench, limits)
        assert found.times is not None
        assert found.times.answered >= 40
        assert found.times.p99_ms is not None
        assert 0 < found.times.p99_ms < 1e6
        assert outcomes(limits, found) == [
            "undecided"
        ]  # forty records tell nothing of the slowest of a hundred
        nobody = gathered(bench.settings, bench.engine, bench.journal, limits, "toy", "3")
        assert outcomes(limits, nobody) == ["failed"]


@pytest.mark.parametrize("is_followed", [True, False])
def test_agreement_is_that_of_a_shadow_test_up_to_the_newest_answer(
    tmp_path: Path, is_followed: bool
) -> None:
    limits = PolicyLimits(agreement="close")
    made = open_stream(tmp_path, wrong={"twin": 0.0, "worse": 0.1})
    try:
        none = gathered(made.settings, made.engine, made.journal, limits, MODEL, "twin")
        assert outcomes(limits, none) == ["failed"]
        if is_followed:
            ShadowTests(made.context).look()
        made.feed(60)
        if is_followed:
            ShadowTests(made.context).look()
        made.feed(60)
        found = {
            version: gathered(made.settings, made.engine, made.journal, limits, MODEL, version)
            for version in ("twin", "worse")
        }
        twin, worse = found["twin"].agreement, found["worse"].agreement
        assert twin is not None
        assert worse is not None
        assert (twin.word, twin.rows, worse.word) == ("same", made.fed, "different")
        assert twin.margin == pytest.approx(1 - made.settings.models[MODEL].shadow.agreement)
        assert [outcomes(limits, each) for each in found.values()] == [["passed"], ["failed"]]
    finally:
        made.engine.dispose()
        made.journal.close()


def test_answers_that_differ_are_held_against_labels(tmp_path: Path) -> None:
    limits = PolicyLimits(agreement="not worse")
    made = open_stream(tmp_path, wrong={"twin": 0.0, "worse": 0.2})
    try:
        made.feed(120)
        found = {
            version: gathered(made.settings, made.engine, made.journal, limits, MODEL, version).agreement
            for version in ("twin", "worse")
        }
    finally:
        made.engine.dispose()
        made.journal.close()
    twin, worse = found["twin"], found["worse"]
    assert twin is not None
    assert worse is not None
    assert (twin.word, twin.wrong) == ("same", None)
    assert worse.wrong is not None
    assert worse.wrong.records == 600
    assert 0.1 < worse.wrong.low < 0.8 / 3 < worse.wrong.high < 0.4
    assert outcomes(limits, LimitEvidence(agreement=worse)) == ["failed"]


def test_without_rows_nothing_is_timed(tmp_path: Path) -> None:
    with workbench(project(tmp_path)) as bench:
        found = of_bench(bench, PolicyLimits(time_ratio=1.0))
    assert found.times is not None
    assert found.times.ratio is None
