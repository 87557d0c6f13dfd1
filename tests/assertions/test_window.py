"""WindowState: what it keeps, what it forgets, and which columns can name an entity."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch, Window
from outrider.assertions.window import WindowState

START = datetime(2026, 1, 5, tzinfo=UTC)


def frames(entity: list[Any], at_s: float = 0.0, **columns: list[Any]) -> Batch:
    values = {f"inputs.{name}": column for name, column in columns.items()} or {"inputs.x": [0] * len(entity)}
    received = [START + timedelta(seconds=at_s)] * len(entity)
    return Batch.from_columns({"entity": entity, "received": received} | values, model="m")


def context(view: Batch) -> int:
    return int((~view.is_new).sum())


@pytest.mark.parametrize("wrong", [{"rows": 1}, {"idle_s": 0.5}])
def test_a_window_without_context_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be >="):
        Window(**wrong)


def test_positions_lead_back_to_the_rows_of_the_batch() -> None:
    view, positions = WindowState(Window()).update(frames(["b", "a", "b"], x=[1, 2, 3]))
    assert view.column("inputs.x").tolist() == [1, 3, 2]
    assert positions.tolist() == [0, 2, 1]


def test_an_entity_silent_for_too_long_starts_anew_as_a_whole() -> None:
    state = WindowState(Window(rows=5, idle_s=10))
    for at_s in (0, 8, 16):
        view, _ = state.update(frames(["a"], at_s))
    assert context(view) == 2  # 16 s after the first, but never silent for more than 10
    view, _ = state.update(frames(["a"], 26))
    assert context(view) == 3
    view, _ = state.update(frames(["a"], 36.5))
    assert context(view) == 0


def test_entities_that_nothing_can_continue_are_forgotten() -> None:
    state = WindowState(Window(idle_s=10))
    state.update(frames(["a", "b"]))
    state.update(frames(["c"], 20))
    assert state._kept is not None
    assert state._kept.column("entity").tolist() == ["c"]


def test_at_most_the_last_rows_of_an_entity_are_kept() -> None:
    state = WindowState(Window(rows=3))
    state.update(frames(["a"] * 10 + ["b"]))
    assert state._kept is not None
    assert sorted(state._kept.column("entity").tolist()) == ["a", "a", "b"]


def test_records_without_an_entity_have_no_context() -> None:
    state = WindowState(Window())
    for _ in range(2):
        view, positions = state.update(frames([None, None]))
        assert view.is_new.all()
        assert sorted(positions.tolist()) == [0, 1]


def test_only_declared_columns_are_kept_and_the_one_that_names_the_entity() -> None:
    state = WindowState(Window(by="inputs.camera", columns=("inputs.x",)))
    batch = frames(["-", "-"], camera=[7, 7], x=[1, 2], image=[[0.0, 1.0], [1.0, 0.0]])
    state.update(batch)
    view, _ = state.update(batch)
    assert context(view) == 2
    assert not view.has("inputs.image")


@pytest.mark.parametrize(
    "values",
    [
        [1, 1, None],
        [1.5, 1.5, None],
        [True, True, None],
        ["u", "u", None],
        [START, START, None],
    ],
)
def test_any_column_can_name_the_entity(values: list[Any]) -> None:
    state = WindowState(Window(by="inputs.key"))
    batch = frames(["-"] * 3, key=values)
    state.update(batch)
    view, _ = state.update(batch)
    assert context(view) == 2


def test_a_batch_without_the_column_has_no_entities() -> None:
    view, _ = WindowState(Window(by="inputs.key")).update(frames(["a"]))
    assert view.is_new.all()


def test_a_new_column_is_null_in_the_context_and_a_dropped_one_absent() -> None:
    state = WindowState(Window())
    state.update(frames(["a"], old=[1], both=[1]))
    view, _ = state.update(frames(["a"], new=[2], both=[2]))
    assert view.is_null("inputs.new").tolist() == [True, False]
    assert view.column("inputs.both").tolist() == [1, 2]
    assert not view.has("inputs.old")


def test_a_changed_type_ends_the_windows() -> None:
    state = WindowState(Window())
    state.update(frames(["a", "b"], x=[1, 1]))
    view, _ = state.update(frames(["a"], x=["one"]))
    assert context(view) == 0
    view, _ = state.update(frames(["a"], x=["two"]))
    assert context(view) == 1


def test_context_is_never_judged_twice() -> None:
    state = WindowState(Window())
    state.update(frames(["a", "b"]))
    view, positions = state.update(frames(["b", "a"]))
    assert np.bincount(positions).tolist() == [1, 1]
    assert view.is_new.sum() == 2
