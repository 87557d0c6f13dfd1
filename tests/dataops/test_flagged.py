import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, insert, text

from outrider.assertions import Batch
from outrider.dataops.datasets import changes, quarantine
from outrider.dataops.datasets import collect as flagged
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.label_fates import LabelScope, Rows
from outrider.dataops.flags import reviews
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from outrider.errors import NotFound
from tests.databases import migrated


@dataclass
class Block:
    payload: bytes


class Blocks(dict[int, Block]):
    """A journal as far as collecting needs one; the real one has contract tests of its own."""

    def get(self, seq: int) -> Block:  # type: ignore[override]  # raises instead of returning None
        return self[seq]


def add_record(
    engine: Engine,
    seq: int,
    row: int,
    name: str,
    *,
    entity: str | None = None,
    flags: str = "blurry",
    slot: str = "champion",
) -> None:
    with write(engine) as connection:
        record = {"model": "m", "id": name, "seq": seq, "row": row, "ts_us": 0, "digest": 0, "entity": entity}
        connection.execute(insert(tables.Record), [record])
        for assertion in filter(None, flags.split(",")):
            flag: dict[str, object] = {
                "id": f"{name}/{assertion}/{slot}",
                "model": "m",
                "record_id": name,
                "assertion": assertion,
                "revision": "1",
                "slot": slot,
                "severity": 1.0,
                "level": "warning",
                "seq": seq,
                "row": row,
                "ts_us": 0,
            }
            connection.execute(insert(tables.Flag), [flag])


def add_label(engine: Engine, seq: int, name: str, label: object, *, source: str = "human") -> None:
    with write(engine) as connection:
        row = {
            "seq": seq,
            "row": 0,
            "model": "m",
            "record_id": name,
            "source": source,
            "value": json.dumps(label),
        }
        row |= {"label": {"label": label}, "ts_us": seq, "received_us": seq}
        row |= {"value": None, "label": {}} if label is None else {}  # withdrawn: as the worker stores it
        connection.execute(insert(improvement_tables.Label), [row])


def block(ids: str, **more: object) -> Block:
    columns = {"id": list(ids), "inputs.x": np.array([float(ord(i)) for i in ids])} | more
    return Block(Batch.from_columns(columns, model="m").to_ipc())


@pytest.fixture
def blocks() -> Blocks:
    return Blocks({1: block("abcd"), 2: block("efgh", **{"attrs.device": list("1234")})})


def collect(
    engine: Engine,
    blocks: Blocks,
    *,
    upto_seq: int | None = None,
    share: float = 0.0,
    rows: Rows = "flagged",
    rules: str = "",
) -> flagged.Collected:
    with engine.connect() as connection:
        return flagged.collect(
            connection,
            blocks,
            objects_of(engine),
            LabelScope("m", "d", rows, upto_seq, rules),
            target="label",
            classes=(0, 1),
            held_out_share=share,
        )


def objects_of(engine: Engine) -> LocalObjects:
    """Those of the fixture."""
    return LocalObjects(Path(str(engine.url.database)).parent / "objects")


def commit(engine: Engine, found: flagged.Collected, *, now_us: int = 1) -> datasets.Version:
    """Commit what was collected, as the job does."""
    with write(engine) as connection:
        draft = changes.prepare(
            connection,
            objects_of(engine),
            dataset="d",
            batch=found.batch,
            provenance=found.provenance,
            append=True,
            removed=found.removed,
        )
        return changes.commit(connection, draft, validation={}, now_us=now_us)


def hold(engine: Engine, found: flagged.Collected, reasons: dict[str, str], *, rules: str = "") -> None:
    with write(engine) as connection:
        quarantine.hold(connection, "d", reasons, rules=rules, labels=found.labels, now_us=1)


def count_new(engine: Engine, rows: Rows = "flagged", *, rules: str = "") -> int:
    with engine.connect() as connection:
        return flagged.count_new(connection, LabelScope("m", "d", rows, rules=rules))


