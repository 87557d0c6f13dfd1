from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from outrider.demo.cards import FAULTS
from outrider.demo.figures import OUTPUT_DEPENDENT, RunFacts, criteria, fall, fires, pairs
from outrider.demo.report import as_json
from outrider.demo.truth import FrameAnswer


def answer(number: int, fault: str, phase: str, *, right: bool, first: bool | None = None) -> FrameAnswer:
    first_said = None if first is None else (3 if first else 4)
    name = f"{fault}-{number}"
    return FrameAnswer(
        f"{phase}.{name}", name, name, "cam-1", fault, 3, phase, 3 if right else 5, "2", first=first_said
    )


FLAG = {"assertion": "ink", "revision": "r1", "severity": 0.5}
ORIGIN: dict[str, Any] = {
    "record_id": "faulty.stuck-1",
    "part": "train",
    "label_source": "second look",
    "model_version": "1",
    "flags": [FLAG],
}
CORRECTED: dict[str, Any] = {
    "id": "faulty.stuck-1",
    "before": ORIGIN | {"label_source": "labeller"},
    "after": ORIGIN,
    "labels_before": {"label.label": 5},
    "labels_after": {"label.label": 3},
    "record": {
        "id": "faulty.stuck-1",
        "flags": [FLAG | {"slot": "champion"}],
        "labels": [{"source": "second look"}, {"source": "labeller"}],
    },
}


WATCH: dict[str, Any] = {
    "version": "3",
    "former": "2",
    "began": "2026-11-26T12:00:00.000000Z",
    "ended": "2026-11-26T12:00:06.500000Z",
    "outcome": "rolled_back",
    "by": "watch",
    "records": 400,
    "labelled": 20,
}
HISTORY: list[dict[str, Any]] = [
    {"version": "2", "action": "rolled_back", "by": "watch"},
    {"version": "3", "action": "overridden", "by": "ann"},
    {"version": "2", "action": "promoted", "by": "gate"},
    {"version": "1", "action": "registered", "by": "configuration"},
]
BACK = "the watch rolled the refused candidate, promoted by force, back by itself"


def good_run() -> RunFacts:
    """300 healthy cards and 20 of each fault; a third of the faulty ones right before, two thirds after."""
    answers = [answer(n, "healthy", "final", right=n > 5, first=n > 10) for n in range(300)]
    answers += [
        answer(n, fault, "final", right=n % 3 > 0, first=n % 3 == 0) for fault in FAULTS for n in range(20)
    ]
    answers += [answer(n, "stuck", "faulty", right=False) for n in range(100)]
    verdict: dict[str, Any] = {"candidate": "2", "champion": "1", "promoted": True, "reasons": ["passed"]}
    refused = {"status": "refused", "result": {"candidate": "3", "reasons": ["failed: much"]}}
    return RunFacts(
        answers=answers,
        flags={"faulty": Counter(track=20, ink=50), "final": Counter(track=38, ink=190)},
        precision={"track": (3, 4)},
        judged=len(answers),
        duplicates=0,
        conflicts=0,
        dead_letters=0,
        trained_on={"digits-flagged@1": 2},
        trained_cards=frozenset({"card-1", "card-2"}),
        verdicts=[verdict, verdict | {"candidate": "3", "promoted": False}],
        refused_job=refused,
        promoted="2",
        serving="2",
        labels={"late": 1, "bought": 2, "corrected": 1},
        datasets=[{"dataset": "digits-flagged", "number": 1, "rows": 2, "digest": "00"}],
        deliveries={},
        seconds={},
        first_flag_s=1.0,
        corrected=[CORRECTED],
        watches=[WATCH],
        history=HISTORY,
    )


def failed(facts: RunFacts) -> list[str]:
    return [criterion.name for criterion in criteria(facts) if not criterion.passed]


def test_a_closed_loop_passes_every_criterion() -> None:
    facts = good_run()
    assert failed(facts) == []
    assert as_json(facts)["closed"] is True


def test_the_corrected_row_is_told_with_record_flag_and_labels() -> None:
    said = {criterion.name: criterion.numbers for criterion in criteria(good_run())}
    told = said["a training row leads back to its record and the assertions that flagged it"]
    assert told == "faulty.stuck-1: version 1 flagged by ink 0.5; label 5 → 3"


