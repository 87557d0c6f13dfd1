"""Types of learned columns: the odd value is refused, not the many; rare fields share one column."""

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions import Batch
from outrider.dataops.journal.journal import SqliteJournal
from outrider.monitor.intake.column_weights import SETTLED, type_key
from outrider.monitor.intake.decode import Decoded, Decoder
from outrider.monitor.intake.join_rows import JoinedRecord, SideRow, SidesBySchema
from outrider.monitor.intake.schema_book import PROVEN, SchemaBook
from tests.soak import examples

from .decoding import decode_body

RECEIVED = 1_700_000_000_000_000
CLINIC = "attrs.clinic"


def decoder(book: SchemaBook | None = None, **limits: Any) -> Decoder:
    return Decoder(book or SchemaBook({"m": {}}), **limits)


def records(values: list[Any], *, field: str = "clinic") -> list[dict[str, Any]]:
    return [{"model": "m", "inputs": {"age": 41}, "attrs": {field: value}} for value in values]


def send(d: Decoder, values: list[Any], *, field: str = "clinic") -> Decoded:
    return sent(d, records(values, field=field))


def sent(d: Decoder, body: list[dict[str, Any]]) -> Decoded:
    return decode_body(d, json.dumps(body).encode(), kind="records", form="json", received_us=RECEIVED)


def stored(decoded: Decoded, name: str = CLINIC) -> list[Any]:
    return [value for block in decoded.blocks for value in block.table.column(name).to_pylist()]


