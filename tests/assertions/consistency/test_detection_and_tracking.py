"""Library families detection and tracking."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch, Checker, Consistency, MotionTracker
from outrider.assertions.library import (
    class_size,
    duplicate_boxes,
    fit_class_sizes,
    jump,
    multibox,
)
from outrider.assertions.library.detection import overlapping

START = datetime(2026, 1, 5, 10, tzinfo=UTC)


def box(left: float, **fields: Any) -> dict[str, Any]:
    return {"left": left, "top": 0.0, "width": 20.0, "height": 40.0, "class": "car", "score": 0.9} | fields


def frames(*lists: list[dict[str, Any]]) -> Batch:
    rows = [
        {"entity": "c", "ts": START + timedelta(seconds=n / 10), "outputs": {"detections": boxes}}
        for n, boxes in enumerate(lists)
    ]
    return Batch.from_records(rows, model="m")


def test_three_boxes_on_one_another_are_found_and_a_chain_is_not() -> None:
    batch = frames(
        [box(0), box(2), box(4)], [box(0), box(2)], [box(0), box(6), box(12)], [box(0), box(500), box(900)]
    )
    assert multibox(overlap=0.5).severities(batch).tolist() == [3.0, 0.0, 0.0, 0.0]


def test_of_two_boxes_on_one_object_the_less_sure_is_removed() -> None:
    found = duplicate_boxes(score="score").findings(frames([box(0, score=0.5), box(1)], [box(0)]))
    assert found.row.tolist() == [0]
    assert found.weak_labels.element.tolist() == [0]
    assert list(found.weak_labels.kind) == ["remove"]


def test_two_classes_on_one_object_count_unless_the_class_must_be_the_same() -> None:
    batch = frames([box(0), box(1, **{"class": "van"})], [box(0), box(1)])
    assert duplicate_boxes().severities(batch).tolist() == [1.0, 1.0]
    assert duplicate_boxes(same="class").severities(batch).tolist() == [0.0, 1.0]


def test_a_size_no_car_has_is_found() -> None:
    validated = frames([box(0, width=w, height=20.0) for w in (30.0, 40.0, 50.0)])
    judge = class_size(fit_class_sizes(validated, least=3))
    assert fit_class_sizes(validated) == {}
    odd = frames([box(0, width=10.0, height=20.0)], [box(0, width=40.0, height=20.0)])
    assert (judge.severities(odd) > 0).tolist() == [True, False]


def test_an_id_that_changes_its_object_jumps() -> None:
    batch = frames([box(0, track=1)], [box(3, track=1)], [box(900, track=1)], [box(903, track=1)])
    assert Checker([jump(id="track")]).check(batch).row.tolist() == [2]


def test_pairs_agree_with_a_slow_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.assertions.library.detection.PAIRS_AT_ONCE", 7)
    rng = np.random.default_rng(0)
    picture = np.sort(rng.integers(0, 6, 30))
    sides = np.column_stack([rng.uniform(0, 20, (30, 2)), rng.uniform(5, 20, (30, 2))])
    from outrider.assertions.consistency.boxes import overlaps

    near = overlaps(sides, sides) >= 0.3
    expected = {
        (one, other)
        for one in range(30)
        for other in range(one + 1, 30)
        if picture[one] == picture[other] and near[one, other]
    }
    pairs = overlapping(sides, picture, 0.3)
    assert set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == expected


def test_frames_without_boxes_are_judged() -> None:
    batch = frames([], [box(0)], [])
    for judge in (multibox(), duplicate_boxes(), class_size({"car": {"height": (1, 100)}})):
        assert judge.severities(batch).tolist() == [0.0, 0.0, 0.0]


def test_lists_that_were_always_empty_raise_nothing() -> None:
    batch = frames([], [], [])  # nobody has said which fields there are
    boxes = batch.explode("outputs.detections")
    assert boxes.reduce(boxes.column("outputs.detections.score") < 0.5, "any").tolist() == [False] * 3
    rules = [
        Consistency(
            explode="outputs.detections", tracker=MotionTracker(), within=0.5, score="score", name="moving"
        ),
        Consistency(explode="outputs.detections", id="id", attributes=["kind"], within=0.5, name="named"),
    ]
    found = Checker([*rules, multibox(), duplicate_boxes(score="score")]).check(batch)
    assert sum(found.counts.values()) == 0


def corner(left: float) -> dict[str, Any]:
    return {"x1": left, "y1": 0.0, "x2": left + 20.0, "y2": 40.0, "class": "car", "track": "7", "score": 0.9}


@pytest.mark.parametrize(
    "judge",
    [
        multibox(),
        duplicate_boxes(),
        class_size({"car": {"height": (1.0, 9.0)}}),
        jump(id="track"),
        *Consistency(
            within=1.0, tracker=MotionTracker(), explode="outputs.detections", score="score"
        ).assertions,
    ],
    ids=lambda judge: judge.name,
)
def test_assertion_of_boxes_refuses_fields_that_are_no_sides_by_name(judge: Any) -> None:
    said = r"outputs.detections has no field 'left'; there are class, score, track, x1, .*box=\("
    with pytest.raises(ValueError, match=said):
        judge.findings(frames([corner(0), corner(1)], [corner(2)]))
    assert not judge.findings(frames([], [])).row.tolist()


def test_class_size_refuses_boxes_without_its_class_by_name() -> None:
    nameless = [{name: value for name, value in box(0).items() if name != "class"}]
    with pytest.raises(ValueError, match=r"outputs.detections has no field 'class'; there are height, left"):
        class_size({"car": {"height": (1.0, 9.0)}}).severities(frames(nameless))
    with pytest.raises(ValueError, match="has no field 'class'"):
        duplicate_boxes(same="class").severities(frames(nameless))