def test_only_flagged_and_labelled_records_are_collected(engine: Engine, blocks: Blocks) -> None:
    add_record(engine, 1, 0, "a")
    add_record(engine, 1, 1, "b", flags="")
    add_record(engine, 1, 2, "c", flags="blurry,flicker")
    add_record(engine, 2, 0, "e", slot="v2")
    add_record(engine, 2, 3, "h")
    for seq, name in enumerate("bceh", start=10):
        add_label(engine, seq, name, 1)
    found = collect(engine, blocks)
    assert found.batch is not None
    assert found.batch.keys.tolist() == ["c", "h"]
    assert found.batch.column("inputs.x").tolist() == [99.0, 104.0]
    assert found.batch.column("attrs.device").tolist() == [None, "4"]
    assert [row.assertion for row in found.provenance] == ["blurry,flicker", "blurry"]
    assert count_new(engine) == 2


def test_all_labelled_records_are_collected_on_request(engine: Engine, blocks: Blocks) -> None:
    add_record(engine, 1, 0, "a")
    add_record(engine, 1, 1, "b", flags="")
    add_record(engine, 1, 2, "c", flags="")
    add_label(engine, 10, "a", 1)
    add_label(engine, 11, "b", 0)
    found = collect(engine, blocks, rows="labelled")
    assert found.batch is not None
    assert found.batch.keys.tolist() == ["a", "b"]
    assert [row.assertion for row in found.provenance] == ["blurry", None]
    assert count_new(engine, "labelled") == 2
    assert count_new(engine) == 1


def test_the_latest_label_counts(engine: Engine, blocks: Blocks) -> None:
    add_record(engine, 1, 0, "a")
    add_label(engine, 5, "a", 0, source="late")
    add_label(engine, 6, "a", 1, source="expert")
    found = collect(engine, blocks)
    assert found.batch is not None
    assert found.batch.column("label.label").tolist() == [1]
    assert found.provenance[0].label_source == "expert"
    earlier = collect(engine, blocks, upto_seq=5)
    assert earlier.batch is not None
    assert earlier.batch.column("label.label").tolist() == [0]


def test_what_is_in_a_version_or_quarantined_is_not_collected_again(engine: Engine, blocks: Blocks) -> None:
    for row, name in enumerate("abc"):
        add_record(engine, 1, row, name)
        add_label(engine, 10 + row, name, 1)
    found = collect(engine, blocks)
    assert found.batch is not None
    batch, provenance = flagged.keep(found.batch, found.provenance, [0])
    commit(engine, dataclasses.replace(found, batch=batch, provenance=provenance))
    hold(engine, found, {"b": "odd"})
    assert count_new(engine) == 1
    again = collect(engine, blocks)
    assert again.batch is not None
    assert again.batch.keys.tolist() == ["c"]


def test_a_label_of_another_type_and_an_expired_payload_reject_only_their_record(
    engine: Engine, blocks: Blocks
) -> None:
    add_record(engine, 1, 0, "a")
    add_label(engine, 10, "a", "seven")
    add_record(engine, 1, 1, "b")
    add_label(engine, 11, "b", 1)
    add_record(engine, 9, 0, "z")
    add_label(engine, 12, "z", 1)
    found = collect(engine, blocks)
    assert found.batch is not None
    assert found.batch.keys.tolist() == ["b"]
    assert found.rejected == {
        "a": "label.label: one of 0, 1 expected, got another text",
        "z": "its payload (block 9) has expired",
    }


def test_inputs_of_another_type_reject_only_their_block(engine: Engine, blocks: Blocks) -> None:
    blocks[3] = block("xy", **{"inputs.x": ["1", "2"]})
    for seq, row, name in ((1, 0, "a"), (3, 1, "y")):
        add_record(engine, seq, row, name)
        add_label(engine, 10 + seq, name, 1)
    found = collect(engine, blocks)
    assert found.batch is not None
    assert found.batch.keys.tolist() == ["a"]
    assert found.rejected == {"y": "inputs.x: string, but double in other rows"}


