"""The expirer over a real journal and a real worker: what stays, what goes, what readers say then."""

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from outrider.assertions import load_assertions
from outrider.dataops.datasets.collect import collect
from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.state.pauses import pause
from outrider.monitor.intake import expiry
from outrider.monitor.intake.expiry import Expirer
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.worker.replay import count_expired, replay, stored_flags, stored_revisions, stretch
from tests.asgi import get
from tests.end_to_end.service import CONFIG, write_project
from tests.monitor.services import every_app

from .workbench import START_US, Workbench, workbench

DAY_US = 86_400_000_000
LATER = START_US + 8 * DAY_US
STORAGE = "\n[storage]\nkeep_around_rows = 1\n"


def block(name: str, rows: int = 20) -> list[dict[str, Any]]:
    """One record of twenty is flagged by ``too_high``: the last; ``unsure`` flags row 10 or so."""
    return [{"id": f"{name}{n}", "inputs": {"x": n / rows}, "attrs": {"device": "a"}} for n in range(rows)]


def quiet(name: str, rows: int = 20) -> list[dict[str, Any]]:
    """Nothing of it is flagged."""
    return [
        {"id": f"{name}{n}", "inputs": {"x": 0.1}, "outputs": {"label": 0, "score": 0.9}} for n in range(rows)
    ]


def expirer(bench: Workbench) -> tuple[Expirer, CollectorRegistry]:
    registry = CollectorRegistry()
    metrics = Metrics(registry, models=("toy",))
    reader = SqliteJournal(bench.settings.journal_path, read_only=True)
    return Expirer(bench.settings, bench.engine, bench.journal, reader, metrics=metrics), registry


def expire(bench: Workbench, now_us: int = LATER) -> float:
    """Expire all that is due; how many records were counted."""
    own, registry = expirer(bench)
    while own.step(now_us):
        pass
    own._reader.close()
    return registry.get_sample_value("outrider_payloads_expired_total", {"model": "toy"}) or 0.0


def bench_of(folder: Path, storage: str = STORAGE) -> Any:
    return workbench(write_project(folder, config=CONFIG.replace("live=0.5", "") + storage))


def kinds(bench: Workbench) -> list[tuple[int, str, int]]:
    return [(one.seq, one.kind, one.rows) for one in bench.journal.read(0, model="toy", limit=100)]


def checkpointed(bench: Workbench) -> None:
    """As after ten quiet seconds: windows are saved where the cursor stands."""
    bench.execute("UPDATE window_checkpoint SET seq = (SELECT max(seq) FROM cursor)")


def test_old_payloads_go_and_flagged_ones_stay_with_their_neighbours(tmp_path: Path) -> None:
    with bench_of(tmp_path) as bench:
        bench.feed(quiet("a"))
        bench.feed(block("b"))
        bench.label({"b0": 0})
        bench.feed(quiet("c"))
        bench.feed(quiet("d"))
        bench.work()
        checkpointed(bench)
        before = {row[0] for row in bench.rows("SELECT record_id FROM flag")}
        counts = bench.rows("SELECT * FROM counter ORDER BY 1, 2, 3")
        profiles = bench.rows("SELECT count(*) FROM profile")
        assert expire(bench, START_US + DAY_US) == 0  # nothing is old yet
        gone = expire(bench)
        flagged = sorted(int(record[1:]) for record in before)
        wanted = {n for row in flagged for n in (row - 1, row, row + 1) if 0 <= n < 20}
        # `a` and the labels are deleted, `b` is packed, the first of `c` follows the last of `b`, which is
        # flagged, and behind `d` nothing was judged yet.
        assert kinds(bench) == [(2, "kept", len(wanted)), (4, "kept", 1), (5, "records", 20)]
        assert gone == 20 + (20 - len(wanted)) + 19
        assert bench.rows("SELECT seq FROM answer WHERE version = '1' ORDER BY seq") == [(2,), (4,), (5,)]
        assert bench.rows("SELECT * FROM counter ORDER BY 1, 2, 3") == counts
        assert bench.rows("SELECT count(*) FROM profile") == profiles
        assert {row[0] for row in bench.rows("SELECT record_id FROM flag")} == before
        assert bench.rows("SELECT count(*) FROM record") == [(80,)]
        assert expire(bench) == 0  # and it is done once


def test_after_expiry_the_worker_starts_again_judges_on_and_knows_repeats(tmp_path: Path) -> None:
    with bench_of(tmp_path) as bench:
        for name in ("a", "b", "c"):
            bench.feed(block(name))
        bench.work()
        checkpointed(bench)
        flags = bench.rows("SELECT count(*) FROM flag")
        assert expire(bench) > 0
        bench.restart()
        bench.work()
        assert bench.rows("SELECT count(*) FROM flag") == flags
        bench.feed(block("a"))  # the same once more: nothing is judged twice
        bench.feed(block("e"))
        bench.work()
        assert (bench.count("records"), bench.count("duplicates")) == (80, 20)