def arrow(d: Decoder, column: pa.Array, *, name: str = CLINIC) -> Decoded:
    table = pa.record_batch(
        {"inputs.age": pa.array([41] * len(column)), name: column},
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    body = sink.getvalue().to_pybytes()
    return decode_body(d, body, kind="records", form="arrow", received_us=RECEIVED, model="m")


def test_column_first_value_odd_every_later_text_accepted() -> None:
    d = decoder()
    assert stored(send(d, [True])) == [True]
    for batch in (["north"], ["south", "east"], ["west"] * 50):
        decoded = send(d, batch)
        assert not decoded.rejected
        assert stored(decoded) == batch


def test_column_odd_value_among_many_alone_is_refused() -> None:
    d = decoder()
    decoded = send(d, [True, *["north"] * 9])
    assert [(r.index, r.field) for r in decoded.rejected.listed] == [(0, CLINIC)]
    assert "expected string, got boolean True" in decoded.rejected.listed[0].reason
    assert stored(decoded) == ["north"] * 9
    assert [r.index for r in send(d, ["south", 7, "east", [1], {"a": 1}, None]).rejected.listed] == [1, 3]


def test_column_is_settled_after_a_thousand_values() -> None:
    d = decoder()
    send(d, [True] * SETTLED)
    decoded = send(d, ["north"] * 5000)
    assert decoded.rejected.count == 5000
    assert stored(send(d, [False])) == [False]


def test_column_of_few_values_gives_way_to_more_of_another_type() -> None:
    d = decoder()
    send(d, [True] * 10)
    assert send(d, ["north"] * 9).rejected.count == 9  # fewer than there are
    decoded = send(d, ["north"] * 2)  # eleven, the refused ones counted
    assert not decoded.rejected
    assert stored(decoded) == ["north"] * 2


def test_settled_integers_still_widen_to_floats() -> None:
    d = decoder()
    send(d, [1] * SETTLED)
    assert stored(send(d, [1.5])) == [1.5]
    assert send(d, ["1.5"]).rejected.count == 1


def test_column_alternating_types_comes_to_rest_and_accepts_half_at_least() -> None:
    d = decoder()
    digests, accepted = [], 0
    for step in range(SETTLED):
        decoded = send(d, [True if step % 2 else "north"])
        accepted += decoded.accepted
        digests += [block.digest for block in decoded.blocks]
    changes = sum(one != other for one, other in pairwise(digests))
    assert changes <= 2
    assert accepted >= SETTLED // 2
    assert len(set(digests)) == 2


def test_column_of_an_enemy_changes_a_few_times_only() -> None:
    """Whoever sends just what turns a column round needs ever more values for it."""
    d, changes, last = decoder(), 0, ""
    rng = random.Random(3)
    for _ in range(400):
        decoded = send(d, [rng.choice([True, "north", 3])] * rng.choice([1, 2, 5, 40]))
        for block in decoded.blocks:
            changes += last not in ("", block.digest)
            last = block.digest
    assert changes <= 12
    [*_, settled] = [one.state for one in d._book.facts("records", "m") if one.name == CLINIC]
    assert settled == "settled"


def test_declared_column_never_gives_way() -> None:
    d = decoder(SchemaBook({"m": {CLINIC: "bool"}}))
    assert send(d, ["north"] * 2000).rejected.count == 2000
    assert stored(send(d, [True])) == [True]


@pytest.mark.parametrize(
    ("odd", "usual"),
    [
        (True, "north"),
        (1, "north"),
        ("north", 2.5),
        ("north", [1, 2, 3]),
        ([1, 2, 3], "north"),
        ([1, 2, 3], [1, 2, 3, 4]),
        ([[1, 2], [3, 4]], [[1, 2, 3], [4, 5, 6]]),
        ([True], ["north"]),
        ([1], ["north", "south"]),
        ([{"label": True, "x": 1}], [{"label": "cat", "x": 2.5}, {"label": "dog"}]),
        ([{"label": True}], ["north"]),
    ],
)
def test_first_odd_value_of_any_type_gives_way(odd: Any, usual: Any) -> None:
    d = decoder()
    assert send(d, [odd]).accepted == 1
    for _ in range(3):
        assert not send(d, [usual]).rejected
    assert not send(d, [usual] * 40).rejected
    assert send(d, [odd]).rejected.count in (0, 1)  # what fits both is taken
    assert not send(d, [usual]).rejected


def test_vectors_of_several_lengths_become_lists() -> None:
    d = decoder()
    send(d, [[1, 2, 3]])
    for size in range(1, 30):
        assert not send(d, [[float(n) for n in range(size)]]).rejected


def test_values_that_are_none_have_no_vote() -> None:
    d = decoder()
    send(d, ["north"])
    bodies = b'[{"model":"m","inputs":{"age":1},"attrs":{"clinic":NaN}}]'
    for _ in range(20):
        assert decode_body(d, bodies, kind="records", form="json", received_us=RECEIVED).accepted == 0
    assert stored(send(d, ["south"])) == ["south"]


def test_column_of_nulls_from_arrow_decides_nothing() -> None:
    for kind in (pa.null(), pa.float64(), pa.bool_()):
        d = decoder()
        assert not arrow(d, pa.nulls(3000, kind)).rejected
        assert stored(send(d, ["north"])) == ["north"]
        assert not arrow(d, pa.nulls(3, kind)).rejected


def test_arrow_of_another_type_than_json_is_held_to_the_same_rule() -> None:
    d = decoder()
    send(d, [True])
    assert not arrow(d, pa.array(["north"] * 5)).rejected
    assert stored(arrow(d, pa.array(["north", None]).dictionary_encode())) == ["north", None]
    assert arrow(d, pa.array([1.5, 2.5])).rejected.count == 2
    assert stored(send(d, ["south"])) == ["south"]


def test_fast_path_counts_for_the_type_too() -> None:
    d = decoder()
    send(d, ["north"])
    for _ in range(50):  # of a known shape now
        assert not send(d, ["north"] * 20).rejected
    assert send(d, [True] * 5000).rejected.count == 5000
    d = decoder()
    send(d, ["north"])
    arrow(d, pa.array(["north"] * 999))
    assert send(d, [True] * 5000).rejected.count == 5000


def test_two_senders_of_two_types_first_come_neither_locks_out_the_other_for_good() -> None:
    d = decoder()
    refused = 0
    for step in range(600):
        refused += send(d, [True] if step % 10 == 0 else ["north"]).rejected.count
    assert refused <= 61  # those of the few
    assert not send(d, ["north"] * 100).rejected


def test_labels_are_held_to_the_same_rule() -> None:
    d = decoder()

    def label(values: list[Any]) -> Decoded:
        body = [{"model": "m", "id": str(n), "label": {"topic": v}} for n, v in enumerate(values)]
        return decode_body(d, json.dumps(body).encode(), kind="labels", form="json", received_us=RECEIVED)

    label([True])
    assert not label(["billing"]).rejected
    assert [r.index for r in label(["billing", True, "orders"]).rejected.listed] == [1]


def test_every_block_has_one_type_and_holds_what_was_accepted() -> None:
    d = decoder()
    wanted: list[Any] = []
    found: list[Any] = []
    rng = np.random.default_rng(5)
    kinds: list[Callable[[], Any]] = [lambda: True, lambda: "north", lambda: 3, lambda: 2.5, lambda: None]
    for _ in range(60):
        values = [kinds[int(at)]() for at in rng.integers(0, len(kinds), 7)]
        decoded = send(d, values)
        bad = {one.index for one in decoded.rejected.listed}
        wanted += [value for index, value in enumerate(values) if index not in bad]
        for block in decoded.blocks:
            assert Batch.from_arrow(block.table).schema_digest == block.digest
            found += block.table.column(CLINIC).to_pylist() if CLINIC in block.table.schema.names else []
    assert [w for w in wanted if w is not None] == [f for f in found if f is not None]


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                [True, "a", 1, 1.5, None, [1, 2], [1, 2, 3], ["x"], [{"k": 1}], [{"k": "v"}], []]
            ),
            min_size=1,
            max_size=5,
        ),
        min_size=1,
        max_size=12,
    )
)
def test_every_record_is_accepted_or_refused_once_whatever_types_come(bodies: list[list[Any]]) -> None:
    d = decoder()
    for values in bodies:
        decoded = send(d, values)
        assert decoded.accepted + decoded.rejected.count == len(values)
        assert len({one.index for one in decoded.rejected.listed}) == decoded.rejected.count