def test_an_entity_is_held_out_as_a_whole() -> None:
    keys = [f"card {number % 100}" for number in range(1000)]
    out = flagged.held_out(keys, share=0.3, dataset="d")
    assert len({(key, held) for key, held in zip(keys, out, strict=True)}) == 100
    assert 150 < sum(out) < 450
    assert flagged.held_out(keys, share=0.3, dataset="d") == out
    assert flagged.held_out(keys, share=0.3, dataset="e") != out
    assert not any(flagged.held_out(keys, share=0.0, dataset="d"))


def test_nothing_new_is_no_batch(engine: Engine, blocks: Blocks) -> None:
    assert collect(engine, blocks).batch is None


def test_labels_are_the_classes_they_equal_and_others_are_refused_with_the_reason(
    engine: Engine, blocks: Blocks
) -> None:
    for row, (name, label) in enumerate({"a": "1", "b": True, "c": 0.0, "d": 2}.items()):
        add_record(engine, 1, row, name)
        add_label(engine, 10 + row, name, label)
    found = collect(engine, blocks)
    assert found.batch is not None
    rows = dict(zip(found.batch.keys.tolist(), found.batch.column("label.label").tolist(), strict=True))
    assert rows == {"a": 1, "b": 1, "c": 0}
    assert found.rejected == {"d": "label.label: one of 0, 1 expected, got another number"}


def is_empty(found: flagged.Collected) -> bool:
    return found.batch is None and not found.removed


def rows_of(engine: Engine) -> dict[str, tuple[int, str | None, str]]:
    """Label, its source and part of every row of the newest version, by id."""
    with engine.connect() as connection:
        version = datasets.get(connection, "d")
        batch = datasets.read(connection, objects_of(engine), version)
        told = datasets.provenance(connection, version)
    assert [row.record_id for row in told] == batch.keys.tolist()
    labels = batch.column("label.label").tolist()
    return {
        row.record_id: (label, row.label_source, row.part) for row, label in zip(told, labels, strict=True)
    }


def spammed(engine: Engine, blocks: Blocks) -> None:
    """Four labels of one source in a version."""
    for row, name in enumerate("abcd"):
        add_record(engine, 1, row, name, entity=f"e{row}")
        add_label(engine, 10 + row, name, 1, source="spammer")
    commit(engine, collect(engine, blocks, share=0.5))


def test_corrected_labels_relabel_their_rows_and_withdrawn_ones_remove_them(
    engine: Engine, blocks: Blocks
) -> None:
    spammed(engine, blocks)
    before = rows_of(engine)
    assert count_new(engine) == 0
    for seq, (name, label) in enumerate({"a": 0, "b": 0, "c": None}.items(), start=20):
        add_label(engine, seq, name, label, source="expert")
    assert count_new(engine) == 3
    found = collect(engine, blocks, share=0.5)
    assert found.removed == ["c"]
    version = commit(engine, found)
    assert rows_of(engine) == {
        "a": (0, "expert", before["a"][2]),
        "b": (0, "expert", before["b"][2]),
        "d": before["d"],
    }
    with engine.connect() as connection:
        difference = datasets.diff(connection, objects_of(engine), datasets.get(connection, "d", 1), version)
        parents = connection.execute(text("SELECT parent, role FROM lineage_edge WHERE child = 'd@2'")).all()
    assert difference == datasets.Diff(added=[], removed=["c"], changed=["a", "b"])
    assert parents == [("d@1", "parent")]
    assert count_new(engine) == 0
    assert is_empty(collect(engine, blocks))