@pytest.mark.parametrize("holder", ["pause", "cursor", "checkpoint", "gap"])
def test_nothing_overtakes_who_is_behind(tmp_path: Path, holder: str) -> None:
    with bench_of(tmp_path) as bench:
        bench.feed(quiet("a"))
        bench.feed(quiet("b"))
        bench.work()
        checkpointed(bench)
        if holder == "pause":
            with write(bench.engine) as connection:
                pause(connection, "shadow", model="toy", who="", now_us=1)
            bench.worker._refresh(force=True)
        for name in ("c", "d", "e"):
            bench.feed(quiet(name))
        bench.work()
        checkpointed(bench)
        if holder == "cursor":
            bench.execute(
                "INSERT INTO model_version (model, version, status, digest, created_us, changed_us, note,"
                " source) SELECT model, '2', 'challenger', '', 0, 0, '', source FROM model_version"
            )
            bench.execute("INSERT INTO cursor VALUES ('toy', '2', 2)")
        if holder == "checkpoint":
            bench.execute("INSERT INTO window_checkpoint VALUES ('toy', 'champion', 'w', 2, x'00')")
        if holder == "gap":
            bench.execute(
                "INSERT INTO backfill (model, slot, reason, after_seq, until_seq, records, at_seq, passed,"
                " created_us) VALUES ('toy', 'champion', 'slo', 2, 4, 40, 2, 0, 0)"
            )
        expire(bench)
        assert [seq for seq, _, _ in kinds(bench)] == [2, 3, 4, 5]


def test_a_full_journal_lets_the_oldest_go_before_their_time(tmp_path: Path) -> None:
    with bench_of(tmp_path, "\n[storage]\njournal_max_bytes = 700000\n") as bench:
        text = "x" * 300
        for number in range(60):
            rows = [{"id": f"{number}-{n}", "inputs": {"x": 0.1, "text": text}} for n in range(30)]
            bench.feed([row | {"outputs": {"label": 0, "score": 0.9}} for row in rows])
        bench.work()
        checkpointed(bench)
        assert bench.journal.used_bytes() > 560_000
        expire(bench, bench.now_us)
        assert bench.journal.used_bytes() <= 560_000
        left = [seq for seq, _, _ in kinds(bench)]
        assert left == list(range(left[0], 61))  # the newest stay, and no more went than had to
        assert bench.journal.used_bytes() > 450_000


def test_readers_say_that_a_payload_has_expired(tmp_path: Path) -> None:
    with bench_of(tmp_path) as bench:
        for name in ("a", "b", "c"):
            bench.feed(block(name))
        bench.label({"a0": 0, "a1": 0, "a19": 1})
        bench.work()
        checkpointed(bench)
        expire(bench)
        app = every_app(bench.engine, bench.journal, models=("toy",))
        flagged, gone = get(app, "/v1/records/toy/a19").json(), get(app, "/v1/records/toy/a0").json()
        assert "0.95" in json.dumps(flagged)
        assert flagged["payload_expired"] is False
        assert gone["payload_expired"] is True
        assert "0.95" in get(app, "/m/toy/records/a19").text
        assert "The payload of this record has expired" in get(app, "/m/toy/records/a0").text
        assert get(app, "/m/toy/flags").status_code == 200
        with bench.engine.connect() as connection:
            found = collect(
                connection,
                bench.journal,
                LocalObjects(tmp_path / "objects"),
                LabelScope("toy", "d", "labelled"),
                target="label",
            )
        assert found.batch is not None
        assert [one.record_id for one in found.provenance] == ["a19"]
        assert found.rejected == {f"a{n}": "its payload (block 1) has expired" for n in (0, 1)}


def test_a_replay_compares_what_is_whole_and_says_what_has_expired(tmp_path: Path) -> None:
    with bench_of(tmp_path) as bench:
        for name in ("a", "b", "c"):
            bench.feed(block(name))
        bench.now_us += DAY_US  # the windows of the next records begin anew
        for name in ("d", "e"):
            bench.feed(block(name))
        bench.work()
        checkpointed(bench)
        expire(bench, bench.now_us + int(6.5 * DAY_US))
        assert [kind for _, kind, _ in kinds(bench)] == ["kept", "kept", "kept", "records", "records"]
        through = bench.journal.expired_through()["toy"]
        judges = load_assertions(tmp_path / "checks.py")
        until = bench.journal.last_seq()
        which = stretch(bench.journal, judges, since_us=0, until=until, expired=through)
        found = replay(bench.engine, bench.journal, "toy", bench.settings.models["toy"], judges, which)
        assert found.records == 40
        fired = found.fired()
        revisions = stored_revisions(bench.engine, "toy")
        plain = [judge for judge in judges if judge.window is None]
        begin = stretch(bench.journal, plain, since_us=0, until=until, expired=through)
        for judge in plain:
            old = stored_flags(bench.engine, "toy", judge.name, revisions[judge.name][-1], begin)
            again = replay(bench.engine, bench.journal, "toy", bench.settings.models["toy"], plain, begin)
            assert again.fired()[judge.name] == old
            assert len(old) == 2
        assert fired.keys() <= {judge.name for judge in judges}
        assert count_expired(bench.engine, "toy", through, since_us=0) == 60


def test_slices_of_several_models_go_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "SLICE_BLOCKS", 2)
    with bench_of(tmp_path) as bench:
        for number in range(7):
            bench.feed(quiet(f"n{number}-"))
        bench.work()
        checkpointed(bench)
        own, _ = expirer(bench)
        steps = 0
        while own.step(LATER):
            steps += 1
        own._reader.close()
        assert [seq for seq, _, _ in kinds(bench)] == [7]
        assert steps == 3
