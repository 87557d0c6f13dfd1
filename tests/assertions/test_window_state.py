from datetime import UTC, datetime, timedelta

import pyarrow as pa

from outrider.assertions import Batch, Window
from outrider.assertions.window import WindowState

START = datetime(2026, 1, 5, 10, tzinfo=UTC)


def frames(*seconds: float) -> Batch:
    """Records of one entity, received at these times."""
    received = pa.array([START + timedelta(seconds=s) for s in seconds], pa.timestamp("us", tz="UTC"))
    return Batch.from_columns(
        {"entity": ["e"] * len(seconds), "received": received, "inputs.s": list(seconds)}, model="m"
    )


def test_context_of_an_entity_does_not_depend_on_how_the_stream_is_cut() -> None:
    seen = []
    for parts in ([frames(0.5), frames(1.4)], [frames(0.5, 1.4)]):
        state = WindowState(Window(rows=3, idle_s=1.0))
        state.update(frames(-0.3))
        views = [state.update(part)[0] for part in parts]
        seen.append(views[-1].column("inputs.s").tolist())
    assert seen == [[-0.3, 0.5, 1.4]] * 2


def test_an_entity_silent_for_longer_than_idle_starts_anew() -> None:
    state = WindowState(Window(rows=3, idle_s=1.0))
    state.update(frames(0.0, 0.9))
    assert state.update(frames(2.0))[0].column("inputs.s").tolist() == [2.0]


def views(by: str, *batches: Batch) -> list[tuple[int, list[int]]]:
    state = WindowState(Window(by=by, rows=3, columns=("inputs.s",)))
    return [(view.rows, positions.tolist()) for view, positions in map(state.update, batches)]


def test_a_window_over_an_attribute_keeps_that_attribute() -> None:
    batch = frames(0.0).with_columns({"attrs.camera": ["left"]})
    assert views("attrs.camera", batch, batch) == [(1, [0]), (2, [0])]


def test_records_without_the_column_that_names_the_entity_are_alone() -> None:
    assert views("attrs.camera", frames(0.0, 0.1), frames(0.2)) == [(2, [0, 1]), (1, [0])]


def test_numbered_entities_may_be_null() -> None:
    batch = frames(0.0, 0.1, 0.2).with_columns({"attrs.camera": pa.array([7, None, 7])})
    assert views("attrs.camera", batch, batch) == [(3, [0, 2, 1]), (5, [0, 2, 1])]