def test_the_rollback_is_told_with_records_and_seconds() -> None:
    said = {criterion.name: criterion.numbers for criterion in criteria(good_run())}
    assert said[BACK] == (
        "version 3, forced by ann, proven worse than version 2 after 400 records (20 labelled), rolled back "
        "6.5 s behind the promotion; version 2 is champion again"
    )


def test_accuracy_is_paired_on_the_final_frames() -> None:
    by = pairs(good_run().answers)
    assert by["healthy"].before == pytest.approx(289 / 300)
    assert by["healthy"].after == pytest.approx(294 / 300)
    assert (by["faulty"].frames, by["stuck"].frames) == (80, 20)
    assert by["stuck"].before == pytest.approx(7 / 20)
    assert by["stuck"].gain == pytest.approx(6 / 20)


def test_fires_are_counted_per_thousand_records_of_their_phase() -> None:
    facts = good_run()
    rows = {row.assertion: row for row in fires(facts)}
    assert rows["track"].before == pytest.approx(200.0)
    assert rows["track"].after == pytest.approx(100.0)
    assert fall(fires(facts)) == pytest.approx(0.5)
    assert {name for name, row in rows.items() if row.kind == "output"} == set(OUTPUT_DEPENDENT)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"judged": 479}, "every record was judged exactly once"),
        ({"duplicates": 1}, "every record was judged exactly once"),
        ({"dead_letters": 1}, "every record was judged exactly once"),
        ({"trained_cards": frozenset({"healthy-7"})}, "no final card was trained on"),
        ({"trained_cards": frozenset()}, "no final card was trained on"),
        ({"serving": "1"}, "the fine-tuned candidate was promoted, and serves"),
        ({"labels": {"corrected": 2}}, "corrected labels changed their rows in the next dataset version"),
        (
            {"corrected": [CORRECTED | {"after": ORIGIN | {"flags": [FLAG | {"revision": "r2"}]}}]},
            "a training row leads back to its record and the assertions that flagged it",
        ),
        (
            {"corrected": [CORRECTED | {"after": ORIGIN | {"part": "held_out"}}]},
            "a training row leads back to its record and the assertions that flagged it",
        ),
        (
            {"corrected": [CORRECTED | {"after": ORIGIN | {"label_source": "labeller"}}]},
            "a training row leads back to its record and the assertions that flagged it",
        ),
        ({"verdicts": []}, "the fine-tuned candidate was promoted, and serves"),
        ({"watches": []}, BACK),
        ({"watches": [WATCH | {"by": None}]}, BACK),
        ({"watches": [WATCH | {"version": "4"}]}, BACK),
        ({"history": HISTORY[1:]}, BACK),
        ({"history": [HISTORY[0] | {"by": "ann"}, *HISTORY[1:]]}, BACK),
        ({"history": [HISTORY[2], *HISTORY]}, BACK),
        (
            {"refused_job": {"status": "done", "result": {"candidate": "3", "reasons": ["passed"]}}},
            "the candidate trained for one epoch from scratch was refused",
        ),
        (
            {"flags": {"faulty": Counter(track=20), "final": Counter(track=60)}},
            "fires of output-dependent assertions down by at least 30 %",
        ),
    ],
)
def test_each_shortcoming_fails_its_criterion(change: dict[str, Any], expected: str) -> None:
    assert failed(replace(good_run(), **change)) == [expected]


def test_without_a_refused_candidate_nothing_was_rolled_back() -> None:
    refused = "the candidate trained for one epoch from scratch was refused"
    assert failed(replace(good_run(), refused_job=None)) == [refused, BACK]


def test_a_fault_that_got_worse_fails() -> None:
    facts = good_run()
    worse = [replace(a, answer=9) if a.fault == "mirrored" else a for a in facts.answers]
    assert failed(replace(facts, answers=worse)) == [
        "accuracy on faulty traffic up by at least 20 points",
        "every fault up",
    ]


def test_healthy_traffic_may_lose_one_point_and_no_more() -> None:
    facts = good_run()
    lost = [
        replace(a, answer=3 if int(a.card.partition("-")[2]) > 14 else 9)
        if (a.fault, a.phase) == ("healthy", "final")
        else a
        for a in facts.answers
    ]
    assert failed(replace(facts, answers=lost)) == ["healthy traffic down by at most 1 point (paired)"]
