"""Rows of old records go from ``state.db``: what stays, what is still known of them, what readers say."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from outrider.dataops.journal import row_expiry
from outrider.dataops.journal.row_expiry import DAY_US, START, expire_rows, expired_ids, id_hash
from outrider.dataops.state.database import write
from outrider.monitor.intake import expiry as walking
from tests.asgi import get
from tests.monitor.services import every_app

from .test_expiry import bench_of, block, checkpointed, expire, kinds, quiet
from .workbench import START_US, Workbench

STORAGE = "\n[storage]\nkeep_around_rows = 1\nkeep_rows_days = 30\nkeep_ids_days = 60\n"
OLD = START_US + 31 * DAY_US
TABLES = ("record", "flag", "flag_record", "weak_label", "label", "live_answer")


def rows(bench: Workbench) -> dict[str, int]:
    """Rows of each table that tells of records."""
    return {table: bench.rows(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def ids(bench: Workbench, table: str = "record", column: str = "id") -> set[str]:
    return {row[0] for row in bench.rows(f"SELECT {column} FROM {table}")}


def fed(bench: Workbench) -> None:
    """Three blocks with flags, and two younger ones behind which all of them are passed."""
    for name in ("a", "b", "c"):
        bench.feed(block(name))
    bench.now_us += 10 * DAY_US
    for name in ("d", "e"):
        bench.feed(block(name))
    bench.work()
    checkpointed(bench)
    bench.execute("DELETE FROM incident")


def test_old_rows_go_behind_their_payloads_and_young_ones_stay(tmp_path: Path) -> None:
    with bench_of(tmp_path, STORAGE) as bench:
        fed(bench)
        counts = bench.rows("SELECT * FROM counter ORDER BY 1, 2, 3")
        before = rows(bench)
        expire(bench, START_US + 8 * DAY_US)
        assert rows(bench) == before
        expire(bench, OLD)
        assert {id_[0] for id_ in ids(bench)} == {"d", "e"}
        assert {id_[0] for id_ in ids(bench, "flag", "record_id")} == {"d", "e"}
        assert bench.rows("SELECT * FROM counter ORDER BY 1, 2, 3") == counts
        assert {seq for seq, _, _ in kinds(bench)} == {4, 5}  # payloads that flags had kept are gone too
        assert bench.rows("SELECT count(*) FROM expired_record") == [(60,)]
        with bench.engine.connect() as connection:
            assert expired_ids(connection, "toy", ["a0", "b19", "d0", "nobody"]) == {"a0", "b19"}
            assert expired_ids(connection, "other", ["a0"]) == set()


@pytest.mark.parametrize(
    "need", ["request", "dataset", "quarantine", "label", "review", "incident", "member"]
)
def test_what_is_needed_stays_with_all_of_its_rows(tmp_path: Path, need: str) -> None:
    with bench_of(tmp_path, STORAGE) as bench:
        fed(bench)
        flag = "(SELECT id FROM flag WHERE record_id = 'a19' LIMIT 1)"
        later = "(SELECT id FROM flag WHERE record_id = 'd19' LIMIT 1)"
        statement = {
            "request": "INSERT INTO label_request (model, record_id, policy, reason, probability, round,"
            " created_us, position, population, is_audit, floor)"
            " VALUES ('toy', 'a19', 'u', 'u', 1, 1, 0, 0, 1, 0, 1)",
            "dataset": "INSERT INTO dataset_row (dataset, file, position, number, record_id, part, digest)"
            " VALUES ('d', 1, 0, 1, 'a19', 'train', x'00')",
            "quarantine": "INSERT INTO quarantine (dataset, record_id, reasons, at_us, state, rules)"
            " VALUES ('d', 'a19', '', 0, 'held', 'r')",
            "label": "INSERT INTO label (seq, row, model, record_id, source, value, label, ts_us,"
            " received_us) VALUES (1, 0, 'toy', 'a19', 'human', '1', '{}', 0, 0)",
            "review": "INSERT INTO review (flag_id, model, assertion, is_error, source, note, at_us)"
            f" SELECT id, model, assertion, 1, 'h', '', 0 FROM flag WHERE id = {flag}",
            "incident": "INSERT INTO incident (id, model, assertion, slice, kind, status, opened_us,"
            " last_flag_us, muted_until_us, flags, level, first_record, note, details) SELECT 'i', model,"
            " assertion, '', 'flags', 'open', 0, 0, 0, 1, level, 'a19', '', '{}' FROM flag"
            f" WHERE id = {flag}",
            "member": "INSERT INTO flag_record (flag_id, record_id, model, seq, row)"
            f" VALUES ({later}, 'a19', 'toy', 1, 19)",
        }[need]
        bench.execute(statement)
        flags = bench.rows("SELECT id FROM flag WHERE record_id = 'a19' ORDER BY 1")
        expire(bench, OLD)
        assert "a19" in ids(bench)
        assert "a0" not in ids(bench)
        assert bench.rows("SELECT id FROM flag WHERE record_id = 'a19' ORDER BY 1") == flags
        assert 1 in {seq for seq, _, _ in kinds(bench)}  # its payload, too
        orphans = "SELECT count(*) FROM flag_record WHERE flag_id NOT IN (SELECT id FROM flag)"
        assert bench.rows(orphans) == [(0,)]


def test_members_of_a_kept_flag_stay_with_it(tmp_path: Path) -> None:
    """Of one slice: `a19` is reviewed, `a3` a member of its flag, `a4` of a flag of `a3`."""
    with bench_of(tmp_path, STORAGE) as bench:
        fed(bench)
        own = "SELECT id FROM flag WHERE record_id = 'a19' LIMIT 1"
        add = "INSERT INTO flag_record (flag_id, record_id, model, seq, row)"
        bench.execute(f"{add} VALUES (({own}), 'a3', 'toy', 1, 3)")
        bench.execute(f"{add} VALUES ('f', 'a4', 'toy', 1, 4)")
        bench.execute(
            "INSERT INTO flag (id, model, record_id, assertion, revision, slot, severity, level, seq, row,"
            " ts_us) VALUES ('f', 'toy', 'a3', 'x', 'r', 'champion', 1, 'warning', 1, 3, 0)"
        )
        bench.execute(
            "INSERT INTO review (flag_id, model, assertion, is_error, source, note, at_us)"
            f" SELECT id, model, assertion, 1, 'h', '', 0 FROM flag WHERE id = ({own})"
        )
        expire(bench, OLD)
        assert {id_ for id_ in ids(bench) if id_[0] == "a"} == {"a3", "a4", "a19"}
        assert bench.rows("SELECT count(*) FROM flag_record") == [(2,)]


@pytest.mark.parametrize("holder", ["job", "shadow test"])
def test_nothing_goes_while_a_job_or_a_test_looks_at_it(tmp_path: Path, holder: str) -> None:
    with bench_of(tmp_path, STORAGE) as bench:
        fed(bench)
        if holder == "job":
            bench.execute(
                "INSERT INTO job (id, model, kind, status, stage, params, result, attempts, created_us)"
                " VALUES ('j', 'toy', 'retrain', 'running', '', '{}', '{}', 1, 0)"
            )
        else:
            bench.execute(
                "INSERT INTO shadow_test (model, version, began_us, champion, after_seq, recommendation,"
                " findings) VALUES ('toy', '2', 0, '1', 1, '', '{}')"
            )
        expire(bench, OLD)
        left = {id_[0] for id_ in ids(bench)}
        assert left == ({"a", "b", "c", "d", "e"} if holder == "job" else {"b", "c", "d", "e"})


def test_repeats_and_late_labels_of_expired_records_are_known(tmp_path: Path) -> None:
    with bench_of(tmp_path, STORAGE) as bench:
        fed(bench)
        expire(bench, OLD)
        before = bench.count("records"), rows(bench)["flag"]
        bench.restart()
        bench.feed(block("a"))
        bench.label({"a3": 1, "d3": 1})
        bench.work()
        assert (bench.count("records"), rows(bench)["flag"]) == before
        assert bench.count("duplicates") == 20
        assert bench.rows("SELECT record_id FROM label") == [("d3",)]
        letters = bench.rows("SELECT record_id, reason, detail FROM dead_letter")
        assert letters == [("a3", "expired", "a label whose record has expired (storage.keep_rows_days)")]
        expire(bench, START_US + 200 * DAY_US)  # the hashes have gone, the journal goes on
        with bench.engine.connect() as connection:
            assert expired_ids(connection, "toy", ["a0"]) == set()


def test_readers_say_expired(tmp_path: Path) -> None:
    with bench_of(tmp_path, STORAGE) as bench:
        fed(bench)
        expire(bench, OLD)
        app = every_app(bench.engine, bench.journal, models=("toy",))
        for path, word in (("/v1/records/toy/a0", "has expired"), ("/m/toy/records/a0", "has expired")):
            answer = get(app, path)
            assert answer.status_code == 410
            assert word in answer.text
        assert get(app, "/v1/records/toy/nobody").status_code == 404
        assert get(app, "/v1/records/toy/d0").status_code == 200
        for page in ("", "/flags", "/incidents", "/assertions", "/labels", "/datasets"):
            assert get(app, f"/m/toy{page}").status_code < 500, page


class KilledError(Exception):
    """As a process that dies."""


@pytest.mark.parametrize("at", range(10))
def test_a_slice_is_whole_or_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Killed at any statement, the next run comes to the same end."""
    monkeypatch.setattr(walking, "PASS_ROWS", 7)
    with bench_of(tmp_path, STORAGE) as bench:
        fed(bench)
        expire(bench, START_US + 8 * DAY_US)
        told = rows(bench)
        count = -1

        def counted(connection: Any, *_: Any) -> None:
            nonlocal count
            count += 1
            if count == at:
                raise KilledError

        def run() -> None:
            with write(bench.engine) as connection:
                event.listen(connection, "before_cursor_execute", counted)
                expire_rows(connection, "toy", after=START, until=3, limit=7, now_us=OLD)

        with pytest.raises(KilledError):
            run()
        assert rows(bench) == told
        assert bench.rows("SELECT count(*) FROM expired_record") == [(0,)]
        expire(bench, OLD)
        assert {id_[0] for id_ in ids(bench)} == {"d", "e"}
        assert bench.rows("SELECT count(*) FROM expired_record") == [(60,)]


