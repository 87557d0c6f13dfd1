"""Erasure: nothing that was recorded of a person is found again, and the rest is judged as before."""

import json
import os
import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.assertions import Batch, Window
from outrider.assertions.windows.state import WindowState
from outrider.dataops.datasets import changes, versions
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.erasure import pending
from outrider.dataops.erasure.erasing import STEPS, Place, complete, preview
from outrider.dataops.erasure.target import ErasureTarget, UnknownSubject
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.journal.row_expiry import id_hash
from outrider.dataops.journal.stored_rows import has_row, read_rows
from outrider.dataops.judges import Reply, store_replies, version_of
from outrider.dataops.state.database import write
from outrider.dataops.state.folder_secret import secret_of
from outrider.dataops.triggers.decision import Evaluation
from outrider.dataops.triggers.evaluation_log import TriggerMemory, remember
from outrider.monitor.intake.erased import ErasedNames
from outrider.monitor.intake.request_parts import RequestPart
from outrider.monitor.process.folder_lock import take_folder
from outrider.monitor.settings.erasure_place import place_of
from tests.asgi import get
from tests.end_to_end.service import outrider, write_project
from tests.monitor.services import every_app
from tests.scan import needles, places

from . import payload_project
from .workbench import Workbench

ENTITY, TEXT, NUMBER, DEVICE = "person-zq7f31", "secret zq7f32", 0.99731625, "device-zq7f33"
MARKERS = needles(ENTITY, TEXT, DEVICE, "zq7f", NUMBER)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Workbench]:
    bench = Workbench(write_project(tmp_path))
    yield bench
    bench.close()


def traffic(bench: Workbench, *, blocks: int = 6) -> list[str]:
    """Records of several people, in blocks that they share; ids of the one who goes."""
    own = []
    for block in range(blocks):
        records: list[dict[str, Any]] = []
        for person in range(5):
            x = ((block * 5 + person) % 20) / 20 + 0.02
            records.append(
                {
                    "id": f"{block}-{person}",
                    "entity": f"p{person}",
                    "inputs": {"x": x, "note": f"note {person}"},
                    "outputs": {"label": int(x > 0.5)},
                    "attrs": {"device": "web"},
                }
            )
        own.append(f"zq7f-{block}")
        records[block % 5] |= {
            "id": own[-1],
            "entity": ENTITY,
            "inputs": {"x": NUMBER, "note": TEXT},
            "outputs": {"label": block % 2},
            "attrs": {"device": DEVICE},
        }
        bench.feed(records)
    return own


def erase(bench: Workbench, wanted: ErasureTarget) -> None:
    """Erase with all processes stopped."""
    bench.close()
    pending.ask(bench.settings.data_folder, wanted, who="command", now_us=bench.now_us)
    complete(place_of(bench.settings))


def test_nothing_of_a_person_is_left_in_journal_and_database(bench: Workbench) -> None:
    own = traffic(bench)
    bench.work()
    bench.label({own[0]: 1, "0-1": 0})
    bench.work()
    folder = bench.settings.data_folder
    named = Evaluation("alerts", "quiet", "not_listed", f"triggers.alerts does not list '{ENTITY}'")
    with write(bench.engine) as connection:  # a rule of Prometheus may be called as anything
        remember(connection, "toy", named, TriggerMemory({}, 1, named.why), now_us=1)
    assert {"state.db trigger_evaluation", "state.db trigger_state"} <= set(places(folder, MARKERS))
    assert {"journal.db block > arrow stream", "state.db record", "state.db flag"} <= set(
        places(folder, MARKERS)
    )
    opened = folder / "arrow" / "version.arrow"
    opened.parent.mkdir()
    opened.write_text(TEXT)
    counts = preview(place_of(bench.settings), ErasureTarget((ENTITY,)))
    assert opened.exists()
    assert counts["opened_versions"] == 1
    assert counts["journal_records"] == counts["records"] == 6
    assert counts["labels"] == counts["journal_labels"] == 1
    erase(bench, ErasureTarget((ENTITY,)))
    assert places(folder, MARKERS) == []


