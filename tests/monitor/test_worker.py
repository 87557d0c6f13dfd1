import json
import random
from pathlib import Path
from typing import Any

import pytest

from outrider.monitor.views.overview.reader import read_overview
from tests.end_to_end.service import CHECKS, CONFIG, MODEL, write_project

from .workbench import Workbench, workbench


def record(number: int, x: Any, **rest: Any) -> dict[str, Any]:
    return {"id": f"r{number}", "inputs": {"x": x}, "attrs": {"device": "a"}, **rest}


def stream(rows: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [record(n, round(rng.random(), 6), entity=f"e{rng.randrange(5)}") for n in range(rows)]


def test_records_without_outputs_are_judged_on_the_replicas_answers(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([record(0, 0.95), record(1, 0.2), record(2, 0.51)])
        bench.work()
        assert bench.flags("too_high") == {"r0"}
        assert bench.flags("unsure") == {"r2"}
        assert bench.rows("SELECT id, predicted, version, slice FROM record ORDER BY id") == [
            ("r0", "1", None, "a"),
            ("r1", "0", None, "a"),
            ("r2", "1", None, "a"),
        ]
        assert bench.count("records") == 3
        assert bench.rows("SELECT count(*) FROM answer WHERE version = '1'") == [(1,)]


def test_recorded_outputs_are_what_is_judged(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([record(0, 0.2, version="7", outputs={"label": 1, "score": 0.51})])
        bench.work()
        assert bench.flags("unsure") == {"r0"}  # the replica would have said 0.8
        assert bench.rows("SELECT version FROM flag WHERE assertion = 'unsure'") == [("7",)]


def test_a_repeat_counts_once_and_other_content_is_a_conflict(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([record(0, 0.95), record(0, 0.95), record(1, 0.1)])
        bench.feed([record(1, 0.1), record(0, 0.5), record(2, 0.99)])
        bench.work()
        assert bench.flags("too_high") == {"r0", "r2"}
        counts = {name: bench.count(name) for name in ("records", "duplicates", "conflicts")}
        assert counts == {"records": 3, "duplicates": 2, "conflicts": 1}
        assert bench.rows("SELECT record_id, reason FROM dead_letter") == [("r0", "conflict")]


def test_labels_join_by_id_before_and_after_their_record(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.label({"r1": 0})
        bench.feed([record(0, 0.95), record(1, 0.99)])
        bench.label({"r0": 1, "r1": 1}, source="second")
        bench.work()
        assert bench.count("labels") == 3
        latest = bench.rows(
            "SELECT record_id, value, source FROM label WHERE record_id = 'r1' ORDER BY seq DESC LIMIT 1"
        )
        assert latest == [("r1", "1", "second")]
        assert json.loads(bench.rows("SELECT label FROM label WHERE record_id = 'r0'")[0][0]) == {"label": 1}


def test_a_null_label_of_a_record_is_a_withdrawal_in_the_ledger(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([record(0, 0.95), record(1, 0.99)])
        bench.label({"r0": 1, "r1": 1})
        bench.label({"r0": None, "r1": 0})
        bench.work()
        latest = bench.rows(
            "SELECT record_id, value, label FROM label WHERE seq = (SELECT max(seq) FROM label)"
        )
        assert latest == [("r0", None, "{}"), ("r1", "0", '{"label": 0}')]


def test_flags_do_not_depend_on_how_blocks_are_cut_or_where_the_worker_restarts(tmp_path: Path) -> None:
    records = stream(120)
    seen = []
    for case, cuts in enumerate(([120], [1, 2, 30, 87], [40, 40, 40])):
        with workbench(write_project(tmp_path / str(case))) as bench:
            start = 0
            for size in cuts:
                bench.feed(records[start : start + size], after_s=0.01)
                start += size
                if case == 2:
                    bench.work()
                    bench.restart()
            bench.work()
            seen.append(
                bench.rows(
                    "SELECT id, record_id, assertion, severity FROM flag"
                    " WHERE assertion != 'test_nudge' ORDER BY id"
                )
            )
    assert seen[0] == seen[1] == seen[2]
    assert {row[2] for row in seen[0]} == {"too_high", "unsure", "flips"}


def test_windows_see_the_same_with_and_without_a_restart_between_blocks(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([record(0, 0.8, entity="e")])
        bench.work()
        bench.restart()
        bench.feed([record(1, 0.1, entity="e")])
        bench.work()
        assert bench.flags("flips") == {"r1"}


def test_live_tests_ask_the_replica_and_keep_both_answers_as_evidence(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([record(n, 0.47) for n in range(40)])
        bench.work()
        status = dict(bench.rows("SELECT status, count(*) FROM live_answer GROUP BY 1"))
        assert set(status) == {"failed"}
        assert 8 <= status["failed"] <= 32  # live=0.5
        assert len(bench.flags("test_nudge")) == status["failed"] == bench.count("live:test_nudge:failed")
        evidence = json.loads(bench.rows("SELECT evidence FROM flag WHERE assertion = 'test_nudge'")[0][0])
        assert evidence["inputs"]["x"] == pytest.approx(0.52)
        assert (evidence["original"]["label"], evidence["outputs"]["label"]) == (0, 1)


def test_a_challenger_is_judged_on_its_own_answers_from_where_it_joined(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    with workbench(config) as bench:
        bench.feed([record(0, 0.95)])
        bench.work()
        bench.execute(
            "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us, note)"
            " SELECT model, '2', 'challenger', digest, source, created_us, changed_us, '' FROM model_version"
        )
        bench.worker._refresh(force=True)
        bench.feed([record(1, 0.97, outputs={"label": 0, "score": 0.9}), record(2, 0.1)])
        bench.work()
        assert bench.flags("too_high", slot="2") == {"r1"}
        assert bench.flags("too_high") == {"r0", "r1"}
        assert bench.count("records", slot="2") == 2
        assert bench.rows("SELECT DISTINCT version FROM flag WHERE slot = '2'") == [("2",)]


def test_a_challenger_that_lags_sees_the_answers_of_who_was_champion_then(tmp_path: Path) -> None:
    alone = """

@assertion
def alone(batch):
    return [float(batch.answers("champion") is None)] * batch.rows
"""
    with workbench(write_project(tmp_path, checks=CHECKS + alone)) as bench:
        bench.feed([record(0, 0.3)])
        bench.work()
        for version, status in (("2", "champion"), ("3", "challenger")):
            bench.execute(
                "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us,"
                " note) SELECT model, :version, 'retired', digest, source, created_us, changed_us, ''"
                " FROM model_version WHERE version = '1'",
                version=version,
            )
            bench.execute("UPDATE model_version SET status = 'retired' WHERE status = :status", status=status)
            bench.execute(
                "UPDATE model_version SET status = :status WHERE version = :version",
                status=status,
                version=version,
            )
        bench.worker._refresh(force=True)
        bench.worker.context.cursors["toy", "3"] = 0
        bench.execute("UPDATE cursor SET seq = 0 WHERE slot = '3'")
        bench.feed([record(1, 0.3)], after_s=1.5)
        bench.work()
        assert bench.count("records", slot="3") == 2
        assert bench.rows("SELECT version FROM champion_border ORDER BY seq") == [("1",), ("2",)]
        assert bench.flags("alone", slot="3") == set()


def test_windows_of_a_challenger_flag_it_and_not_the_version_that_production_ran(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed([record(9, 0.5, entity="z", version="1")])
        bench.work()
        bench.execute(
            "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us, note)"
            " SELECT model, '2', 'challenger', digest, source, created_us, changed_us, '' FROM model_version"
        )
        bench.worker._refresh(force=True)
        bench.feed([record(n, x, entity="e", version="1") for n, x in enumerate((0.8, 0.1))])
        bench.work()
        query = "SELECT slot, version, record_id FROM flag WHERE assertion = 'flips' ORDER BY slot"
        found = bench.rows(query)
        assert found == [("2", "2", "r1"), ("champion", "1", "r1")]


BROKEN = """

@assertion
def broken(batch):
    {body}
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise KeyError('x')", "raised"),
        ("import time; time.sleep(600)", "deadline"),
        ("import os; os._exit(3)", "died"),
        ("return [True]", "wrong_shape"),
        ("return [bytearray(1 << 33) for _ in range(64)]", "out_of_memory"),
    ],
)
def test_an_assertion_that_fails_loses_only_its_own_verdicts_and_is_suspended(
    tmp_path: Path, body: str, reason: str
) -> None:
    good = write_project(tmp_path / "good")
    bad = write_project(tmp_path / "bad", checks=CHECKS + BROKEN.format(body=body))
    records = stream(60)
    judged = []
    for config in (good, bad):
        with workbench(config, deadline_s=1.0) as bench:
            for start in range(0, 60, 15):
                bench.feed(records[start : start + 15], after_s=2.0)
                bench.work()
            judged.append(bench.rows("SELECT id, severity, evidence FROM flag ORDER BY id"))
            strikes = bench.rows("SELECT assertion, reason FROM strike")
            until = bench.rows("SELECT suspended_until_us FROM assertion WHERE name = 'broken'")
    assert judged[0] == judged[1]
    assert strikes == [("broken", reason)] * 3  # the fourth block came after the suspension
    assert until[0][0] > 0


def test_a_suspension_outlives_a_restart_and_ends_with_a_new_revision(tmp_path: Path) -> None:
    config = write_project(tmp_path, checks=CHECKS + BROKEN.format(body="raise KeyError('x')"))
    with workbench(config) as bench:
        for number in range(4):
            bench.feed([record(number, 0.5)], after_s=2.0)
            bench.work()
        assert len(bench.rows("SELECT 1 FROM strike")) == 3
        bench.restart()
        bench.feed([record(9, 0.5)])
        bench.work()
        assert len(bench.rows("SELECT 1 FROM strike")) == 3
        fixed = CHECKS + BROKEN.format(body="return batch.column('inputs.x') > 2")
        (tmp_path / "checks.py").write_text(fixed, encoding="utf-8")
        bench.restart()
        assert "broken" not in bench.worker.context.pipelines["toy"].suspended


POISON_MODEL = MODEL.replace(
    'x = batch.column("inputs.x")',
    'x = batch.column("inputs.x")\n    assert not (x == 0.666).any(), "beast"',
)


def test_a_record_the_model_cannot_take_is_dead_lettered_alone(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    (tmp_path / "model.py").write_text(POISON_MODEL, encoding="utf-8")
    with workbench(config) as bench:
        bench.feed([record(n, 0.666 if n == 13 else 0.95) for n in range(40)])
        bench.work()
        assert len(bench.flags("too_high")) == 39
        (letter,) = bench.rows("SELECT record_id, reason, detail FROM dead_letter")
        assert letter[:2] == ("r13", "poison")
        assert "beast" in letter[2]
        assert (bench.count("records"), bench.count("poison")) == (39, 1)


def test_a_block_that_cannot_be_read_is_a_dead_letter_and_stops_nothing(tmp_path: Path) -> None:
    from outrider.dataops.journal.journal import Entry

    with workbench(write_project(tmp_path)) as bench:
        bench.journal.append([Entry(kind="records", model="toy", rows=3, payload=b"not arrow")], bench.now_us)
        bench.feed([record(0, 0.95)])
        bench.work()
        assert bench.flags("too_high") == {"r0"}
        assert bench.rows("SELECT reason FROM dead_letter") == [("unreadable",)]


def test_enough_labelled_flags_make_one_job_whose_event_waits_for_the_dataset(tmp_path: Path) -> None:
    retrain = "\n[models.toy.retrain]\nenabled = true\nlabelled_flags = 3\n"
    hook = '\n[[webhooks]]\nurl = "http://127.0.0.1:9/x"\nsecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"\n'
    with workbench(write_project(tmp_path, config=CONFIG + retrain + hook)) as bench:
        bench.feed([record(n, 0.95) for n in range(5)])
        bench.label({"r0": 1, "r1": 0})
        bench.work()
        assert bench.rows("SELECT count(*) FROM job") == [(0,)]
        bench.label({"r2": 0, "r3": 1})
        bench.work()
        bench.label({"r4": 0})
        bench.work()
        assert bench.rows("SELECT model, kind, status FROM job") == [("toy", "retrain", "queued")]
        requested = "SELECT event FROM outbox WHERE event NOT LIKE 'incident.%'"
        assert bench.rows(requested) == []


def test_metrics_count_what_was_committed(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        known = {"model": "toy", "assertion": "too_high"}
        at_once = bench.registry.get_sample_value
        assert at_once("outrider_flags_total", known | {"role": "champion", "level": "critical"}) == 0
        assert at_once("outrider_flags_total", known | {"role": "champion", "level": "info"}) is None
        assert at_once("outrider_assertion_strikes_total", known) == 0
        live = {"model": "toy", "test": "test_nudge", "outcome": "failed"}
        assert at_once("outrider_live_questions_total", live) == 0
        bench.feed([record(0, 0.95), record(1, 0.2)])
        bench.work()
        labels = {"model": "toy", "role": "champion"}
        value = bench.registry.get_sample_value
        assert value("outrider_records_judged_total", labels) == 2
        assert value("outrider_flags_total", labels | {"assertion": "too_high", "level": "critical"}) == 1
        assert value("outrider_model_info", labels | {"version": "1"}) == 1
        assert value("outrider_lag_blocks", labels) == 0
        bench.feed([record(2, 0.5), record(3, 0.5)])
        bench.label({"r2": 1})
        bench.worker._refresh(force=True)
        assert value("outrider_lag_records", labels) == 2
        assert value("outrider_lag_records", labels | {"role": "challenger"}) == 0
        bench.work()
        bench.worker._refresh(force=True)
        assert value("outrider_lag_records", labels) == 0


def test_two_workers_on_one_database_do_not_commit_twice(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        other = Workbench(bench.config)
        try:
            bench.feed([record(0, 0.95)])
            bench.work()
            with pytest.raises(RuntimeError, match="stop the other worker"):
                other.work()
        finally:
            other.close()


SLOW_TRACK = """
from outrider.assertions import Window, assertion


@assertion(window=Window(rows=3, idle_s=10.0))
def third(batch):
    return [i >= 2 for i in range(batch.rows)]
"""


def test_a_restart_rebuilds_the_whole_context_of_a_slow_entity(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=SLOW_TRACK)) as bench:
        bench.feed([record(0, 0.8, entity="e")], after_s=8)
        bench.feed([record(1, 0.8, entity="e")], after_s=8)
        bench.work()
        bench.restart()
        bench.feed([record(2, 0.8, entity="e")], after_s=8)
        bench.work()
        assert bench.flags("third") == {"r2"}


IMPOSSIBLE_WINDOW = """

@assertion(window=Window(by="inputs.x", rows=2))
def impossible(batch):
    return [True] * batch.rows
"""


def test_a_window_that_cannot_be_made_loses_only_its_own_verdicts(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS + IMPOSSIBLE_WINDOW)) as bench:
        vector = [record(0, [0.95, 0.1])]
        (tmp_path / "model.py").write_text("def predict(batch):\n    return {'score': [0.5]}\n", "utf-8")
        bench.restart()
        bench.feed(vector)
        bench.work()
        strikes = {row[0]: row[1] for row in bench.rows("SELECT assertion, detail FROM strike")}
        assert "cannot name an entity" in strikes["impossible"]
        assert bench.flags("unsure") == {"r0"}


def test_recorded_outputs_of_another_type_than_the_replicas_stand(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    (tmp_path / "model.py").write_text(
        "import numpy as np\n\n\ndef predict(batch):\n    return {'label': np.array(['yes'] * batch.rows)}\n"
    )
    with workbench(config) as bench:
        bench.feed([record(0, 0.95, outputs={"label": 1}), record(1, 0.95)])
        bench.work()
        assert bench.flags("too_high") == {"r0", "r1"}
        assert bench.rows("SELECT predicted FROM record ORDER BY id") == [("1",), ("yes",)]


@pytest.mark.parametrize("label", ["b'x'", "np.datetime64('2026-01-05')", "np.nan"])
def test_evidence_of_a_live_test_is_json_whatever_the_model_answers(tmp_path: Path, label: str) -> None:
    config = write_project(tmp_path)
    (tmp_path / "model.py").write_text(
        "import numpy as np\n\n\n"
        f"def predict(batch):\n    x = batch.column('inputs.x')\n"
        f"    return {{'label': (x > 0.5).astype(int), 'other': np.array([{label}] * batch.rows)}}\n"
    )
    with workbench(config) as bench:
        bench.feed([record(n, 0.47) for n in range(20)])
        bench.work()
        for (evidence,) in bench.rows("SELECT evidence FROM flag WHERE assertion = 'test_nudge'"):
            assert "NaN" not in evidence
            assert json.loads(evidence)["original"]["label"] == 0
        assert bench.flags("test_nudge")


PICKY = """

@assertion
def picky(batch):
    assert not (batch.column("outputs.label") == 2).any()
    return [True] * batch.rows
"""


def test_a_challenger_that_breaks_an_assertion_suspends_it_for_itself_alone(tmp_path: Path) -> None:
    config = write_project(tmp_path, checks=CHECKS + PICKY)
    (tmp_path / "model.py").write_text(MODEL.replace("> 0.5).astype(int)", "> 0.5) + 1"), encoding="utf-8")
    with workbench(config) as bench:
        bench.execute(
            "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us, note)"
            " SELECT model, '2', 'challenger', digest, source, created_us, changed_us, '' FROM model_version"
        )
        bench.worker._refresh(force=True)
        for number in range(5):
            bench.feed([record(number, 0.9, outputs={"label": 0, "score": 0.9})], after_s=2.0)
            bench.work()
        assert bench.flags("picky") == {f"r{number}" for number in range(5)}
        assert bench.flags("picky", slot="2") == set()
        assert len(bench.rows("SELECT 1 FROM strike")) == 3  # then the challenger's own suspension began
        bench.restart()
        bench.feed([record(9, 0.9, outputs={"label": 0, "score": 0.9})], after_s=2.0)
        bench.work()
        assert "r9" in bench.flags("picky")


def test_a_refused_challenger_leaves_no_lag_behind(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.execute(
            "INSERT INTO model_version (model, version, status, digest, source, created_us, changed_us, note)"
            " SELECT model, '2', 'challenger', digest, source, created_us, changed_us, '' FROM model_version"
        )
        bench.worker._refresh(force=True)
        bench.feed([record(0, 0.95)])
        bench.worker._refresh(force=True)
        labels = {"model": "toy", "role": "challenger"}
        assert bench.registry.get_sample_value("outrider_lag_blocks", labels) == 1
        bench.execute("UPDATE model_version SET status = 'refused' WHERE version = '2'")
        bench.worker._refresh(force=True)
        assert bench.registry.get_sample_value("outrider_lag_blocks", labels) == 0
        assert list(bench.worker.context.pipelines["toy"].slots) == ["champion"]


def test_the_page_shows_the_columns_that_the_worker_profiled(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        for block in range(11):
            bench.feed([record(100 * block + n, n / 100) for n in range(100)])
        bench.work()
        view = read_overview(bench.engine, "toy", now_us=bench.now_us)
        assert view.profile.columns == ()
        bench.feed([record(5000, 0.5)], after_s=60)
        bench.work()
        view = read_overview(bench.engine, "toy", now_us=bench.now_us)
        assert view.profile.records == 1100
        columns = {column.name: column for column in view.profile.columns}
        assert (columns["inputs.x"].rows, columns["inputs.x"].nulls) == (1100, 0)
        assert columns["inputs.x"].quantiles is not None
        assert columns["inputs.x"].quantiles[2] == pytest.approx(0.5, abs=0.02)
        assert "outputs.score" in columns


def test_profiles_are_the_same_whenever_the_worker_dies(tmp_path: Path) -> None:
    found = []
    for case in range(2):
        with workbench(write_project(tmp_path / str(case))) as bench:
            for block in range(40):
                bench.feed([record(50 * block + n, n / 50) for n in range(50)], after_s=5)
                bench.work()
                if case and block % 7 == 3:
                    bench.restart()
            columns = "span_s, start_us, slot, version, slice, seq, rows, layout, payload"
            found.append(bench.rows(f"SELECT {columns} FROM profile ORDER BY seq"))
    assert [row[6] for row in found[0]] == [600, 600, 600] or sum(row[6] for row in found[0]) >= 1100
    assert found[0] == found[1]


STORM = """
[flags]
per_minute = 40
quiet_s = 60.0

[[webhooks]]
url = "http://127.0.0.1:9/x"
secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""


def test_a_storm_is_counted_exactly_kept_in_part_and_told_once(tmp_path: Path) -> None:
    records = [record(n, 0.95) for n in range(300)]
    kept = []
    for case, cuts in enumerate(([300], [10, 150, 140])):
        with workbench(write_project(tmp_path / str(case), config=CONFIG + STORM)) as bench:
            start = 0
            for size in cuts:
                bench.feed(records[start : start + size], after_s=0.01)
                start += size
                bench.work()
                if case:
                    bench.restart()
            known = {"model": "toy", "assertion": "too_high"}
            assert bench.count("flags:too_high") == 300
            assert bench.rows("SELECT sum(flags) FROM flag_count WHERE assertion = 'too_high'") == [(300,)]
            kept.append(bench.flags("too_high"))
            assert 40 <= len(kept[-1]) < 120
            if not case:
                value = bench.registry.get_sample_value
                thinned = value("outrider_flags_thinned_total", known)
                assert thinned == 300 - len(kept[0])
                role = {"role": "champion", "level": "critical"}
                assert value("outrider_flags_total", known | role) == 300
            opened = "SELECT assertion, slice, status, flags FROM incident"
            assert bench.rows(opened) == [("too_high", "", "open", 300)]
            bench.feed([record(1000, 0.3)], after_s=61.0)
            bench.work()
            told = bench.rows("SELECT event FROM outbox ORDER BY created_us")
            assert told == [("incident.opened",), ("incident.resolved",)]
    assert kept[0] == kept[1]


def test_a_person_suspends_an_assertion_for_every_slot_and_resumes_it(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.execute(
            "UPDATE assertion SET suspended_until_us = :until, suspension = 'noise' WHERE name = 'too_high'",
            until=bench.now_us + 3_600_000_000,
        )
        bench.worker._refresh(force=True)
        bench.feed([record(0, 0.95), record(1, 0.51)])
        bench.work()
        assert (bench.flags("too_high"), bench.flags("unsure")) == (set(), {"r1"})
        bench.execute("UPDATE assertion SET suspended_until_us = 0, suspension = ''")
        bench.worker._refresh(force=True)
        bench.feed([record(2, 0.95)])
        bench.work()
        assert bench.flags("too_high") == {"r2"}
        assert bench.count("judged:unsure") == 3
        assert bench.count("cost_ns:unsure") > 0