def test_a_slice_is_bounded_and_pages_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "PASS_ROWS", 50)
    with bench_of(tmp_path, STORAGE) as bench:
        sizes, most = [], []
        real = row_expiry.expire_rows

        def seen(*arguments: Any, **named: Any) -> Any:
            found = real(*arguments, **named)
            most.append(0 if found is None else found.gone)
            return found

        monkeypatch.setattr(row_expiry, "expire_rows", seen)
        for round_ in range(6):
            for part in range(10):
                bench.feed(quiet(f"{round_}-{part}-", 100))
            bench.work()
            checkpointed(bench)
            bench.now_us += 31 * DAY_US
            bench.feed(quiet(f"{round_}-end", 5))
            bench.work()
            checkpointed(bench)
            expire(bench, bench.now_us)
            with sqlite3.connect(bench.settings.data_folder / "state.db") as database:
                pages, free = (
                    database.execute(f"PRAGMA {p}").fetchone()[0] for p in ("page_count", "freelist_count")
                )
            sizes.append(pages)
            assert free > 0
        assert max(most) <= 50
        assert rows(bench)["record"] < 1500
        assert sizes[-1] <= sizes[1] * 1.1 + 40  # hashes alone grow


def test_a_hash_is_of_model_and_id_and_of_the_secret_of_the_folder() -> None:
    own, other = b"s" * 32, b"t" * 32
    assert len(id_hash(own, "m", "a")) == 16
    named = [("m", "a"), ("m", "b"), ("ma", ""), ("n", "a")]
    assert len({*(id_hash(own, *one) for one in named), id_hash(other, "m", "a")}) == 5
    assert json.dumps(id_hash(own, "m", "\ud800").hex())


