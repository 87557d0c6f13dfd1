from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from sqlalchemy import insert

from outrider.assertions import Batch
from outrider.assertions.quality import Asked
from outrider.behavioral_tests import INV, MFT, Outcome, Suite, wilson_interval
from outrider.behavioral_tests.compare import compare
from outrider.dataops.improvement.gate import Evidence, Policy, decide
from outrider.dataops.state.database import write
from outrider.dataops.state.tables import Record, table_of
from outrider.monitor.trainer.evidence import (
    answers_are_numeric,
    example_text,
    paired_evidence,
    suite_evidence,
)
from tests.databases import migrated


@pytest.mark.parametrize("labels", [[0.0, 1.0, 1.0], [0, 1, 1], [False, True, True]])
def test_labels_are_compared_by_value_whatever_number_type_a_table_came_with(labels: list[Any]) -> None:
    batch = Batch.from_columns({"inputs.x": np.arange(3.0), "label.label": np.array(labels)}, model="m")

    def says(*answers: int) -> Any:
        return lambda _batch: {"label": np.array(answers)}

    pair = paired_evidence("held", batch, "label", says(0, 1, 1), says(0, 1, 0))
    assert (pair.rows, pair.champion_correct, pair.candidate_correct) == (3, 3, 2)


@pytest.mark.parametrize(
    ("answers", "labels", "classes"),
    [
        (np.array([True, False]), [1, 0], ()),
        (np.array([3.0, np.nan]), [3, 4], ()),
        (np.array(["1", "0"]), [1, 1], ()),
        (np.array(["1.0", "0"]), ["1", "1"], ("0", "1")),
        (np.array([0.5, 1.0], dtype=np.float16), ["0.5", "2"], (0, 1)),
    ],
)
def test_paired_evidence_compares_by_type_and_declared_classes(
    answers: Any, labels: list[Any], classes: tuple[int | str, ...]
) -> None:
    batch = Batch.from_columns({"inputs.x": np.arange(2.0), "label.label": labels}, model="m")
    right = 2 if answers.dtype == bool else 1
    pair = paired_evidence("held", batch, "label", *[lambda _: {"label": answers}] * 2, classes=classes)
    assert (pair.champion_correct, pair.candidate_correct, pair.is_numeric) == (right, right, False)


def test_gate_refuses_a_numeric_target_with_the_reason() -> None:
    labels = np.array([0.25, 1.5, 3.75])
    batch = Batch.from_columns({"inputs.x": np.arange(3.0), "label.price": labels}, model="m")
    pair = paired_evidence(
        "held", batch, "price", lambda _: {"price": labels}, lambda _: {"price": labels + 1e6}
    )
    for evidence in (Evidence(held_out=pair), Evidence(fresh=pair)):
        verdict = decide(Policy(), evidence)
        assert not verdict.promoted
        assert "the target is a number" in verdict.reasons[0]


@pytest.mark.parametrize(
    ("answers", "is_numeric"),
    [(["0.5", "1.25", "3"], True), (["3", "4", "5"], False), (["cat", '"0.5"'], False)],
)
def test_stored_answers_tell_a_number_from_a_class(
    tmp_path: Path, answers: list[str], is_numeric: bool
) -> None:
    engine = migrated(tmp_path / "state.db")
    records = [
        {"id": str(row), "model": "m", "seq": 1, "row": row, "predicted": answer, "digest": 0, "ts_us": 0}
        for row, answer in enumerate(answers)
    ]
    with write(engine) as connection:
        assert not answers_are_numeric(connection, "m")
        connection.execute(insert(table_of(Record)), [one | {"weight": 1.0} for one in records])
        assert answers_are_numeric(connection, "m") == is_numeric
        assert not answers_are_numeric(connection, "other")
    engine.dispose()


