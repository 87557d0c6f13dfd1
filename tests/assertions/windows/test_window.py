"""Window, Group and WindowState: settings, what is kept and forgotten, what can name an entity."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import Batch, Group, Window
from outrider.assertions.windows.state import View, WindowState, holds

START = datetime(2026, 1, 5, tzinfo=UTC)


def frames(entity: list[Any], at_s: float = 0.0, **columns: list[Any]) -> Batch:
    values = {f"inputs.{name}": column for name, column in columns.items()} or {"inputs.x": [0] * len(entity)}
    received = [START + timedelta(seconds=at_s)] * len(entity)
    id_ = [f"{at_s}-{row}" for row in range(len(entity))]
    return Batch.from_columns({"id": id_, "entity": entity, "received": received} | values, model="m")


def timed(*ts_s: float, received_s: float = 0.0) -> Batch:
    """Records of one entity at these event times."""
    return Batch.from_columns(
        {
            "id": [str(s) for s in ts_s],
            "entity": ["e"] * len(ts_s),
            "ts": [START + timedelta(seconds=s) for s in ts_s],
            "received": [START + timedelta(seconds=received_s)] * len(ts_s),
            "inputs.s": list(ts_s),
        },
        model="m",
    )


def context(view: Batch) -> int:
    return int((~view.is_new).sum())


def only(views: list[View]) -> Batch:
    (view,) = views
    return view.batch


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rows": 1}, "rows must be >= 2, got 1"),
        ({"seconds": 0.0}, "seconds must be > 0"),
        ({"seconds": float("nan")}, "seconds must be > 0"),
        ({"lateness_s": -1.0}, "lateness_s must be >= 0"),
        ({"idle_s": 0.5}, "idle_s must be >= 1 s"),
        ({"idle_s": 5.0, "lateness_s": 5.0}, "idle_s must be > lateness_s, got 5.0 and 5.0"),
        ({"max_entities": 3}, "max_entities must be >= 10"),
    ],
)
def test_settings_that_make_no_window_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Window(**wrong)


@pytest.mark.parametrize(
    ("wrong", "told"), [({"wait_s": 0.1}, "wait_s must"), ({"max_groups": 1}, "max_groups")]
)
def test_settings_that_make_no_group_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Group(**wrong)


def test_one_column_is_still_a_tuple() -> None:
    with pytest.raises(TypeError, match=r"tuple of full column names, got 'inputs\.x'"):
        Window(columns="inputs.x")  # type: ignore[arg-type]
    assert Window(columns=["inputs.x"]) == Window(columns=("inputs.x",))  # type: ignore[arg-type]


def test_rows_default_to_five_and_bound_the_memory_of_seconds() -> None:
    assert (Window().capacity, Window(seconds=3.0).capacity, Window(seconds=3.0, rows=7).capacity) == (
        5,
        10_000,
        7,
    )


# ---- event time ------------------------------------------------------------------------------------------


def test_records_are_judged_in_order_of_event_time() -> None:
    state = WindowState(Window(lateness_s=2.0))
    view = only(state.update(timed(3.0, 1.0, 2.0, 4.0)))
    assert view.column("inputs.s").tolist() == [1.0, 2.0]
    view = only(state.update(timed(6.5)))
    assert view.column("inputs.s")[view.is_new].tolist() == [3.0, 4.0]


def test_a_record_behind_the_watermark_is_counted_not_judged() -> None:
    state = WindowState(Window(lateness_s=1.0))
    assert only(state.update(timed(5.0, 4.0, 3.9))).column("inputs.s").tolist() == [4.0]
    assert (state.late, state.late_positions.tolist()) == (1, [2])


def test_without_lateness_every_record_is_judged_at_once_and_older_ones_are_late() -> None:
    state = WindowState(Window())
    assert only(state.update(timed(1.0, 2.0, 1.5))).column("inputs.s").tolist() == [1.0, 2.0]
    assert state.late == 1


def test_a_silent_entity_gives_up_what_it_held_back() -> None:
    state = WindowState(Window(lateness_s=2.0))
    assert state.update(timed(1.0, 2.0, received_s=0.0)) == []
    assert state.advance(_us(1.9)) == []
    assert only(state.advance(_us(2.0))).column("inputs.s").tolist() == [1.0, 2.0]
    state.update(timed(1.5, received_s=2.5))
    assert state.late == 1


def _us(seconds: float) -> int:
    return round((START + timedelta(seconds=seconds)).timestamp() * 1e6)


def test_other_entities_move_the_clock_too() -> None:
    state = WindowState(Window(lateness_s=2.0))
    state.update(timed(1.0))
    view = only(state.update(frames(["other"], 3.0)))
    assert view.column("entity").tolist() == ["e"]


def test_a_repeated_record_is_ignored() -> None:
    state = WindowState(Window(lateness_s=5.0))
    state.update(timed(1.0, 2.0, 1.0))
    state.update(timed(2.0))
    assert state.duplicates == 2
    assert only(state.finish()).column("inputs.s").tolist() == [1.0, 2.0]


def test_seconds_reach_back_in_event_time() -> None:
    state = WindowState(Window(seconds=1.0))
    state.update(timed(0.0, 0.5, 1.0))
    assert only(state.update(timed(1.6))).column("inputs.s").tolist() == [0.0, 0.5, 1.0, 1.6]
    assert only(state.update(timed(1.7))).column("inputs.s").tolist() == [1.0, 1.6, 1.7]


# ---- entities that end -----------------------------------------------------------------------------------


def test_an_idle_entity_ends_with_a_closing_view() -> None:
    state = WindowState(Window(rows=3))
    state.update(timed(0.0, 1.0, 2.0, 3.0))
    view = only(state.advance(_us(60.0)))
    assert view.column("inputs.s").tolist() == [2.0, 3.0]
    assert (view.is_new.tolist(), view.is_last.tolist()) == ([False, False], [False, True])
    assert (state.entities, state.rows) == (0, 0)


def test_an_entity_that_comes_back_stands_in_a_view_of_its_own() -> None:
    state = WindowState(Window(rows=3, idle_s=10.0))
    state.update(frames(["a", "b"]))
    closing, new = state.update(frames(["a"], 10.0))
    assert closing.batch.is_last.all()
    assert (new.batch.is_new.tolist(), new.positions.tolist()) == ([True], [0])


def test_records_without_an_entity_end_at_once() -> None:
    state = WindowState(Window())
    for at_s in (0.0, 1.0):
        view = only(state.update(frames([None, None], at_s)))
        assert view.is_new.all()
        assert view.is_last.all()
    assert state.entities == 0


def test_beyond_max_entities_the_least_recently_seen_tenth_ends() -> None:
    state = WindowState(Window(max_entities=20))
    state.update(frames([f"e{n}" for n in range(20)]))
    state.update(frames(["e0", "e1"], 0.5))
    views = state.update(frames(["x", "y", "z"], 1.0))
    ended = [name for view in views for name in view.batch.column("entity")[view.batch.is_last]]
    assert sorted(ended) == ["e2", "e3", "e4", "e5"]
    assert (state.entities, state.evicted) == (19, 4)


# ---- groups ----------------------------------------------------------------------------------------------


def test_a_group_is_judged_once_when_its_key_is_silent_sorted_by_key() -> None:
    state = WindowState(Group(by="inputs.frame", wait_s=1.0))
    assert state.update(frames(["-"] * 3, 0.0, frame=[9, 7, 9])) == []
    assert state.update(frames(["-"], 0.5, frame=[7])) == []
    view = only(state.advance(_us(1.5)))
    assert view.column("inputs.frame").tolist() == [7, 7, 9, 9]
    assert view.is_new.all()
    assert view.is_last.tolist() == [False, True, False, True]


def test_a_straggler_begins_another_group() -> None:
    state = WindowState(Group(by="inputs.frame"))
    state.update(frames(["-"], 0.0, frame=[1]))
    state.update(frames(["-"], 3.0, frame=[1]))
    assert only(state.finish()).rows == 1


# ---- memory ----------------------------------------------------------------------------------------------


def test_positions_and_tags_lead_back_to_the_rows_of_the_batch() -> None:
    state = WindowState(Window())
    (view,) = state.update(frames(["b", "a", "b"], x=[1, 2, 3]), np.array([[7, 0], [7, 1], [7, 2]]))
    assert view.batch.column("inputs.x").tolist() == [1, 3, 2]
    assert view.positions.tolist() == [0, 2, 1]
    assert view.tags.tolist() == [[7, 0], [7, 2], [7, 1]]
    (view,) = state.update(frames(["b"], 1.0, x=[4]), np.array([[8, 0]]))
    assert view.positions.tolist() == [-1, -1, 0]
    assert view.tags.tolist() == [[7, 0], [7, 2], [8, 0]]
    with pytest.raises(ValueError, match=r"tags must have shape \(1, 2\)"):
        state.update(frames(["b"], 2.0))


def test_at_most_the_last_rows_of_an_entity_are_kept() -> None:
    state = WindowState(Window(rows=3))
    state.update(frames(["a"] * 10 + ["b"]))
    assert (state.rows, state.entities) == (3, 2)


def test_memory_does_not_grow_with_the_stream() -> None:
    state, sizes = WindowState(Window(rows=3, columns=("inputs.x",), idle_s=20.0)), []
    for step in range(200):
        batch = frames([f"e{(step * 7 + n) % 90}" for n in range(30)], step / 4, x=[step] * 30)
        state.update(batch)
        sizes.append(state.nbytes)
    assert state.rows <= 2 * 90
    assert max(sizes[100:]) < 4 * max(sizes[20:40])


def test_the_context_of_many_small_batches_is_the_one_of_a_large_one() -> None:
    rng = np.random.default_rng(3)
    entity = [f"e{n}" for n in rng.integers(0, 40, 600)]
    whole = frames(entity, x=list(range(600)))
    state, told = WindowState(Window(rows=4)), {}
    for start in range(0, 600, 3):
        for view in state.update(whole.slice(start, 3)):
            before = [view.batch.previous("inputs.x", steps, null=-1) for steps in (1, 2, 3)]
            for row in np.flatnonzero(view.batch.is_new):
                told[int(view.batch.column("inputs.x")[row])] = [int(column[row]) for column in before]
    last: dict[str, list[int]] = {}
    for number, name in enumerate(entity):
        own = last.setdefault(name, [-1, -1, -1])
        assert told[number] == own[::-1]
        last[name] = [*own[1:], number]


def test_only_declared_columns_are_kept_and_the_one_that_names_the_entity() -> None:
    state = WindowState(Window(by="inputs.camera", columns=("inputs.x",)))
    columns: dict[str, list[Any]] = {"camera": [7, 7], "x": [1, 2], "image": [[0.0, 1.0], [1.0, 0.0]]}
    state.update(frames(["-", "-"], 0.0, **columns))
    view = only(state.update(frames(["-", "-"], 1.0, **columns)))
    assert context(view) == 2
    assert not view.has("inputs.image")


@pytest.mark.parametrize(
    "values",
    [
        [1, 1, None],
        [1.5, 1.5, None],
        [0.0, -0.0, float("nan")],
        [True, True, None],
        ["u", "u", None],
        [START, START, None],
        pa.array(["u", "u", None]).dictionary_encode(),
    ],
    ids=str,
)
def test_any_column_can_name_the_entity(values: Any) -> None:
    window = Window(by="inputs.key")
    state = WindowState(window)
    state.update(frames(["-"] * 3, key=values))
    state = WindowState.restore(window, state.checkpoint())
    view = only(state.update(frames(["-"] * 3, 1.0, key=values)))
    assert context(view) == 2


@pytest.mark.parametrize("value", [[1.0, 2.0], ["a", "b"], {"a": 1}])
def test_what_is_no_single_value_cannot_name_an_entity(value: Any) -> None:
    with pytest.raises(ValueError, match=r"by='inputs.key': .* cannot name an entity"):
        WindowState(Window(by="inputs.key")).update(frames(["-"], key=[value]))


def test_a_batch_without_the_column_has_no_entities() -> None:
    view = only(WindowState(Window(by="inputs.key")).update(frames(["a"])))
    assert view.is_new.all()


def test_columns_join_and_absent_ones_are_null() -> None:
    state = WindowState(Window())
    state.update(frames(["a", "b"], old=[1, 1], both=[1, 1], image=[[1.0, 2.0], [3.0, 4.0]]))
    view = only(state.update(frames(["a"], 1.0, new=[2], both=[2])))
    assert view.is_null("inputs.new").tolist() == [True, False]
    assert view.is_null("inputs.old").tolist() == [False, True]
    assert view.is_null("inputs.image").tolist() == [False, True]
    assert view.column("inputs.both").tolist() == [1, 2]
    view = only(state.update(frames(["b"], 2.0, both=[2])))
    assert view.is_null("inputs.new").all()


def test_a_column_that_was_all_null_takes_the_type_it_gets() -> None:
    state = WindowState(Window())
    state.update(frames(["a"], x=[None]))
    state.update(frames(["a"], 1.0, x=[5]))
    view = only(state.update(frames(["a"], 2.0, x=[None])))
    assert view.column("inputs.x", null=-1).tolist() == [-1, 5, -1]


def test_lists_that_grow_keep_what_was_seen() -> None:
    lists: list[list[dict[str, object]]] = [[], [{"a": 1}], [{"a": 2.5}], [{"b": "x"}]]
    state = WindowState(Window(rows=4, columns=("outputs.boxes",)))
    shown: list[list[object]] = []
    for number, boxes in enumerate(lists):
        record = {"id": str(number), "ts": f"2026-01-05T10:00:0{number}Z", "entity": "e"}
        batch = Batch.from_records([record | {"outputs": {"boxes": boxes}}], model="m")
        (view,) = state.update(batch)
        state = WindowState.restore(state.window, state.checkpoint())
        shown.append(view.batch.arrow("outputs.boxes").to_pylist())
    assert shown[1] == [[], [{"a": 1}]]
    assert shown[3] == [[], [{"a": 1.0, "b": None}], [{"a": 2.5, "b": None}], [{"a": None, "b": "x"}]]


def test_a_changed_type_ends_the_entities() -> None:
    state = WindowState(Window())
    state.update(frames(["a", "b"], x=[1, 1]))
    closing, new = state.update(frames(["a"], 1.0, x=["one"]))
    assert sorted(closing.batch.column("entity")[closing.batch.is_last]) == ["a", "b"]
    assert context(new.batch) == 0
    assert context(only(state.update(frames(["a"], 2.0, x=["two"])))) == 1


def test_records_of_another_model_are_refused() -> None:
    state = WindowState(Window())
    state.update(frames(["a"]))
    with pytest.raises(ValueError, match="one model expected, 'm', got 'n'"):
        state.update(Batch.from_columns({"inputs.y": [1]}, model="n"))


def test_a_checkpoint_holds_a_record_as_long_as_its_window_or_a_hash_of_it_does() -> None:
    """The newest two are context; of what is not, hashes tell repeats for as long as they may come."""
    state = WindowState(Window(rows=3, lateness_s=2.0))
    batch = Batch.from_columns(
        {
            "id": list("abcdef"),
            "entity": ["p"] * 6,
            "ts": [at * 1_000_000 for at in range(6)],
            "inputs.x": [1.0] * 6,
        },
        model="m",
    )
    state.update(batch)
    checkpoint = state.checkpoint()
    times = dict(zip("abcdef", batch.column("ts").astype("datetime64[us]").astype(int).tolist(), strict=True))
    held = {id_ for id_ in "abcdef" if holds(checkpoint, [id_], [times[id_]])}
    assert {"e", "f"} <= held < {*"abcdef"}
    assert not holds(checkpoint, ["z"], [times["f"] + 1])
    assert holds(checkpoint, ["z", "f"], [])
    assert not holds(WindowState(Window()).checkpoint(), ["a"], [times["a"]])


def test_a_checkpoint_of_other_settings_is_refused() -> None:
    state = WindowState(Window())
    assert WindowState.restore(Window(), state.checkpoint()).rows == 0
    state.update(frames(["a"]))
    with pytest.raises(ValueError, match="cannot continue as"):
        WindowState.restore(Window(rows=3), state.checkpoint())
