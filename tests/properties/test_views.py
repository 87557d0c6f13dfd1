"""Earlier values and elements of lists agree with slow obvious loops."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions import Batch

entities = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=12)
boxes = st.lists(
    st.none()
    | st.lists(st.fixed_dictionaries({"x": st.integers(0, 9), "label": st.sampled_from("pq")}), max_size=4),
    min_size=1,
    max_size=6,
)
KIND = pa.list_(pa.struct([("x", pa.int64()), ("label", pa.string())]))


@given(entities, st.integers(1, 3))
def test_previous_is_the_same_entitys_earlier_value(entity: list[str | None], steps: int) -> None:
    rows = len(entity)
    batch = Batch.from_columns(
        {
            "entity": np.array(entity, dtype=object),
            "inputs.whole": np.arange(rows),
            "inputs.real": np.arange(rows) / 2,
            "inputs.text": [f"t{row}" for row in range(rows)],
            "inputs.flag": np.arange(rows) % 2 == 0,
            "inputs.image": np.arange(rows * 2, dtype=np.float32).reshape(rows, 2),
        },
        model="m",
    )
    expected = []
    for row in range(rows):
        own = [r for r in range(row) if entity[r] is not None and entity[r] == entity[row]]
        expected.append(own[-steps] if len(own) >= steps else -1)
    assert batch.previous_rows(steps).tolist() == expected
    assert batch.previous("inputs.whole", steps, null=-1).tolist() == expected
    real = batch.previous("inputs.real", steps)
    assert [-1 if np.isnan(v) else v * 2 for v in real.tolist()] == expected
    text = batch.previous("inputs.text", steps).tolist()
    assert text == [None if row < 0 else f"t{row}" for row in expected]
    flag = batch.previous("inputs.flag", steps, null=False).tolist()
    assert flag == [row >= 0 and row % 2 == 0 for row in expected]
    image = batch.previous("inputs.image", steps)
    assert [-1 if np.isnan(v[0]) else v[0] / 2 for v in image.tolist()] == expected


@given(boxes, st.sampled_from(["max", "sum", "mean", "any"]))
def test_elements_and_their_severities_as_a_loop_has_them(
    lists: list[list[dict[str, Any]] | None], how: Any
) -> None:
    batch = Batch.from_columns(
        {"id": [f"r{n}" for n in range(len(lists))], "outputs.boxes": pa.array(lists, KIND)}, model="m"
    )
    for start in (0, len(lists) // 2):  # a slice has an offset
        part, own = batch.slice(start), lists[start:]
        elements = part.explode("outputs.boxes")
        loop = [(row, place, box) for row, found in enumerate(own) for place, box in enumerate(found or [])]
        assert elements.parent.tolist() == [row for row, _, _ in loop]
        assert elements.element.tolist() == [place for _, place, _ in loop]
        assert elements.column("outputs.boxes.x").tolist() == [box["x"] for _, _, box in loop]
        assert elements.column("outputs.boxes.label").tolist() == [box["label"] for _, _, box in loop]
        assert elements.keys.tolist() == [f"r{start + row}" for row, _, _ in loop]
        severity = elements.column("outputs.boxes.x").astype(float)
        slow = []
        for found in own:
            values = [float(box["x"]) for box in found or []]
            told = {"max": max(values, default=0.0), "sum": sum(values), "any": any(values)}
            slow.append(told[how] if how != "mean" else sum(values) / max(len(values), 1))
        assert elements.reduce(severity, how).tolist() == slow
