"""Events, weak labels, late records and window checkpoints on the live path, and replays of them."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from outrider.assertions import Batch, load_assertions
from outrider.cli import app
from outrider.dataops.journal.journal import Entry
from outrider.errors import ConfigError
from outrider.monitor.worker import replay as replaying
from outrider.monitor.worker.replay import Replayed
from tests.end_to_end.service import write_project

from .workbench import Workbench, workbench

CHECKS = '''
import numpy as np

from outrider.assertions import Findings, Group, WeakLabels, Window, assertion

WINDOW = Window(seconds=10, lateness_s=2.0, idle_s=30.0, columns=("outputs.label",))


@assertion
def unsure(batch):
    """Score below 0.55."""
    return batch.column("outputs.score") < 0.55


@assertion(window=WINDOW)
def flips(batch):
    """The label differs from the one before of the same entity."""
    label, entity = batch.column("outputs.label"), batch.column("entity")
    differs = np.zeros(batch.rows, dtype=bool)
    differs[1:] = (label[1:] != label[:-1]) & (entity[1:] == entity[:-1])
    return differs


@assertion(window=WINDOW)
def blip(batch):
    """One record differs from both of its neighbours: an event, known with the second of them."""
    label, entity, new = batch.column("outputs.label"), batch.column("entity"), batch.is_new
    at = np.array(
        [i for i in range(1, batch.rows - 1)
         if new[i + 1] and entity[i - 1] == entity[i + 1] and label[i - 1] == label[i + 1] != label[i]],
        dtype=np.int64,
    )
    keys = batch.keys
    n = len(at)
    weak = WeakLabels(
        at, np.arange(n), ["replace"] * n, ["outputs.label"] * n, np.full(n, -1),
        [int(label[i - 1]) for i in at], np.full(n, 2 / 3),
    )
    return Findings(
        at, np.ones(n), [f"{entity[i]}/blip/{keys[i]}" for i in at],
        [np.array([i - 1, i, i + 1]) for i in at], [{"between": int(label[i - 1])} for i in at], weak,
    )


@assertion(window=Group(by="attrs.frame", wait_s=1.0))
def crowded(batch):
    """More than two records of one frame."""
    frame = batch.column("attrs.frame")
    values, inverse, counts = np.unique(frame.astype(str), return_inverse=True, return_counts=True)
    return counts[inverse] > 2
'''

START = 1_790_000_000.0


def record(number: int, label: int, ts: float, entity: str = "a", frame: int | None = None) -> dict[str, Any]:
    return {
        "id": f"r{number}",
        "ts": datetime.fromtimestamp(START + ts, UTC).isoformat(),
        "entity": entity,
        "inputs": {"x": 0.0},
        "outputs": {"label": label, "score": 0.9 if number % 7 else 0.51},
        "attrs": {"frame": f"f{number if frame is None else frame}"},
    }


def feed(bench: Workbench, records: list[dict[str, Any]], *, after_s: float = 0.1) -> None:
    """One block whose records keep their own times."""
    bench.now_us += int(after_s * 1e6)
    batch = Batch.from_records(records, model="toy")
    received = pa.repeat(pa.scalar(bench.now_us, pa.timestamp("us", tz="UTC")), batch.rows)
    batch = batch.with_columns({"received": received})
    bench.journal.append(
        [Entry(kind="records", model="toy", rows=batch.rows, payload=batch.to_ipc())], bench.now_us
    )


def tick(bench: Workbench, after_s: float) -> None:
    bench.now_us += int(after_s * 1e6)
    bench.journal.append([Entry(kind="tick", model="", rows=0, payload=b"")], bench.now_us)


def everything(bench: Workbench) -> list[list[tuple[Any, ...]]]:
    return [
        bench.rows(
            "SELECT id, record_id, assertion, revision, version, severity, evidence, seq, row"
            " FROM flag ORDER BY id"
        ),
        bench.rows("SELECT flag_id, record_id, seq, row FROM flag_record ORDER BY flag_id, record_id"),
        bench.rows("SELECT id, record_id, flag_id, value, confidence FROM weak_label ORDER BY id"),
    ]


def replayed(bench: Workbench, checks: Path, **more: Any) -> Replayed:
    judges = load_assertions(checks)
    until = replaying.judged_until(bench.engine, "toy", "champion")
    which = replaying.stretch(bench.journal, judges, since_us=0, until=until)
    return replaying.replay(
        bench.engine, bench.journal, "toy", bench.settings.models["toy"], judges, which, **more
    )


def test_an_event_is_one_flag_with_members_evidence_and_a_weak_label(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS)) as bench:
        feed(bench, [record(n, label, n / 10) for n, label in enumerate([0, 0, 1, 0, 0])])
        bench.work()
        assert bench.flags("blip") == set()  # held back: an earlier one could still come
        tick(bench, 2.5)
        bench.work()
        assert bench.flags("blip") == {"r2"}
        members = bench.rows("SELECT record_id FROM flag_record ORDER BY record_id")
        assert members == [("r1",), ("r2",), ("r3",)]
        assert bench.rows("SELECT evidence FROM flag WHERE assertion = 'blip'") == [('{"between":0}',)]
        weak = bench.rows(
            "SELECT record_id, kind, field, element, value, confidence, assertion FROM weak_label"
        )
        assert weak == [("r2", "replace", "outputs.label", -1, "0", pytest.approx(2 / 3), "blip")]
        assert bench.flags("flips") == {"r2", "r3"}
        # Places are those of the records, not of the block that made them known.
        assert bench.rows("SELECT seq, row FROM flag WHERE assertion = 'blip'") == [(1, 2)]
        assert bench.count("flagged") == len(bench.rows("SELECT DISTINCT record_id FROM flag"))


def test_out_of_order_within_the_lateness_is_put_in_order_and_later_is_counted(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS)) as bench:
        feed(bench, [record(0, 0, 0.0), record(2, 0, 2.0)])
        feed(bench, [record(1, 1, 1.0)])  # between them, and within two seconds
        feed(bench, [record(3, 0, 9.0)])
        feed(bench, [record(4, 1, 3.0)])  # six seconds late
        tick(bench, 3.0)
        bench.work()
        assert bench.flags("blip") == {"r1"}
        assert "r4" not in bench.flags("flips")
        assert bench.count("late") == 1
        assert bench.count("records") == 5


def test_a_group_is_judged_once_when_nobody_joins_it_any_more(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS)) as bench:
        feed(bench, [record(n, 0, n / 10, frame=7) for n in range(2)])
        feed(bench, [record(2, 0, 0.3, frame=7), record(3, 0, 0.4, frame=8)], after_s=0.4)
        bench.work()
        assert bench.flags("crowded") == set()
        tick(bench, 1.5)
        bench.work()
        assert bench.flags("crowded") == {"r0", "r1", "r2"}


def stream(rows: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    records = []
    for n in range(rows):
        ts = n * 0.2 + rng.uniform(-1.5, 1.5) - (8.0 if rng.random() < 0.03 else 0.0)
        label = int(rng.random() < 0.25)
        records.append(record(n, label, ts, f"e{rng.randrange(3)}", frame=n // 3))
    return records


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_cuts_and_restarts_change_no_flag_member_or_weak_label_and_a_replay_finds_the_same(
    tmp_path: Path,
) -> None:
    records = stream(100, seed=3)
    times = [0.02 * (n + 1) for n in range(len(records))]
    seen = []
    for case, every in enumerate((1, 13, 40)):
        checks = write_project(tmp_path / str(case), checks=CHECKS)
        with workbench(checks) as bench:
            begin = bench.now_us
            for n, item in enumerate(records):
                # One journal for all cases: what differs is when the worker looks and where it restarts.
                bench.now_us = begin + int(times[n] * 1e6)
                feed(bench, [item], after_s=0.0)
                if n % every == every - 1:
                    bench.work()
                    if case:
                        bench.restart()
            tick(bench, 40.0)
            bench.work()
            seen.append(everything(bench))
            again = replayed(bench, tmp_path / str(case) / "checks.py")
            assert set(again.flags["id"]) == {row[0] for row in seen[-1][0] if row[2] != "test_nudge"}
            assert {row[:2] for row in again.members.rows()} == {row[:2] for row in seen[-1][1]}
            assert set(again.weak_labels["id"]) == {row[0] for row in seen[-1][2]}
            assert again.records == len(records)
            assert not again.failures
    assert seen[0][1:] == seen[1][1:] == seen[2][1:]
    plain = [[row for row in case[0] if row[2] != "test_nudge"] for case in seen]
    assert plain[0] == plain[1] == plain[2]
    assert len(plain[0]) > 30
    assert seen[0][2]


def test_a_replay_compares_another_revision_and_writes_it_back(tmp_path: Path) -> None:
    config = write_project(tmp_path, checks=CHECKS)
    with workbench(config) as bench:
        feed(bench, stream(60, seed=5))
        tick(bench, 60.0)
        bench.work()
        other = tmp_path / "other.py"
        other.write_text(CHECKS.replace("< 0.55", "< 0.95"), encoding="utf-8")
        found = replayed(bench, other)
        revision = next(j.revision for j in load_assertions(other) if j.name == "unsure")
        assert len(found.fired()["unsure"]) == 60
        old = replaying.stored_revisions(bench.engine, "toy")["unsure"][-1]
        assert old != revision
        which = replaying.Stretch(0, 10**9)
        before = replaying.stored_flags(bench.engine, "toy", "unsure", old, which)
        assert {record for record, _ in before} == bench.flags("unsure")
        new = replaying.write_back(bench.engine, "toy", load_assertions(other), found)
        assert new == 60  # of the others the revision is the same, so nothing comes twice
        assert replaying.write_back(bench.engine, "toy", load_assertions(other), found) == 0
        assert len(replaying.stored_flags(bench.engine, "toy", "unsure", revision, which)) == 60


def test_the_command_compares_with_stored_flags_and_with_another_file(tmp_path: Path) -> None:
    config = write_project(tmp_path, checks=CHECKS)
    with workbench(config) as bench:
        feed(bench, stream(40, seed=2))
        tick(bench, 60.0)
        bench.work()
    (tmp_path / "draft.py").write_text(CHECKS.replace("< 0.55", "< 0.95"), encoding="utf-8")
    common = ["--config", str(config), "--json", "--check"]
    same = CliRunner().invoke(app, ["replay", "toy", *common])
    assert same.exit_code == 0, same.output
    told = json.loads(same.stdout)
    assert told["records"] == 40
    assert all(row["before"] == row["after"] == row["same"] for row in told["assertions"])
    other = ["--assertions", str(tmp_path / "draft.py"), "--only", "unsure"]
    draft = CliRunner().invoke(app, ["replay", *other, *common])
    assert draft.exit_code == 1
    (row,) = json.loads(draft.stdout)["assertions"]
    assert (row["after"], row["only_before"]) == (40, 0)
    both = CliRunner().invoke(app, ["replay", *other, "--against", str(tmp_path / "checks.py"), *common])
    assert json.loads(both.stdout)["assertions"][0]["only_after"] == row["only_after"]
    again = CliRunner().invoke(app, ["replay", "--ask-again", *common])
    assert again.exit_code == 0, again.output
    wrong = CliRunner().invoke(app, ["replay", "--only", "nobody", *common])
    assert wrong.exit_code == 2
    assert "there are unsure" in wrong.output.replace("\n", " ")


def test_an_assertion_that_raises_in_a_replay_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    config = write_project(tmp_path, checks=CHECKS)
    with workbench(config) as bench:
        feed(bench, stream(20, seed=1))
        bench.work()
        other = tmp_path / "other.py"
        other.write_text(CHECKS.replace('batch.column("outputs.score") < 0.55', "1 / 0"), encoding="utf-8")
        found = replayed(bench, other)
        assert "ZeroDivisionError" in found.failures["unsure"]
        assert found.failed_units == {"unsure": 1}


def test_states_of_windows_and_slots_that_are_gone_do_not_pile_up(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS)) as bench:
        feed(bench, stream(10, seed=1))
        bench.work()
        kept = bench.rows("SELECT slot, window FROM window_checkpoint ORDER BY window")
        assert len(kept) == 2
        for slot, window in (("champion", "edited away"), ("9", "of a challenger")):
            bench.execute(
                "INSERT INTO window_checkpoint VALUES ('toy', :slot, :window, 1, x'00')",
                slot=slot,
                window=window,
            )
        bench.restart()
        feed(bench, stream(3, seed=2))
        bench.work()
        assert bench.rows("SELECT slot, window FROM window_checkpoint ORDER BY window") == kept


def test_a_replay_without_data_says_so_at_once(tmp_path: Path) -> None:
    config = write_project(tmp_path, checks=CHECKS)
    nothing = CliRunner().invoke(app, ["replay", "--config", str(config)])
    assert isinstance(nothing.exception, ConfigError)
    assert "outrider serve" in str(nothing.exception)