# ---- restarts ----------------------------------------------------------------------------------------------


def reopened(book: SchemaBook, declared: dict[str, str] | None = None) -> SchemaBook:
    due = book.due(1)
    book.saved(due)
    return SchemaBook({"m": declared or {}}, notes=due.notes.put)


def test_weights_survive_a_restart() -> None:
    d = decoder()
    send(d, ["north"] * 600)
    send(d, [True] * 5)
    d = decoder(reopened(d._book))
    assert send(d, [True] * 100).rejected.count == 100
    d = decoder(reopened(d._book))
    assert not send(d, ["south"]).rejected


def test_type_that_changed_back_is_the_one_after_a_restart() -> None:
    d = decoder()
    send(d, [True])
    send(d, ["north"])
    send(d, [False] * 9)
    assert stored(send(d, [True])) == [True]
    d = decoder(reopened(d._book))
    assert dict(d._book.columns("records", "m"))[CLINIC] == pa.bool_()


def test_settled_columns_stay_settled_after_a_restart() -> None:
    d = decoder()
    send(d, ["north"] * SETTLED)
    d = decoder(reopened(d._book))
    assert d._book.open_columns("records", "m") == []
    assert send(d, [True] * 2000).rejected.count == 2000


def test_nothing_changed_needs_no_note() -> None:
    d = decoder()
    send(d, ["north"] * 3)
    d._book.saved(d._book.due(1))
    assert not d._book.due(2).notes
    send(d, ["north"])
    assert d._book.due(3).notes  # the fourth doubles
    send(d, [None])
    d._book.saved(d._book.due(4))
    assert not d._book.due(5).notes


def test_notes_on_columns_are_kept_apart_from_those_of_calls(tmp_path: Path) -> None:
    d = decoder()
    send(d, [True])
    with SqliteJournal(tmp_path / "journal.db") as journal:
        journal.append([], 1, notes=d._book.due(1).notes)
        assert journal.notes() == []
        book = SchemaBook({"m": {}}, notes=journal.notes(of_columns=True))
    assert book.columns("records", "m") == d._book.columns("records", "m")


# ---- rare fields -------------------------------------------------------------------------------------------


def test_invented_fields_share_one_column_and_are_read_there() -> None:
    d = decoder(max_columns=20)
    for n in range(500):
        assert not send(d, [n], field=f"x{n}").rejected
    assert len(d._book.columns("records", "m")) <= 21
    decoded = send(d, [7], field="x499")
    [block] = decoded.blocks
    batch = Batch.from_arrow(block.table)
    assert json.loads(batch.column("attrs.__rest__")[0]) == {"x499": 7}
    assert batch.field("attrs.x499").tolist() == [7]
    assert batch.field("attrs.x0").tolist() == [None]