def test_a_row_keeps_judged_version_flags_reviewer_and_weight(engine: Engine, blocks: Blocks) -> None:
    add_record(engine, 1, 0, "a", flags="blurry,flicker")
    add_record(engine, 1, 1, "b")
    add_label(engine, 9, "a", 1)
    add_label(engine, 10, "b", 0)
    with write(engine) as connection:
        connection.execute(text("UPDATE record SET version = '3', weight = 2.5 WHERE id = 'a'"))
        connection.execute(text("UPDATE flag SET version = '4' WHERE record_id = 'b'"))
        connection.execute(
            text("UPDATE flag SET severity = 7.25, revision = 'f2' WHERE id = 'a/flicker/champion'")
        )
        reviews.give(connection, "a/flicker/champion", is_error=True, source="ada", now_us=1)
    found = collect(engine, blocks)
    version = commit(engine, found)
    with engine.connect() as connection:
        kept = datasets.provenance(connection, version)
    assert kept == found.provenance
    a, b = kept
    assert a.flagged_by == [datasets.RowFlag("flicker", "f2", 7.25), datasets.RowFlag("blurry", "1", 1.0)]
    assert (a.assertion, a.model_version, a.reviewer, a.weight) == ("blurry,flicker", "3", "ada", 2.5)
    assert (a.label_seq, a.label_row, a.label_source) == (9, 0, "human")
    # Production said nothing to b: the flag knows which version was judged.
    assert (b.model_version, b.reviewer, b.weight) == ("4", None, 1.0)
    # A corrected label keeps what is known, also once the flags are gone.
    with write(engine) as connection:
        connection.execute(text("DELETE FROM flag"))
    add_label(engine, 20, "a", 0, source="expert")
    corrected = commit(engine, collect(engine, blocks))
    with engine.connect() as connection:
        now = datasets.provenance(connection, corrected)[0]
    assert now == dataclasses.replace(a, label_source="expert", label_seq=20)
    assert now.to_dict()["flags"][0] == {"assertion": "flicker", "revision": "f2", "severity": 7.25}


def test_a_withdrawal_alone_makes_a_version_and_a_new_label_brings_its_record_back(
    engine: Engine, blocks: Blocks
) -> None:
    spammed(engine, blocks)
    for seq, name in enumerate("abcd", start=20):
        add_label(engine, seq, name, None)
    found = collect(engine, blocks)
    assert (found.batch, found.removed) == (None, list("abcd"))
    version = commit(engine, found)
    assert version.rows == 0
    assert rows_of(engine) == {}
    with engine.connect() as connection:
        assert datasets.read(connection, objects_of(engine), version, part="train").rows == 0
    assert is_empty(collect(engine, blocks))
    add_label(engine, 30, "b", 0, source="expert")
    found = collect(engine, blocks)
    assert found.corrected == frozenset()
    commit(engine, found)
    assert {name: row[:2] for name, row in rows_of(engine).items()} == {"b": (0, "expert")}


def test_a_correction_of_a_record_whose_payload_has_expired_reaches_the_dataset(
    engine: Engine, blocks: Blocks
) -> None:
    spammed(engine, blocks)
    del blocks[1]
    add_label(engine, 20, "a", 0, source="expert")
    found = collect(engine, blocks)
    assert found.rejected == {}
    assert found.batch is not None
    assert found.batch.column("inputs.x").tolist() == [97.0]
    commit(engine, found)
    assert rows_of(engine)["a"][:2] == (0, "expert")


def test_a_label_that_says_the_same_changes_no_row_and_neither_does_one_of_other_fields(
    engine: Engine, blocks: Blocks
) -> None:
    spammed(engine, blocks)
    add_label(engine, 20, "a", 1, source="expert")
    add_label(engine, 21, "b", None)
    with write(engine) as connection:
        connection.execute(text('UPDATE label SET label = \'{"note": "blurred"}\' WHERE seq = 21'))
    assert count_new(engine) == 0
    assert is_empty(collect(engine, blocks))


def test_a_job_of_earlier_labels_takes_no_correction_back(engine: Engine, blocks: Blocks) -> None:
    spammed(engine, blocks)
    add_label(engine, 20, "a", 0, source="expert")
    commit(engine, collect(engine, blocks))
    assert is_empty(collect(engine, blocks, upto_seq=15))