def test_chosen_rows_are_weighted_to_what_they_were_chosen_from() -> None:
    ids = np.array([f"r{row}" for row in range(40)], dtype=object)
    batch = Batch.from_columns({"id": ids, "label.label": np.zeros(40, dtype=int)}, model="m")
    # 20 hard rows, each of little weight, that the candidate mends; 20 of the audit, right with both.
    weights = {f"r{row}": Asked(0.1 if row < 20 else 1.0) for row in range(40)}

    def says(hard: int) -> Any:
        return lambda _batch: {"label": np.array([hard] * 20 + [0] * 20)}

    pair = paired_evidence("fresh", batch, "label", says(1), says(0), weights=weights)
    assert (pair.champion_correct, pair.candidate_correct) == (20, 40)
    assert pair.champion_share is not None
    assert pair.candidate_share is not None
    assert pair.champion_share.value == pytest.approx(20 / 22)
    assert pair.candidate_share.value == 1.0
    assert paired_evidence("held", batch, "label", says(1), says(0)).champion_share is None


def mood(*wrong: int) -> Any:
    """A model that answers the rows in ``wrong`` wrongly."""
    return lambda batch: {"label": np.isin(np.arange(batch.rows), wrong).astype(int)}


def outcomes(predictor: Any, *, cases: int = 40) -> tuple[Outcome, ...]:
    texts = [f"case {case}" for case in range(cases)]
    plain = MFT(cases=texts, labels=[0] * cases, name="test_plain", capability="vocabulary", suite="mood")
    more = MFT(cases=texts, labels=[0] * cases, name="test_more", capability="vocabulary", suite="mood")
    live = INV(perturb=lambda batch, rng: batch, name="test_live", capability="live", suite="mood")
    return Suite("mood", (plain, more, live)).run(predictor)


def test_both_models_are_compared_case_by_case_and_over_all_tests() -> None:
    old, new = outcomes(mood(0, 1, 2)), outcomes(mood(2, *range(10, 20)))
    found, missing = suite_evidence(compare(old, new))
    assert missing == []
    assert [(each.test, each.only_champion_fails, each.only_candidate_fails) for each in found] == [
        ("test_plain", 2, 10),
        ("test_more", 2, 10),
    ]
    alone = binomtest(10, 12, 0.5).pvalue  # McNemar's exact test on one of them
    assert [each.p for each in found] == pytest.approx([2 * alone] * 2)
    first = found[0]
    assert (first.champion.failures, first.candidate.failures, first.candidate.cases) == (3, 11, 40)
    assert (first.candidate.low, first.candidate.high) == pytest.approx(wilson_interval(11, 40))
    assert len(first.examples) == 3
    # what the champion answers rightly comes first: case 2 is failed by both
    assert [text.split("]")[0] for text in first.examples] == ["[10", "[11", "[12"]


def test_what_raises_for_one_is_evidence_and_for_both_is_missing() -> None:
    def broken(batch: Batch) -> Any:
        raise RuntimeError("out of memory")

    found, missing = suite_evidence(compare(outcomes(mood()), outcomes(broken)))
    assert [each.candidate.error for each in found] == ["RuntimeError: out of memory"] * 2
    assert missing == []
    found, missing = suite_evidence(compare(outcomes(broken), outcomes(broken)))
    assert found == []
    assert missing[0] == (
        "vocabulary: test_plain (MFT, suite mood) could be run on neither: RuntimeError: out of memory"
    )


@pytest.mark.parametrize("side", [8, 20])
def test_an_example_shows_what_was_changed_with_both_answers_and_pictures_as_their_shape(side: int) -> None:
    def darker(batch: Batch, rng: np.random.Generator) -> Batch:
        return batch.with_columns({"inputs.image": batch.tensor("inputs.image") * 0.5})

    def sees(batch: Batch) -> Any:
        label = np.where(batch.tensor("inputs.image").max(axis=(1, 2)) > 0.6, "day", "night")
        return {"label": label, "probs": np.full((batch.rows, 10), 0.1)}

    images = np.ones((2, side, side), dtype=np.float32)
    cases = Batch.from_columns({"inputs.image": images}, model="m")
    outcome = INV(cases=cases, perturb=darker, name="test_dark", capability="light").run(sees)
    shape = f"({side}, {side})"
    text = example_text(outcome.examples[0])
    assert shape in text
    assert len(text) < 260
    assert " ⇒ label='day', probs=tensor(10,) in [0.1, 0.1] -> label='night'" in text