def test_field_that_is_not_rare_takes_the_column_of_an_invented_one() -> None:
    d = decoder(max_columns=20)
    for n in range(500):
        send(d, [n], field=f"x{n}")
    for _ in range(PROVEN + 1):
        decoded = send(d, ["north"])
        assert not decoded.rejected
    assert stored(decoded) == ["north"]
    assert len(d._book.columns("records", "m")) <= 21
    for n in range(500, 600):  # newcomers do not take it back
        send(d, [n], field=f"x{n}")
    assert CLINIC in d._book.columns("records", "m")
    assert "inputs.age" in d._book.columns("records", "m")


def test_many_real_fields_after_invented_ones_all_get_columns() -> None:
    d = decoder(max_columns=60)
    sent(d, [{"model": "m", "inputs": {"age": 1}, "attrs": {f"x{n}": n for n in range(500)}}])
    real = {f"real{n}": float(n) for n in range(40)}
    for _ in range(PROVEN + 2):
        decoded = sent(d, [{"model": "m", "inputs": real}])
        assert not decoded.rejected
    [block] = decoded.blocks
    assert [block.table.column(f"inputs.real{n}")[0].as_py() for n in range(40)] == list(real.values())


def test_rare_fields_of_each_part_and_kind_are_json() -> None:
    d = decoder(max_columns=1)
    record = {
        "model": "m",
        "inputs": {"age": 1, "big": {"deep": [1, [2, "x"]]}},
        "outputs": {"label": "a"},
        "attrs": {"flag": True, "__rest__": '{"own": 1}', "no": None},
    }
    [block] = sent(d, [record, {"model": "m", "inputs": {"age": 2}}]).blocks
    batch = Batch.from_arrow(block.table)
    assert batch.field("inputs.big.deep").tolist() == [[1, [2, "x"]], None]
    assert batch.field("outputs.label").tolist() == ["a", None]
    assert json.loads(batch.column("attrs.__rest__")[0]) == {"flag": True, "own": 1}
    assert Batch.from_arrow(block.table).to_arrow().equals(block.table)


def test_rare_fields_that_json_cannot_hold_are_refused_alone() -> None:
    d = decoder(max_columns=1)
    send(d, [1])
    good = '{"model":"m","inputs":{"age":1},"attrs":{"a":1}}'
    body = f"[{good.replace('1}}', 'NaN}}')},{good}]".encode()
    decoded = decode_body(d, body, kind="records", form="json", received_us=RECEIVED)
    assert [(one.index, one.field) for one in decoded.rejected.listed] == [(0, "attrs.a")]
    assert "limits.columns" in decoded.rejected.listed[0].reason


def test_rare_columns_of_arrow_are_json_too() -> None:
    d = decoder(max_columns=1)
    send(d, [None])
    times = pa.array([0, None], pa.timestamp("us", tz="UTC"))
    batch = Batch.from_arrow(arrow(d, times, name="attrs.seen").blocks[0].table)
    assert batch.field("attrs.seen").tolist() == ["1970-01-01T00:00:00+00:00", None]


def test_names_of_strangers_are_bounded() -> None:
    d = decoder(max_columns=1)
    for n in range(12):
        sent(d, [{"model": "m", "inputs": {"age": 1}, "attrs": {f"x{n}_{m}": m for m in range(900)}}])
    assert len(d._book.rare("records", "m")) <= 4096


def test_key_counts_integers_and_floats_as_one() -> None:
    assert type_key(pa.int64()) == type_key(pa.float64())
    assert type_key(pa.list_(pa.int64())) == type_key(pa.list_(pa.float64()))


def test_rare_fields_of_both_sides_of_a_record_stand_beside_each_other() -> None:
    schema = pa.schema([("id", pa.string()), ("attrs.__rest__", pa.string())])
    sides = SidesBySchema()
    rows = [
        pa.table({"id": ["r"], "partial": [False], "attrs.gone": [3], "attrs.__rest__": ['{"a": 1}']}),
        pa.table({"id": ["r"], "partial": [False], "attrs.__rest__": ['{"b": 2}']}),
    ]
    target = schema.append(pa.field("partial", pa.bool_()))
    for digest, table in enumerate(rows):
        [batch] = table.to_batches()
        sides.add(str(digest), batch)
    made = JoinedRecord("request", SideRow("0", 0), SideRow("1", 0))
    [block], unfit = sides.blocks([made], "m", target, "digest")
    assert unfit == 0
    assert json.loads(block.table.column("attrs.__rest__")[0].as_py()) == {"a": 1, "b": 2, "gone": 3}