def commit(bench: Workbench, dataset: str, model: str) -> None:
    """Dataset with a row of the person and one of somebody else."""
    columns = {"id": ["same", "other"], "entity": [ENTITY, "p1"], "inputs.x": [NUMBER, 0.5]}
    batch = Batch.from_columns(columns | {"label.label": [0, 1]}, model=model)
    origins = [Provenance(str(key)) for key in batch.keys]
    with write(bench.engine) as connection:
        draft = changes.prepare(
            connection,
            place_of(bench.settings).objects,
            dataset=dataset,
            batch=batch,
            provenance=origins,
            append=False,
        )
        changes.commit(connection, draft, validation={}, now_us=bench.now_us)


@pytest.mark.parametrize("wanted", [ErasureTarget((ENTITY,), model="a"), ErasureTarget((), ("same",), "a")])
def test_imported_rows_go_and_the_same_id_of_another_model_stays(
    bench: Workbench, wanted: ErasureTarget
) -> None:
    for model in ("a", "b"):
        commit(bench, f"of-{model}", model)
    assert preview(place_of(bench.settings), wanted)["dataset_rows"] == 1
    erase(bench, wanted)
    engine = place_of(bench.settings).open()
    with engine.connect() as connection:
        ids = {
            version.dataset: [life.origin.record_id for life in versions.lives(connection, version)]
            for version in versions.all_versions(connection)
        }
    engine.dispose()
    assert ids == {"of-a": ["other"], "of-b": ["other", "same"]}


def test_hashes_of_expired_ids_go_with_their_record(bench: Workbench) -> None:
    """Who has the folder has the key too, and could find a guessed id among them."""
    traffic(bench, blocks=1)
    bench.work()
    secret = secret_of(bench.settings.data_folder)
    hashes = [id_hash(secret, "toy", key) for key in ("zq7f-0", "0-1")]
    for one in hashes:
        bench.execute("INSERT INTO expired_record VALUES (:hash, 1)", hash=one)
    erase(bench, ErasureTarget((ENTITY,)))
    with sqlite3.connect(bench.settings.data_folder / "state.db") as state:
        assert state.execute("SELECT hash FROM expired_record").fetchall() == [(hashes[1],)]


def test_windows_and_judges_that_held_nothing_of_it_go_on_as_they_were(bench: Workbench) -> None:
    """The windows of one slot have passed on, those of another hold it; one judge is of another model."""
    for at in range(3):
        bench.feed(
            [{"id": f"zq7f-{at}" if at else "a", "entity": ENTITY if at else "p", "inputs": {"x": 0.3}}]
        )
    bench.work()
    for slot, key in (("held", "zq7f-1"), ("passed on", "b")):
        windows = WindowState(Window(rows=3))
        windows.update(Batch.from_records([{"id": key, "entity": "p", "inputs": {"x": 0.3}}], model="toy"))
        bench.execute(
            "INSERT INTO window_checkpoint VALUES ('toy', :slot, 'w', 3, :payload)",
            slot=slot,
            payload=windows.checkpoint(),
        )
    with write(bench.engine) as connection:
        for model in ("toy", "other"):
            replies = {f"question of {model}": Reply("answered", {"verdict": "good"})}
            named = {"model": model, "judge": "strict", "digest": f"judge of {model}"}
            store_replies(connection, replies=replies, at_us=1, **named)
            version = version_of("strict", f"judge of {model}")
            connection.exec_driver_sql("INSERT INTO answer VALUES (?, ?, 99, x'')", (model, version))
    erase(bench, ErasureTarget(records=("zq7f-1",), model="toy"))
    with sqlite3.connect(bench.settings.data_folder / "state.db") as state:
        slots = [row[0] for row in state.execute("SELECT slot FROM window_checkpoint WHERE window = 'w'")]
        judges = [row[0] for row in state.execute("SELECT judge FROM judge_answer")]
    assert slots == ["passed on"]
    assert judges == ["judge of other"]