def test_counts_and_profiles_of_a_removed_model_age_and_go(tmp_path: Path) -> None:
    tables = {"record_count": "records", "flag_count": "flags", "measure_count": "records", "profile": "rows"}
    with bench_of(tmp_path, STORAGE) as bench:
        for hour in range(4):
            for at in range(3):
                bench.feed(block(f"{hour}-{at}"), after_s=1200)
        bench.work()
        for table in (*tables, "profile_layout", "version_count", "minute_block"):
            bench.execute(f"UPDATE {table} SET model = 'gone' WHERE model = 'toy'")

        def seen() -> dict[str, tuple[int, ...]]:
            query = "SELECT count(*), sum({}) FROM {} WHERE model = 'gone'"
            return {name: bench.rows(query.format(number, name))[0] for name, number in tables.items()}

        before = seen()
        expire(bench, START_US + 100 * DAY_US)
        after = seen()
        assert {name: total for name, (_, total) in after.items()} == {
            name: total for name, (_, total) in before.items()
        }
        assert all(after[name][0] < before[name][0] for name in ("record_count", "profile"))
        assert bench.rows("SELECT count(*) FROM version_count") == [(0,)]
        expire(bench, START_US + 800 * DAY_US)
        assert {name: rows for name, (rows, _) in seen().items()} == dict.fromkeys(tables, 0)
        assert bench.rows("SELECT count(*) FROM minute_block") == [(0,)]
