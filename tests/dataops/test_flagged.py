import json
from dataclasses import dataclass

import numpy as np
import pytest
from sqlalchemy import Engine, insert

from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import collect as flagged
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write


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
    rows: flagged.Rows = "flagged",
) -> flagged.Collected:
    with engine.connect() as connection:
        return flagged.collect(
            connection,
            blocks,
            model="m",
            dataset="d",
            target="label",
            classes=(0, 1),
            rows=rows,
            upto_seq=upto_seq,
            held_out_share=share,
        )


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
    with engine.connect() as connection:
        assert flagged.count_new(connection, model="m", dataset="d") == 2


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
    with engine.connect() as connection:
        assert flagged.count_new(connection, model="m", dataset="d", rows="labelled") == 2
        assert flagged.count_new(connection, model="m", dataset="d") == 1


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


def test_what_is_in_a_version_or_quarantined_is_not_collected_again(
    engine: Engine, blocks: Blocks, objects: LocalObjects
) -> None:
    for row, name in enumerate("abc"):
        add_record(engine, 1, row, name)
        add_label(engine, 10 + row, name, 1)
    found = collect(engine, blocks)
    assert found.batch is not None
    batch, provenance = flagged.keep(found.batch, found.provenance, [0])
    with write(engine) as connection:
        draft = changes.prepare(
            connection, objects, dataset="d", batch=batch, provenance=provenance, append=True
        )
        changes.commit(connection, draft, validation={}, now_us=1)
        flagged.quarantine(connection, "d", {"b": "odd"}, now_us=1)
        assert flagged.count_new(connection, model="m", dataset="d") == 1
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
        "a": "label: one of 0, 1 expected, got 'seven'",
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
    assert found.rejected == {"y": "inputs.x is string, but double in other rows"}


def test_an_entity_is_held_out_as_a_whole() -> None:
    keys = [f"card {number % 100}" for number in range(1000)]
    out = flagged.held_out(keys, share=0.3, seed=1)
    assert len({(key, held) for key, held in zip(keys, out, strict=True)}) == 100
    assert 150 < sum(out) < 450
    assert flagged.held_out(keys, share=0.3, seed=1) == out
    assert flagged.held_out(keys, share=0.3, seed=2) != out
    assert not any(flagged.held_out(keys, share=0.0, seed=1))


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
    assert found.rejected == {"d": "label: one of 0, 1 expected, got 2"}