@pytest.mark.parametrize("name", ["", "\ud800", "a\udcff", 5, None, b"a"])
def test_what_is_no_name_is_refused_before_anything_is_read(name: Any) -> None:
    for fields in ({"subjects": (name,)}, {"records": ("a", name)}):
        with pytest.raises(ValueError, match="are texts of at least one letter, got "):
            ErasureTarget(**fields)


def test_a_name_that_is_an_id_of_another_model_erases_nothing_of_that(bench: Workbench) -> None:
    """The entity `twin-of-somebody` of one model, a record `twin-of-somebody` of somebody else of another."""
    twin = "twin-of-somebody"
    for model, id_, entity in (("toy", "a1", twin), ("other", twin, "q"), ("other", "b1", "q")):
        bench.feed([{"id": id_, "entity": entity, "inputs": {"x": 0.3}}], model=model)
    bench.work()
    bench.execute(
        "INSERT INTO record (model, id, seq, row, ts_us, digest, entity, weight)"
        " VALUES ('other', :id, 2, 0, 1, 1, 'q', 1.0)",
        id=twin,
    )
    for model in ("toy", "other"):
        note = f"about {twin}"
        bench.execute(
            "INSERT INTO incident (id, model, assertion, slice, kind, status, opened_us, last_flag_us,"
            " muted_until_us, flags, level, first_record, note, details)"
            " VALUES (:model, :model, 'a', '', 'flags', 'open', 1, 1, 0, 1, 'error', :first, :note, '{}')",
            model=model,
            first=twin,
            note=note,
        )
    erase(bench, ErasureTarget((twin,), model="toy"))
    with sqlite3.connect(bench.settings.data_folder / "state.db") as state:
        assert state.execute("SELECT id FROM record").fetchall() == [(twin,)]
        found = state.execute("SELECT model, first_record, note FROM incident ORDER BY model").fetchall()
    assert found == [("other", twin, f"about {twin}"), ("toy", "[erased]", "about [erased]")]
    with SqliteJournal(bench.settings.data_folder / "journal.db", read_only=True) as journal:
        assert [has_row(read_rows(block.payload), 0) for block in journal.read(0)] == [False, True, True]


def test_a_text_that_came_as_a_payload_is_found_where_it_is_quoted(tmp_path: Path) -> None:
    bench = Workbench(payload_project.write_project(tmp_path / "project"))
    dark = payload_project.inline(payload_project.encoded(0.2))
    texts = {"mine": "zq7f letter of mine", "yours": "a common letter", "ours": "a common letter"}
    payload_project.feeder(bench)(
        *(
            {"id": id_, "inputs": {"image": dark, "note": payload_project.inline(text.encode())}}
            for id_, text in texts.items()
        )
    )
    bench.work()
    bench.execute(
        "INSERT INTO incident (id, model, assertion, slice, kind, status, opened_us, last_flag_us,"
        " muted_until_us, flags, level, first_record, details, note)"
        " VALUES ('i', 'toy', 'a', '', 'flags', 'open', 1, 1, 0, 1, 'error', '', '{}',"
        " 'he wrote: zq7f letter of mine; she: a common letter')"
    )
    erase(bench, ErasureTarget(records=("mine", "yours")))
    folder = bench.settings.data_folder
    assert places(folder, needles("zq7f letter")) == []
    with sqlite3.connect(folder / "state.db") as state:
        (note,) = state.execute("SELECT note FROM incident").fetchone()
    assert note == "he wrote: [erased]; she: a common letter"


def test_two_erasures_that_wait_are_both_carried_out(bench: Workbench) -> None:
    """One of them has nothing left to do once the other is done."""
    traffic(bench)
    bench.work()
    bench.close()
    folder = bench.settings.data_folder
    for wanted in (ErasureTarget((ENTITY,)), ErasureTarget(records=("zq7f-0", "0-1"))):
        pending.ask(folder, wanted, who="command", now_us=1)
    assert len(complete(place_of(bench.settings))) == 2
    assert places(folder, [*MARKERS, b'"0-1"']) == []
    names = ErasedNames.of_folder(folder)
    found = names.faults(RequestPart("toy", [0, 1, 2], {"id": ["zq7f-0", "0-1", "0-2"]}))
    assert found is not None
    assert found.rows.tolist() == [
        0,
        1,
    ]


