import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import Engine, insert

from outrider.dataops.datasets import changes
from outrider.dataops.datasets import collect as flagged
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.labels.weak_labels import Correction, corrected
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import tables
from outrider.dataops.state.database import write

from .test_flagged import Blocks, add_label, add_record, block, objects_of


def add_weak(
    engine: Engine,
    name: str,
    value: object,
    *,
    confidence: float = 0.9,
    assertion: str = "flicker",
    **more: object,
) -> None:
    row: dict[str, object] = {
        "id": f"{name}/{assertion}/{json.dumps(value)}",
        "model": "m",
        "record_id": name,
        "flag_id": f"{name}/{assertion}",
        "assertion": assertion,
        "revision": "1",
        "slot": "champion",
        "kind": "replace",
        "field": "outputs.label",
        "element": -1,
        "value": json.dumps(value),
        "confidence": confidence,
        "seq": 1,
        "row": 0,
        "ts_us": 0,
    }
    with write(engine) as connection:
        connection.execute(insert(tables.WeakLabelRow), [row | more])


def collect(
    engine: Engine, blocks: Blocks, *, confidence: float = 0.8, share: float = 0.0
) -> flagged.Collected:
    with engine.connect() as connection:
        return flagged.collect(
            connection,
            blocks,
            objects_of(engine),
            LabelScope("m", "d"),
            target="label",
            weak_confidence=confidence,
            held_out_share=share,
        )


@pytest.fixture
def blocks() -> Blocks:
    return Blocks({1: block("abcd", **{"outputs.label": [0, 0, 0, 0]})})


def test_weak_labels_stand_beside_human_ones_with_their_provenance(engine: Engine, blocks: Blocks) -> None:
    for row, name in enumerate("abcd"):
        add_record(engine, 1, row, name)
    add_label(engine, 10, "a", 1)
    add_weak(engine, "a", 0)  # a human has spoken
    add_weak(engine, "b", 1)
    add_weak(engine, "c", 1, confidence=0.6)  # not sure enough
    add_weak(engine, "d", 1, slot="v2")  # a challenger's
    found = collect(engine, blocks)
    assert found.batch is not None
    rows = dict(zip(found.batch.keys, found.batch.column("label.label"), strict=True))
    assert rows == {"a": 1, "b": 1}
    sources = {row.record_id: (row.label_source, row.part) for row in found.provenance}
    assert sources["b"] == ("weak:flicker", "train")
    assert sources["a"] == ("human", "train")
    none = collect(engine, blocks, confidence=0.0)
    assert none.batch is not None
    assert none.batch.keys.tolist() == ["a"]


def test_the_surest_correction_of_a_record_stands(engine: Engine, blocks: Blocks) -> None:
    add_record(engine, 1, 0, "a")
    add_weak(engine, "a", 2, confidence=0.85, assertion="one")
    add_weak(engine, "a", 3, confidence=0.95, assertion="two")
    found = collect(engine, blocks)
    assert found.batch is not None
    assert found.batch.column("label.label").tolist() == [3]
    assert found.provenance[0].label_source == "weak:one,two"


def test_weak_rows_of_a_held_out_entity_are_not_learned_from(engine: Engine, blocks: Blocks) -> None:
    entities = {name: f"cam{place // 2}" for place, name in enumerate("abcd")}
    cameras = ["cam0", "cam1"]
    drawn = {share: flagged.held_out(cameras, share=share, dataset="d") for share in np.linspace(0, 1, 100)}
    share = next(share for share, out in drawn.items() if any(out))
    parts = dict(zip(cameras, drawn[share], strict=True))
    assert sorted(parts.values()) == [False, True]  # one of the two is held out
    for row, (name, entity) in enumerate(entities.items()):
        add_record(engine, 1, row, name, entity=entity)
    for seq, name in enumerate("ac"):
        add_label(engine, 10 + seq, name, 1)
    for name in "bd":
        add_weak(engine, name, 1)
    found = collect(engine, blocks, share=share)
    assert {row.record_id: row.part for row in found.provenance} == {
        name: "held_out" if parts[entity] else "train"
        for name, entity in entities.items()
        if name in "ac" or not parts[entity]
    }
    assert found.rejected == {}  # it waits for a human


def test_an_entity_stays_in_its_part_when_the_share_changes(
    engine: Engine, blocks: Blocks, tmp_path: Path
) -> None:
    for row, name in enumerate("abcd"):
        add_record(engine, 1, row, name, entity="cam")
    add_label(engine, 10, "a", 1)
    objects = LocalObjects(tmp_path / "objects")

    def commit(share: float) -> dict[str, str]:
        found = collect(engine, blocks, share=share)
        assert found.batch is not None
        with write(engine) as connection:
            draft = changes.prepare(
                connection,
                objects,
                dataset="d",
                batch=found.batch,
                provenance=found.provenance,
                append=True,
            )
            changes.commit(connection, draft, validation={}, now_us=0)
        return {row.record_id: row.part for row in found.provenance}

    assert commit(1.0) == {"a": "held_out"}
    add_label(engine, 11, "b", 1)
    add_weak(engine, "c", 1)
    assert commit(0.0) == {"b": "held_out"}


