"""Consistency: attributes, flicker, appearances, corrections; the same however a stream is cut."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions import (
    Assertion,
    Batch,
    Calibration,
    Checker,
    Consistency,
    MotionTracker,
    load_assertions,
)
from outrider.assertions.consistency import Check
from outrider.assertions.windows.state import WindowState
from tests.soak import examples

START = datetime(2026, 1, 5, 10, tzinfo=UTC)
ALL: tuple[Check, ...] = ("attributes", "flicker", "appear")
CHANCE = Calibration(scores=(0.3, 0.7, 0.9), chances=(0.1, 0.5, 0.95))
BOX = {"top": 0.0, "width": 10.0, "height": 20.0, "score": 0.9, "kind": "car"}


def records(labels: Sequence[Any], *, step_s: float = 1.0, entity: str = "p") -> Batch:
    rows = [
        {
            "id": f"r{n}",
            "entity": entity,
            "ts": START + timedelta(seconds=n * step_s),
            "outputs": {"label": label},
        }
        for n, label in enumerate(labels)
    ]
    return Batch.from_records(rows, model="m")


def frames(boxes: Sequence[Sequence[dict[str, Any]]], *, step_s: float = 0.1) -> Batch:
    rows = [
        {
            "id": f"f{n}",
            "entity": "cam",
            "ts": START + timedelta(seconds=n * step_s),
            "outputs": {"boxes": found},
        }
        for n, found in enumerate(boxes)
    ]
    return Batch.from_records(rows, model="m")


def box(left: float, track: int = 1, **fields: Any) -> dict[str, Any]:
    return {"left": left, "track": track, **BOX, **fields}


def run(
    judge: Assertion, batches: Sequence[Batch], *, ends: bool = True, restarts: bool = False
) -> list[dict[str, Any]]:
    """Findings of a stream of batches by record id, with the weak labels."""
    assert judge.window is not None
    state = WindowState(judge.window)
    lines = []
    for number, batch in enumerate(batches):
        if restarts:
            state = WindowState.restore(judge.window, state.checkpoint())
        for view in state.update(batch, ends=ends and number == len(batches) - 1):
            found, keys = judge.findings(view.batch), view.batch.keys
            labels = found.weak_labels
            for index, row in enumerate(found.row.tolist()):
                mine = np.flatnonzero(labels.finding == index).tolist()
                lines.append(
                    {
                        "record": keys[row],
                        "subject": found.subject[index],
                        "severity": found.severity[index],
                        "members": [keys[member] for member in found.members[index]],
                        "evidence": found.evidence[index],
                        "weak_labels": [
                            (
                                keys[labels.row[one]],
                                labels.kind[one],
                                labels.field[one],
                                int(labels.element[one]),
                                repr(labels.value[one]),
                                float(labels.confidence[one]),
                            )
                            for one in mine
                        ],
                    }
                )
    return sorted(lines, key=repr)


def part(consistency: Consistency, name: str) -> Assertion:
    return next(judge for judge in consistency.assertions if judge.name.endswith(f".{name}"))


def test_a_class_that_goes_and_comes_back_is_flicker_and_is_replaced() -> None:
    rule = Consistency(id="outputs.label", within=30, corrects=["flicker"])
    (found,) = run(part(rule, "flicker"), [records("NNANN", step_s=10)])
    assert found["members"] == ["r2"]
    assert found["subject"] == "p/N/flicker/r2"
    assert found["weak_labels"] == [("r2", "replace", "outputs.label", -1, "'N'", 0.75)]


def test_a_class_gone_for_longer_than_within_is_no_flicker() -> None:
    assert not run(part(Consistency(id="outputs.label", within=15), "flicker"), [records("NNANN", step_s=10)])


def test_a_class_there_for_a_moment_appears_and_is_replaced_by_what_is_around_it() -> None:
    rule = Consistency(id="outputs.label", within=3, corrects=["appear"])
    (found,) = run(part(rule, "appear"), [records("NNNNAANNNN")])
    assert found["members"] == ["r4", "r5"]
    assert [label[:5] for label in found["weak_labels"]] == [
        (key, "replace", "outputs.label", -1, "'N'") for key in ("r4", "r5")
    ]


def test_what_was_there_at_the_first_frame_or_still_is_at_the_last_does_not_appear() -> None:
    assert not run(part(Consistency(id="outputs.label", within=3), "appear"), [records("AANNNNNNBB")])


def test_an_open_stream_does_not_decide_what_may_go_on() -> None:
    judge = part(Consistency(id="outputs.label", within=3), "appear")
    assert not run(judge, [records("NNNNAAN")], ends=False)
    assert len(run(judge, [records("NNNNAAN")])) == 1
    assert len(run(judge, [records("NNNNAANNNN")], ends=False)) == 1


def test_a_gap_is_filled_by_the_box_in_between() -> None:
    seen = [[box(10.0 * n)] if n not in (3, 4) else [] for n in range(10)]
    rule = Consistency(explode="outputs.boxes", id="track", within=0.5, corrects=["flicker"])
    (found,) = run(part(rule, "flicker"), [frames(seen)])
    assert found["members"] == ["f3", "f4"]
    lefts = [eval(label[4])["left"] for label in found["weak_labels"]]
    assert lefts == pytest.approx([30.0, 40.0])
    assert {label[1] for label in found["weak_labels"]} == {"add"}


def test_the_users_interpolation_is_used() -> None:
    seen = [[box(10.0 * n)] if n != 3 else [] for n in range(10)]
    rule = Consistency(
        explode="outputs.boxes",
        id="track",
        within=0.5,
        corrects=["flicker"],
        interpolate=lambda before, after, fraction: {"at": fraction},
    )
    (found,) = run(part(rule, "flicker"), [frames(seen)])
    assert found["weak_labels"][0][4] == "{'at': 0.5}"


def test_a_blip_is_removed() -> None:
    seen = [[box(10.0)] + ([box(500.0, track=2)] if n in (8, 9) else []) for n in range(20)]
    rule = Consistency(explode="outputs.boxes", id="track", within=0.5, corrects=["appear"])
    (found,) = run(part(rule, "appear"), [frames(seen)])
    assert [label[:4] for label in found["weak_labels"]] == [
        ("f8", "remove", "outputs.boxes", 1),
        ("f9", "remove", "outputs.boxes", 1),
    ]


def test_the_minority_value_gets_the_majority_with_its_share() -> None:
    seen = [[box(10.0, kind="van" if n == 5 else "car")] for n in range(12)]
    rule = Consistency(
        explode="outputs.boxes", id="track", attributes=["kind"], within=0.3, corrects=["attributes"]
    )
    (found,) = run(part(rule, "kind"), [frames(seen)])
    (label,) = found["weak_labels"]
    assert label[:4] == ("f5", "replace", "outputs.boxes", 0)
    assert eval(label[4])["kind"] == "car"
    assert label[5] == pytest.approx(6 / 7)


def test_a_lasting_change_is_found_once_without_correction() -> None:
    seen = [[box(10.0, kind="van" if n >= 6 else "car")] for n in range(12)]
    rule = Consistency(
        explode="outputs.boxes", id="track", attributes=["kind"], within=0.3, corrects=["attributes"]
    )
    (found,) = run(part(rule, "kind"), [frames(seen)])
    assert found["record"] == "f6"
    assert found["weak_labels"] == []


def test_plain_values_of_a_list_are_objects() -> None:
    seen = [["mug", "pen"] if n not in (3, 4) else ["pen"] for n in range(8)]
    rows = [
        {
            "id": f"f{n}",
            "entity": "desk",
            "ts": START + timedelta(seconds=n / 10),
            "outputs": {"things": found},
        }
        for n, found in enumerate(seen)
    ]
    rule = Consistency(explode="outputs.things", id="outputs.things", within=0.5, corrects=["flicker"])
    (found,) = run(part(rule, "flicker"), [Batch.from_records(rows, model="m")])
    assert found["subject"] == "desk/mug/flicker/f3"
    assert [label[1:5] for label in found["weak_labels"]] == [("add", "outputs.things", -1, "'mug'")] * 2


def test_columns_that_no_record_has_are_null() -> None:
    empty = frames([[], [], []])
    for rule in RULES:
        for judge in rule.assertions:
            assert run(judge, [empty]) == []
    rule = Consistency(id="outputs.other", attributes=["outputs.third"], score="outputs.score", within=1)
    for judge in rule.assertions:
        assert run(judge, [records("NNANN")]) == []


def test_a_tracker_tells_objects_apart() -> None:
    seen = [[box(5.0 * n), box(400.0 - 5 * n)] for n in range(20)]
    seen[7] = seen[7][1:]
    rule = Consistency(explode="outputs.boxes", tracker=MotionTracker(), within=0.5)
    (found,) = run(part(rule, "flicker"), [frames(seen)])
    assert found["subject"] == "cam/f0.0/flicker/f7"


def test_only_gaps_of_trusted_objects_are_flicker_and_only_doubtful_ones_appear() -> None:
    seen = [[box(10.0, score=0.9), box(300.0, track=2, score=0.6)] if n != 9 else [] for n in range(20)]
    seen[3].append(box(600.0, track=3, score=0.95))
    seen[3].append(box(800.0, track=4, score=0.55))
    rule = Consistency(explode="outputs.boxes", id="track", score="score", trusted=0.8, within=0.5)
    assert [one["subject"] for one in run(part(rule, "flicker"), [frames(seen)])] == ["cam/1/flicker/f9"]
    assert [one["subject"] for one in run(part(rule, "appear"), [frames(seen)])] == ["cam/4/appear/f3"]


def faulty() -> Batch:
    """A gap, a blip, and a class that differs once."""
    seen = [[box(10.0, kind="van" if n == 5 else "car")] if n != 9 else [] for n in range(20)]
    seen[14].append(box(600.0, track=2, score=0.3))
    return frames(seen)


def test_consistency_without_calibration_flags_and_corrects_nothing() -> None:
    rules: list[dict[str, Any]] = [{}, {"score": "score", "trusted": 0.85}]
    for more in rules:
        rule = Consistency(explode="outputs.boxes", id="track", attributes=["kind"], within=0.5, **more)
        flags = Checker([rule]).check(faulty())
        assert flags.counts == {"boxes.kind": 1, "boxes.flicker": 1, "boxes.appear": 1}
        assert len(flags.weak_labels) == 0


def test_consistency_with_calibration_corrects_all_but_appearances() -> None:
    rule = Consistency(
        explode="outputs.boxes",
        id="track",
        attributes=["kind"],
        within=0.5,
        score="score",
        calibration=CHANCE,
    )
    flags = Checker([rule]).check(faulty())
    assert flags.counts == {"boxes.kind": 1, "boxes.flicker": 1, "boxes.appear": 1}
    assert list(flags.weak_labels.kind) == ["replace", "add"]
    assert flags.weak_labels.confidence[1] == pytest.approx(0.95)
    asked = Checker([replace(rule, corrects=["appear"])]).check(faulty())
    assert list(asked.weak_labels.kind) == ["remove"]


@pytest.mark.parametrize(
    ("score", "expected"), [(0.3, ["appear"]), (0.7, []), (0.9, ["flicker"]), (None, [])]
)
def test_consistency_calibrated_is_silent_between_trusted_and_one_minus_it(
    score: float | None, expected: list[str]
) -> None:
    seen = [[box(10.0, score=score)] if n in (8, 10) else [] for n in range(20)]
    seen[1].append(box(600.0, track=2))  # the field has a type
    rule = Consistency(
        explode="outputs.boxes", id="track", within=0.5, score="score", calibration=CHANCE, corrects=ALL
    )
    found = [name for name in ("flicker", "appear") if run(part(rule, name), [frames(seen)])]
    found = [name for name in found if f"cam/1/{name}" in str(run(part(rule, name), [frames(seen)]))]
    assert found == expected


def test_consistency_calibrated_takes_scores_of_any_unit() -> None:
    seen = [[box(5.0 * n, score=3.1), box(400.0 - 5 * n, score=-0.4)] for n in range(20)]
    seen[7] = []
    unbounded = Calibration(scores=(-0.5, 0.0, 3.0), chances=(0.2, 0.6, 0.97))
    rule = Consistency(
        explode="outputs.boxes", tracker=MotionTracker(), within=0.5, score="score", calibration=unbounded
    )
    (found,) = run(part(rule, "flicker"), [frames(seen)])
    (label,) = found["weak_labels"]
    assert eval(label[4])["left"] == pytest.approx(35.0)
    assert label[5] == pytest.approx(0.97)


@st.composite
def streams(draw: st.DrawFn) -> tuple[Batch, list[Batch]]:
    """Frames of two cameras with objects that come, go and change, as one batch and as several.

    Each batch has the schema of its own records: frames without a box tell nothing of the type of one.
    """
    count = draw(st.integers(4, 40))
    seed = draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    rows, time = [], 0.0
    for n in range(count):
        time += float(rng.choice([0.0, 0.1, 0.1, 0.2, 0.9]))
        found = [
            box(
                float(60 * thing + 3 * n + rng.integers(-2, 3)),
                track=int(thing),
                kind=str(rng.choice(["car", "van"], p=[0.85, 0.15])),
                score=float(rng.choice([0.3, 0.7, 0.9])),
            )
            for thing in range(3)
            if rng.random() < 0.7
        ]
        rows.append(
            {
                "id": f"f{n}",
                "entity": str(rng.choice(["a", "b"])),
                "ts": START + timedelta(seconds=time),
                "outputs": {"boxes": found},
            }
        )
    cuts = sorted(draw(st.lists(st.integers(1, count - 1), max_size=8)))
    pieces = [rows[low:high] for low, high in pairwise([0, *cuts, count]) if low < high]
    return Batch.from_records(rows, model="m"), [Batch.from_records(piece, model="m") for piece in pieces]


BOXES: dict[str, Any] = {"explode": "outputs.boxes", "attributes": ["kind"], "corrects": ALL}
RULES = [
    Consistency(id="track", within=0.4, **BOXES),
    Consistency(id="track", within=0.4, score="score", trusted=0.6, **BOXES),
    Consistency(tracker=MotionTracker(), within=0.3, score="score", **BOXES),
    Consistency(tracker=MotionTracker(), within=0.3, score="score", calibration=CHANCE, **BOXES),
]


@settings(max_examples=examples(12))
@given(streams(), st.sampled_from(RULES))
def test_any_split_gives_the_same_findings(stream: tuple[Batch, list[Batch]], rule: Consistency) -> None:
    whole, pieces = stream
    again = replace(rule)  # a tracker that remembers nothing
    for judge, fresh in zip(rule.assertions, again.assertions, strict=True):
        expected = run(judge, [whole])
        assert run(judge, pieces) == expected
        assert run(fresh, pieces, restarts=True) == expected


@settings(max_examples=examples(8))
@given(streams(), st.sampled_from(RULES), st.integers(0, 2**20))
def test_records_out_of_order_within_the_lateness_change_nothing(
    stream: tuple[Batch, list[Batch]], rule: Consistency, seed: int
) -> None:
    whole, _ = stream
    seconds = whole.column("ts").astype("datetime64[us]").astype(np.int64) / 1e6
    ties = pd.Series(seconds).duplicated(keep=False).to_numpy()
    whole = whole.take(~ties)  # records of one time are judged in order of arrival
    seconds = seconds[~ties]
    late = np.argsort(seconds + np.random.default_rng(seed).uniform(0, 0.3, len(seconds)), kind="stable")
    patient = replace(rule, lateness_s=0.3)
    for judge in patient.assertions:
        shuffled = whole.take(late)
        pieces = [shuffled.slice(row, 3) for row in range(0, shuffled.rows, 3)]
        assert run(judge, pieces or [whole]) == run(judge, [whole])


def test_a_stream_of_a_checker_gives_the_flags_of_the_whole() -> None:
    seen = [[box(5.0 * n, kind="van" if n == 30 else "car")] if n % 9 else [] for n in range(60)]
    whole = frames(seen)
    checker = Checker([Consistency(explode="outputs.boxes", id="track", attributes=["kind"], within=0.3)])
    stream = checker.stream()
    flags = []
    for row in range(whole.rows):
        flags.append(stream.check(whole.slice(row, 1)))
        stream = checker.stream(stream.checkpoint())
    flags.append(stream.finish())
    subjects = sorted(subject for part in flags for subject in part.subject.tolist())
    assert subjects == sorted(checker.check(whole).subject.tolist())
    assert len(subjects) == 7


def test_a_restarted_tracker_gives_the_same_findings() -> None:
    seen = [[box(5.0 * n)] if n % 9 else [] for n in range(60)]
    fresh = [
        Consistency(explode="outputs.boxes", tracker=MotionTracker(), within=0.3).assertions[0]
        for _ in range(2)
    ]
    whole = frames(seen)
    warm = run(fresh[0], [whole.slice(n, 1) for n in range(whole.rows)])
    assert warm
    assert warm == run(fresh[1], [whole])


def test_assertions_are_the_same_each_time_and_have_revisions_of_their_settings(tmp_path: Any) -> None:
    rule = Consistency(id="outputs.label", within=30)
    assert rule.assertions is rule.assertions
    other = Consistency(id="outputs.label", within=31)
    assert {judge.revision for judge in rule.assertions}.isdisjoint(
        judge.revision for judge in other.assertions
    )
    file = tmp_path / "mine.py"
    file.write_text(
        "from outrider.assertions import Consistency\n\nsteady = Consistency(id='outputs.label', within=30)\n"
    )
    loaded = load_assertions(file)
    assert [judge.name for judge in loaded] == ["label.flicker", "label.appear"]
    assert [judge.revision for judge in loaded] == [judge.revision for judge in rule.assertions]


def test_a_checker_takes_it() -> None:
    assert Checker([Consistency(id="outputs.label", within=30)]).check(records("NNANN")).counts == {
        "label.flicker": 1,
        "label.appear": 1,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"within": 0.0, "id": "outputs.label"},
        {"within": 1.0},
        {"within": 1.0, "id": "track", "tracker": MotionTracker()},
        {"within": 1.0, "tracker": MotionTracker()},
        {"within": 1.0, "id": "outputs.label", "checks": ["flickr"]},
        {"within": 1.0, "id": "outputs.label", "corrects": ["flickr"]},
        {"within": 1.0, "id": "outputs.label", "calibration": CHANCE},
        {"within": 1.0, "id": "outputs.label", "score": "s", "calibration": CHANCE, "trusted": 1.1},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"within|id|tracker|checks|score=|trusted"):
        Consistency(**wrong)