def test_an_unknown_subject_changes_nothing(bench: Workbench) -> None:
    traffic(bench)
    bench.work()
    with pytest.raises(UnknownSubject, match="nobody: nothing is stored of it"):
        preview(place_of(bench.settings), ErasureTarget(("nobody",)))


def test_places_stay_and_the_others_are_judged_as_before(bench: Workbench) -> None:
    own = traffic(bench)
    bench.work()
    folder = bench.settings.data_folder
    before = replayed(bench)
    assert [one["same"] for one in before["assertions"]] == [one["before"] for one in before["assertions"]]
    stored = dict(bench.rows("SELECT seq, count(*) FROM record GROUP BY seq"))
    erase(bench, ErasureTarget((ENTITY,)))
    with SqliteJournal(folder / "journal.db", read_only=True) as journal:
        assert journal.last_seq() == 6
        for block in journal.read(0):
            assert (block.damage, block.rows) == ("", 5)
            left = read_rows(block.payload)
            gone = [row for row in range(5) if not has_row(left, row)]
            assert (gone, left.rows) == ([(block.seq - 1) % 5], 5)
    after = replayed(bench)
    assert after["records"] == before["records"] - len(own)
    for one in after["assertions"]:
        assert (one["only_before"], one["only_after"]) == (0, 0)
    assert {one["assertion"]: one["same"] > 0 for one in after["assertions"]}["flips"]
    with sqlite3.connect(folder / "state.db") as state:
        assert dict(state.execute("SELECT seq, count(*) FROM record GROUP BY seq")) == {
            seq: count - 1 for seq, count in stored.items()
        }


def test_readers_say_that_a_record_was_erased(bench: Workbench) -> None:
    own = traffic(bench)
    bench.work()
    erase(bench, ErasureTarget((ENTITY,)))
    again = Workbench(bench.config)
    app = every_app(again.engine, again.journal, models=("toy",))
    for path in (f"/v1/records/toy/{own[0]}", f"/m/toy/records/{own[0]}"):
        answer = get(app, path)
        assert (answer.status_code, "was erased; nothing more is stored of it" in answer.text) == (410, True)
    assert get(app, "/v1/records/toy/nobody").status_code == 404
    again.close()


def test_flags_whose_windows_held_an_erased_record_are_told_apart(bench: Workbench) -> None:
    """The label changes at the second and at the third record; the third stays, its base goes."""
    for at, label in enumerate([0, 1, 0, 0, 1]):
        rows = [
            {"id": f"{name}{at}", "entity": name, "inputs": {"x": 0.3}, "outputs": {"label": label}}
            for name in ("held", "other")
        ]
        bench.feed(rows)
    bench.work()
    found = {one["assertion"]: one for one in replayed(bench)["assertions"]}["flips"]
    assert (found["before"], found["same"], found["input_erased"]) == (6, 6, 0)
    erase(bench, ErasureTarget(records=("held1",)))
    found = {one["assertion"]: one for one in replayed(bench)["assertions"]}["flips"]
    assert (found["only_before"], found["only_after"]) == (0, 0)
    assert (found["input_erased"], found["input_erased_examples"]) == (1, ["held2"])
    assert found["same"] == 4