def test_a_correction_that_is_no_class_is_held_and_the_next_one_is_taken(
    engine: Engine, blocks: Blocks
) -> None:
    spammed(engine, blocks)
    add_label(engine, 20, "a", 7, source="expert")
    found = collect(engine, blocks)
    assert found.rejected == {"a": "label.label: one of 0, 1 expected, got another number"}
    hold(engine, found, found.rejected)
    assert count_new(engine) == 0
    add_label(engine, 21, "a", 0, source="expert")
    commit(engine, collect(engine, blocks))
    assert rows_of(engine)["a"][:2] == (0, "expert")


def test_a_label_that_went_over_to_a_later_record_leaves_the_earlier_one(
    engine: Engine, blocks: Blocks
) -> None:
    spammed(engine, blocks)
    add_record(engine, 2, 0, "e")
    with write(engine) as connection:
        connection.execute(text("UPDATE label SET entity = 'e0', record_id = 'e' WHERE record_id = 'a'"))
    found = collect(engine, blocks)
    assert found.removed == ["a"]
    commit(engine, found)
    assert set(rows_of(engine)) == set("bcde")


def test_a_person_who_confirms_a_weak_label_stands_in_its_provenance(engine: Engine, blocks: Blocks) -> None:
    add_record(engine, 1, 0, "a")
    add_label(engine, 10, "a", 1)
    found = collect(engine, blocks)
    weak = dataclasses.replace(found.provenance[0], label_source="weak:flip", label_seq=None, label_row=None)
    first = commit(engine, dataclasses.replace(found, provenance=[weak]))
    assert count_new(engine) == 1
    second = commit(engine, collect(engine, blocks))
    assert (second.number, second.digest) == (2, first.digest)
    assert rows_of(engine)["a"][:2] == (1, "human")
    assert count_new(engine) == 0


def test_what_other_rules_refused_is_looked_at_again(engine: Engine, blocks: Blocks) -> None:
    add_record(engine, 1, 0, "a")
    add_label(engine, 10, "a", 1)
    found = collect(engine, blocks, rules="one")
    hold(engine, found, {"a": "odd"}, rules="one")
    assert count_new(engine, rules="one") == 0
    assert count_new(engine, rules="two") == 1
    hold(engine, found, {"a": "odd again"}, rules="two")
    with engine.connect() as connection:
        (held,) = quarantine.list_quarantine(connection)
    assert (held.reasons, held.state) == ("odd again", "held")
    assert count_new(engine, rules="two") == 0


def test_quarantined_records_are_retried_dropped_and_leave_when_taken(engine: Engine, blocks: Blocks) -> None:
    for row, name in enumerate("ab"):
        add_record(engine, 1, row, name)
        add_label(engine, 10 + row, name, 1)
    found = collect(engine, blocks)
    hold(engine, found, {"a": "odd", "b": "odd"})
    with write(engine) as connection:
        with pytest.raises(NotFound, match="record 'z' is not in quarantine of dataset 'd'"):
            quarantine.settle(connection, "retry", dataset="d", records=["a", "z"])
        (out,) = quarantine.settle(connection, "drop", dataset=None, records=["b"])
    assert (out.record_id, out.state) == ("b", "dropped")
    assert count_new(engine, rules="other") == 1
    assert is_empty(collect(engine, blocks))
    with write(engine) as connection:
        assert [r.record_id for r in quarantine.settle(connection, "retry", dataset="d", records=[])] == ["a"]
    again = collect(engine, blocks)
    commit(engine, again)
    with write(engine) as connection:
        quarantine.take(connection, "d", again.provenance)
        assert quarantine.list_quarantine(connection) == []
        states = {r.record_id: r.state for r in quarantine.list_quarantine(connection, state=None)}
        assert states == {"a": "taken", "b": "dropped"}
        quarantine.settle(connection, "retry", dataset="d", records=["b"])
    assert count_new(engine) == 1