def test_what_a_human_says_later_takes_the_place_of_a_weak_label(
    engine: Engine, objects: LocalObjects, blocks: Blocks
) -> None:
    for row, name in enumerate("ab"):
        add_record(engine, 1, row, name)
        add_weak(engine, name, 1)
    first = keep(engine, objects, collect(engine, blocks))
    assert collect(engine, blocks).batch is None  # nothing new
    add_label(engine, 10, "b", 0)
    second = keep(engine, objects, collect(engine, blocks))
    with engine.connect() as connection:
        batch = datasets.read(connection, objects, second)
        rows = dict(zip(batch.keys, batch.column("label.label"), strict=True))
        assert rows == {"a": 1, "b": 0}
        sources = {row.record_id: row.label_source for row in datasets.provenance(connection, second)}
        assert sources == {"a": "weak:flicker", "b": "human"}
        before = datasets.read(connection, objects, first)
        assert before.column("label.label").tolist() == [1, 1]
    assert second.parent == first.number


def keep(engine: Engine, objects: LocalObjects, found: flagged.Collected) -> datasets.Version:
    assert found.batch is not None
    with write(engine) as connection:
        draft = changes.prepare(
            connection, objects, dataset="d", batch=found.batch, provenance=found.provenance, append=True
        )
        return changes.commit(connection, draft, validation={}, now_us=1)


def test_elements_of_a_list_are_added_and_removed(engine: Engine) -> None:
    boxes = [[{"x": 1.0}, {"x": 9.0}], [{"x": 2.0}], [], [{"x": 3.0}]]
    blocks = Blocks({1: block("abcd", **{"outputs.label": boxes})})
    for row, name in enumerate("abcd"):
        add_record(engine, 1, row, name)
    add_weak(engine, "a", None, kind="remove", element=1)
    add_weak(engine, "c", {"x": 2.5}, kind="add")
    found = collect(engine, blocks)
    assert found.batch is not None
    assert found.batch.to_arrow().column("label.label").to_pylist() == [[{"x": 1.0}], [{"x": 2.5}]]


def test_lists_grow_from_block_to_block_and_from_version_to_version(
    engine: Engine, objects: LocalObjects
) -> None:
    sent: list[list[dict[str, object]]] = [[], [{"x": 2}], [{"x": 2.5}], [{"x": 3.0, "kind": "car"}]]
    blocks = Blocks({n: block("abcd"[n], **{"outputs.label": [value]}) for n, value in enumerate(sent)})
    for number in range(3):
        add_record(engine, number, 0, "abcd"[number])
        add_weak(engine, "abcd"[number], {"x": number}, kind="add", seq=number)
    first = keep(engine, objects, collect(engine, blocks))
    with engine.connect() as connection:
        batch = datasets.read(connection, objects, first)
    assert batch.arrow("label.label").to_pylist() == [
        [{"x": 0.0}],
        [{"x": 2.0}, {"x": 1.0}],
        [{"x": 2.5}, {"x": 2.0}],
    ]
    assert (
        batch.arrow("outputs.label").type
        == batch.arrow("label.label").type
        == pa.list_(pa.struct({"x": pa.float64()}))
    )
    add_record(engine, 3, 0, "d")
    add_weak(engine, "d", None, kind="remove", element=0)
    second = keep(engine, objects, collect(engine, blocks))
    assert (second.number, second.rows) == (2, 4)
    with engine.connect() as connection:
        grown = datasets.read(connection, objects, second)
        assert [row.record_id for row in datasets.provenance(connection, second)] == list("abcd")
    assert grown.arrow("label.label").to_pylist()[1::2] == [
        [{"x": 2.0, "kind": None}, {"x": 1.0, "kind": None}],
        [],
    ]
    with engine.connect() as connection:
        difference = datasets.diff(connection, objects, first, second)
    assert difference == datasets.Diff(added=["d"], removed=[], changed=[])


def test_a_correction_of_an_element_that_is_not_there_is_quarantined(engine: Engine, blocks: Blocks) -> None:
    add_record(engine, 1, 0, "a")
    add_weak(engine, "a", None, kind="remove", element=7)
    assert "a list expected" in collect(engine, blocks).rejected["a"]
    with pytest.raises(ValueError, match="element 7"):
        corrected([1], [Correction("blip", "remove", 7, None, 1.0)])