def killed_behind(folder: Path, step: str) -> None:
    """Erase in a process of its own that ends once it has reached a step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            complete(Place(folder, (), lambda reached: os._exit(9) if reached == step else None))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize("step", STEPS)
def test_killed_behind_any_step_it_is_finished_by_the_next_start(bench: Workbench, step: str) -> None:
    traffic(bench, blocks=3)
    bench.work()
    bench.close()
    folder = bench.settings.data_folder
    pending.ask(folder, ErasureTarget((ENTITY,)), who="command", now_us=1)
    place = place_of(bench.settings)
    killed_behind(folder, step)
    assert pending.is_pending(folder)
    assert len(complete(place)) == 1
    assert places(folder, MARKERS) == []
    assert not pending.is_pending(folder)
    engine = place.open()
    with engine.connect() as connection:
        (one,) = pending.done(connection)
    engine.dispose()
    assert one.found["counts"]["journal_records"] == one.found["counts"]["records"] == 3


def test_command_erases_beside_a_stopped_service_and_logs_no_content(bench: Workbench) -> None:
    traffic(bench)
    bench.work()
    bench.close()
    folder = bench.settings.data_folder
    counted = outrider(bench.config.parent, "dataset", "erase", "--subject", ENTITY, "--dry-run", "--json")
    assert json.loads(counted.stdout)["would_go"]["records"] == 6
    unknown = outrider(bench.config.parent, "dataset", "erase", "--record", "nobody", "--yes")
    assert unknown.returncode == 1
    assert "nothing is stored of it" in unknown.stderr
    assert places(folder, MARKERS)
    done = outrider(bench.config.parent, "dataset", "erase", "--subject", ENTITY, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["journal_records"] == 6
    assert places(folder, MARKERS) == []
    with sqlite3.connect(folder / "state.db") as state:
        ((key, action, path),) = state.execute("SELECT key, action, path FROM write_log").fetchall()
    assert (key, action) == ("command", "outrider dataset erase")
    assert path == f"/v1/erasures/{json.loads(done.stdout)['erasure']}"
    again = outrider(bench.config.parent, "dataset", "erase", "--subject", ENTITY, "--yes")
    assert again.returncode == 1


def test_a_command_beside_another_one_says_so(bench: Workbench) -> None:
    traffic(bench, blocks=1)
    bench.close()
    lock = take_folder(bench.settings.data_folder)
    try:
        done = outrider(bench.config.parent, "dataset", "erase", "--subject", ENTITY, "--yes")
    finally:
        os.close(lock)
    assert done.returncode == 4
    assert "run this again once it has ended" in done.stderr
    assert not pending.is_pending(bench.settings.data_folder)


def test_backups_from_before_are_named_and_restored_without_it(bench: Workbench, tmp_path: Path) -> None:
    traffic(bench)
    bench.work()
    bench.close()
    project, folder = bench.config.parent, bench.settings.data_folder
    for name in ("kept", "moved"):
        assert outrider(project, "backup", str(tmp_path / name)).returncode == 0
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    done = outrider(project, "dataset", "erase", "--subject", ENTITY, "--yes", "--json")
    assert [text.partition(" (")[0] for text in json.loads(done.stdout)["backups"]] == [
        str(tmp_path / name) for name in ("kept", "moved")
    ]
    assert "not there" in json.loads(done.stdout)["backups"][1]
    assert places(folder, MARKERS) == []
    assert places(tmp_path / "kept", MARKERS)
    assert all(b"zq7f" not in path.read_bytes() for path in (tmp_path / "kept").glob("*.json"))
    folder.rename(tmp_path / "lost")
    for arguments in (
        [str(tmp_path / "kept")],
        [str(tmp_path / "elsewhere"), "--erasures", str(tmp_path / "lost")],
    ):
        restored = outrider(project, "restore", *arguments)
        assert restored.returncode == 0, restored.stderr
        assert places(folder, MARKERS) == []
        with SqliteJournal(folder / "journal.db", read_only=True) as journal:
            assert journal.last_seq() == 6
        names = ErasedNames.of_folder(folder)
        part = RequestPart("toy", [0, 1], {"id": ["zq7f-0", "0-1"]})
        found = names.faults(part)
        assert found is not None
        assert found.rows.tolist() == [0]
        shutil.rmtree(folder)


def replayed(bench: Workbench) -> Any:
    done = outrider(bench.config.parent, "replay", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