def test_counting_what_is_new_takes_work_in_proportion_to_the_labels(tmp_path: Path) -> None:
    taken = {}
    for rows in (300, 3_000):
        engine = migrated(tmp_path / f"{rows}.db")
        numbers = range(rows)
        place = [{"model": "m", "seq": 1, "row": row, "ts_us": 0} for row in numbers]
        with write(engine) as connection:
            connection.execute(
                insert(tables.Record), [at | {"id": f"r{at['row']}", "digest": 0} for at in place]
            )
            flag = {"assertion": "a", "revision": "1", "slot": "champion", "severity": 1.0, "level": "info"}
            connection.execute(
                insert(tables.Flag),
                [at | flag | {"id": f"f{at['row']}", "record_id": f"r{at['row']}"} for at in place],
            )
            label = {"source": "human", "value": "1", "label": {"label": 1}, "received_us": 0}
            connection.execute(
                insert(improvement_tables.Label),
                [at | label | {"record_id": f"r{at['row']}"} for at in place],
            )
            connection.execute(
                insert(improvement_tables.DatasetRow),
                [
                    {"dataset": "d", "file": 1, "number": 1, "position": row, "record_id": f"r{row}"}
                    | {"label_seq": 1, "label_row": row, "digest": bytes(64)}
                    for row in range(rows // 2)
                ],
            )
            steps = 0

            def step() -> int:
                nonlocal steps
                steps += 1
                return 0

            raw: Any = connection.connection.dbapi_connection
            raw.set_progress_handler(step, 100)
            assert flagged.count_new(connection, LabelScope("m", "d", upto_seq=9)) == rows // 2
            raw.set_progress_handler(None, 0)
        taken[rows] = steps
        engine.dispose()
    assert taken[3_000] < 15 * taken[300]


def test_wider_numbers_and_new_fields_go_on_and_other_types_alone_are_refused(engine: Engine) -> None:
    whole = Block(
        Batch.from_columns(
            {"id": ["i", "j"], "inputs.x": np.array([1, 2]), "inputs.new": ["n", None]}, model="m"
        ).to_ipc()
    )
    text_in_place = Block(Batch.from_columns({"id": ["y"], "inputs.x": ["ten"]}, model="m").to_ipc())
    blocks = Blocks({1: whole, 2: block("abcd"), 3: text_in_place})
    for seq, names in ((1, "ij"), (2, "ab"), (3, "y")):
        for row, name in enumerate(names):
            add_record(engine, seq, row, name)
            add_label(engine, 10 * seq + row, name, 1)
    found = collect(engine, blocks, upto_seq=15)
    first = commit(engine, found)
    assert first.manifest["columns"]["inputs.x"] == "int64"
    found = collect(engine, blocks)
    assert found.rejected == {"y": "inputs.x: string, but int64 in d@1"}
    add_label(engine, 90, "i", 0, source="expert")
    second = commit(engine, collect(engine, blocks))
    assert second.manifest["columns"]["inputs.x"] == "double"
    assert second.manifest["changes"] == {"added": 2, "relabelled": 1, "removed": 0}
    with engine.connect() as connection:
        table = datasets.read(connection, objects_of(engine), second).to_arrow()
    wanted = {"i": (1.0, "n", 0), "j": (2.0, None, 1), "a": (97.0, None, 1), "b": (98.0, None, 1)}
    columns = [table.column(name).to_pylist() for name in ("id", "inputs.x", "inputs.new", "label.label")]
    assert {key: tuple(row) for key, *row in zip(*columns, strict=True)} == wanted


def part_steps(engine: Engine, rows: range) -> int:
    """Steps of SQLite, in hundreds, that finding the parts of two new rows takes once a dataset has those."""
    records = [
        {
            "model": "m",
            "id": f"r{row}",
            "seq": 1,
            "row": row,
            "ts_us": 0,
            "digest": 0,
            "entity": f"e{row // 2}",
        }
        for row in rows
    ]
    held = [
        {"dataset": "d", "file": 1, "position": row, "number": 1, "record_id": f"r{row}"}
        | {"part": "held_out", "digest": bytes(64)}
        for row in rows
    ]
    with write(engine) as connection:
        connection.execute(insert(tables.Record), records)
        connection.execute(insert(improvement_tables.DatasetRow), held)
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    places = [flagged._Place(name, 9, 0, name, flagged._Flags(), "human", {}) for name in ("e1", "other")]
    with engine.connect() as connection:
        connection.connection.dbapi_connection.set_progress_handler(step, 100)  # type: ignore[union-attr]
        parts = flagged._parts(connection, LabelScope("m", "d"), places, share=0.0)
        connection.connection.dbapi_connection.set_progress_handler(None, 0)  # type: ignore[union-attr]
    assert parts == ["held_out", "train"]
    return steps


def test_parts_of_new_rows_read_only_their_entities(engine: Engine) -> None:
    assert part_steps(engine, range(5000)) <= 10  # reading all would take hundreds


def collect_fed(engine: Engine, blocks: Blocks) -> flagged.Collected:
    """As `collect`, for a model that is fed ``inputs.x``."""
    with engine.connect() as connection:
        return flagged.collect(
            connection,
            blocks,
            objects_of(engine),
            LabelScope("m", "d", "flagged"),
            target="label",
            classes=(0, 1),
            inputs=("inputs.x",),
        )


def add_labelled(engine: Engine, places: dict[str, tuple[int, int]]) -> None:
    for number, (name, (seq, row)) in enumerate(places.items()):
        add_record(engine, seq, row, name)
        add_label(engine, 10 * seq + row + number, name, 1)


def test_collect_drops_an_undeclared_input_that_no_collected_row_has(engine: Engine) -> None:
    blocks = Blocks({1: block("ab", **{"inputs.note": ["late", None]}), 2: block("c")})
    add_labelled(engine, {"b": (1, 1)})
    first = collect_fed(engine, blocks)
    assert first.batch is not None
    assert not first.batch.has("inputs.note")
    commit(engine, first)
    add_labelled(engine, {"a": (1, 0)})  # a later version has it, and the next one not again
    assert commit(engine, collect_fed(engine, blocks)).manifest["columns"]["inputs.note"] == "string"
    add_labelled(engine, {"c": (2, 0)})
    third = collect_fed(engine, blocks)
    assert third.batch is not None
    assert third.batch.is_null("inputs.note").all()  # of the dataset's type, for expectations that read it
    assert commit(engine, third).rows == 3


def test_collect_keeps_rows_whose_undeclared_input_has_another_type(engine: Engine) -> None:
    blocks = Blocks(
        {
            1: block("abc", **{"inputs.note": [1, 2, 3]}),
            2: block("de", **{"inputs.note": ["late", None]}),
            3: block("fg", **{"inputs.x": ["1", "2"]}),
        }
    )
    add_labelled(engine, {"a": (1, 0), "b": (1, 1), "d": (2, 0), "e": (2, 1), "f": (3, 0)})
    found = collect_fed(engine, blocks)
    assert found.batch is not None
    assert found.batch.keys.tolist() == ["a", "b", "d", "e"]
    assert found.batch.to_arrow().column("inputs.note").to_pylist() == [1, 2, None, None]
    (warning,) = found.warnings
    assert warning["field"] == "inputs.note"
    assert "inputs.note: string, but int64 in other rows" in warning["text"]
    assert warning["ids"] == ["d", "e"]
    assert list(found.rejected) == ["f"]  # what the model is fed


def test_prepare_makes_a_number_null_that_an_undeclared_column_cannot_hold(engine: Engine) -> None:
    blocks = Blocks(
        {1: block("ab", **{"attrs.user": [0.5, 1.5]}), 2: block("cd", **{"attrs.user": [2**60, 1]})}
    )
    add_labelled(engine, {"a": (1, 0)})
    commit(engine, collect_fed(engine, blocks))
    add_labelled(engine, {"c": (2, 0), "d": (2, 1)})
    second = commit(engine, collect_fed(engine, blocks))
    assert second.rows == 3
    assert "2**53" in second.manifest["unfit"]["attrs.user"]
    with engine.connect() as connection:
        table = datasets.read(connection, objects_of(engine), second).to_arrow()
    assert table.column("attrs.user").to_pylist() == [0.5, None, None]
