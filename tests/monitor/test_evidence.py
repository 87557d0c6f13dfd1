from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from outrider.assertions import Batch
from outrider.assertions.flags.quality import Asked
from outrider.behavioral_tests import INV, MFT, Outcome, Suite, wilson_interval
from outrider.behavioral_tests.compare import compare
from outrider.dataops.improvement.gate import (
    Evidence,
    Policy,
    Verdict,
    decide,
    judge_held_out,
    judge_slices,
)
from outrider.dataops.improvement.gate_check import Check
from outrider.monitor.trainer.evidence import (
    example_text,
    paired_evidence,
    suite_evidence,
)
from outrider.monitor.trainer.scoring import AnswerScoring


@pytest.mark.parametrize("labels", [[0.0, 1.0, 1.0], [0, 1, 1], [False, True, True]])
def test_labels_are_compared_by_value_whatever_number_type_a_table_came_with(labels: list[Any]) -> None:
    batch = Batch.from_columns({"inputs.x": np.arange(3.0), "label.label": np.array(labels)}, model="m")

    def says(*answers: int) -> Any:
        return lambda _batch: {"label": np.array(answers)}

    pair = paired_evidence("held", batch, says(0, 1, 1), says(0, 1, 0), scoring=AnswerScoring())
    assert (pair.excess.rows, pair.champion_loss) == (3, 0.0)
    assert pair.excess.value == pytest.approx(1 / 3)


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
    lost = 0.0 if answers.dtype == bool else 0.5
    both = [lambda _: {"label": answers}] * 2
    pair = paired_evidence("held", batch, *both, scoring=AnswerScoring(loss="error", classes=classes))
    assert (pair.champion_loss, pair.excess.value) == (lost, 0.0)


def prices(rows: int, *, entities: int | None = None) -> Batch:
    rng = np.random.default_rng(2)
    columns: dict[str, Any] = {"inputs.x": rng.normal(size=rows), "label.price": rng.gamma(2.0, size=rows)}
    if entities is not None:
        columns["entity"] = [f"e{row % entities}" for row in range(rows)]
    return Batch.from_columns(columns, model="m")


def near(sigma: float, seed: int = 0, *, shift: float = 0.0) -> Any:
    """A model whose answers lie around the truth."""

    def predict(batch: Batch) -> dict[str, Any]:
        noise = np.random.default_rng(seed).normal(size=batch.rows)
        return {"price": batch.column("label.price") + sigma * noise + shift}

    return predict


@pytest.mark.parametrize("loss", ["auto", "squared"])
@pytest.mark.parametrize(
    ("candidate", "outcome"),
    [
        (near(0.05, 1), "passed"),
        (near(0.1), "passed"),
        (lambda batch: {"price": np.full(batch.rows, 1000.0)}, "failed"),
        (near(0.3), "failed"),
        (near(0.103, 2), "undecided"),
    ],
)
def test_a_number_is_judged_by_its_distance_relative_to_the_champions(
    loss: str, candidate: Any, outcome: str
) -> None:
    batch = prices(500)
    scoring = AnswerScoring(loss, "price")
    pair = paired_evidence("held", batch, near(0.1), candidate, scoring=scoring)
    verdict = decide(Policy(max_drop=0.05), Evidence(held_out=pair))
    assert verdict.outcome == outcome, verdict.reasons
    name = "mean absolute error" if loss == "auto" else "root mean squared error"
    assert f"held (500 rows): {name} " in verdict.reasons[0]
    expected = 0.1 * (np.sqrt(2 / np.pi) if loss == "auto" else 1.0)
    assert pair.champion_loss == pytest.approx(expected, rel=0.1)


def test_answers_that_are_no_number_refuse_the_candidate_and_leave_rows_out_of_the_champions() -> None:
    batch = prices(100)
    truth = batch.column("label.price")
    some = np.where(np.arange(100) < 3, np.nan, truth)
    scoring = AnswerScoring("auto", "price")
    pair = paired_evidence("held", batch, near(0.1), lambda _: {"price": some}, scoring=scoring)
    assert decide(Policy(), Evidence(held_out=pair)).reasons == [
        "failed: held (100 rows): the candidate's answer to 3 rows is no number: mean absolute error"
    ]
    pair = paired_evidence(
        "held", batch, lambda _: {"price": some}, near(0.1), scoring=AnswerScoring("auto", "price")
    )
    assert (pair.left_out, pair.excess.rows) == (3, 97)
    pair = paired_evidence(
        "held", batch, near(0.1), lambda _: {"cost": some}, scoring=AnswerScoring("auto", "price")
    )
    assert pair.fault == "the candidate has no output 'price'; it has 'cost'"


@pytest.mark.parametrize("loss", ["macro_f1", "average_precision"])
def test_figures_of_all_rows_are_held_against_the_champions(loss: str) -> None:
    rng = np.random.default_rng(1)
    labels = rng.choice(3, 1_500, p=[0.6, 0.3, 0.1])
    sure = np.eye(3)[labels] * 0.6 + rng.random((1_500, 3)) * 0.4
    blind = rng.random((1_500, 3))
    columns = {"id": [f"r{row}" for row in range(1_500)], "label.label": labels}
    batch = Batch.from_columns(columns, model="m")
    scoring = AnswerScoring(loss, classes=(0, 1, 2), scores="probs")

    def model(probs: Any) -> Any:
        return lambda _: {"label": probs.argmax(axis=1), "probs": probs}

    worse = paired_evidence("held", batch, model(sure), model(blind), scoring=scoring)
    assert worse.loss.startswith("1 - ")
    assert not worse.is_relative
    assert worse.champion_loss < 0.05 < worse.excess.low
    same = paired_evidence("held", batch, model(sure), model(sure), scoring=scoring)
    assert same.excess.value == 0.0 < same.excess.high < 0.05
    one = Batch.from_columns({"id": ["a"], "label.label": [1]}, model="m")
    assert paired_evidence("held", one, model(sure[:1]), model(sure[:1]), scoring=scoring).excess.high == 1.0
    lost = np.where(rng.random((1_500, 3)) < 0.01, np.nan, sure)
    found = paired_evidence(
        "held", batch, model(sure), lambda _: {"label": labels, "probs": lost}, scoring=scoring
    )
    assert bool(found.fault) == (loss == "average_precision")
    without = AnswerScoring(loss, scores="nothing")
    assert bool(paired_evidence("held", batch, model(sure), model(sure), scoring=without).fault) == bool(
        found.fault
    )


def shares(rows: int) -> dict[str, Any]:
    return {"label": np.zeros(rows), "probs": np.tile([0.5, 0.5], (rows, 1))}


@pytest.mark.parametrize(
    ("scoring", "labels", "answers", "fault"),
    [
        (
            AnswerScoring(),
            [0.0, 1.0],
            {"label": np.zeros(1)},
            "the candidate gave 1 answers 'label' to 2 rows",
        ),
        (AnswerScoring(target="cat"), [0.0, 1.0], {"cat": [1, 1]}, "no label.cat; they have label.label"),
        (AnswerScoring("average_precision", scores="probs"), [2, 10], shares(2), "declare classes"),
        (AnswerScoring("macro_f1"), [["a"], ["b"]], shares(2), "labels that are classes expected"),
    ],
)
def test_what_cannot_be_compared_refuses_the_candidate_with_the_reason(
    scoring: AnswerScoring, labels: list[Any], answers: dict[str, Any], fault: str
) -> None:
    batch = Batch.from_columns({"inputs.x": np.arange(2.0), "label.label": labels}, model="m")
    pair = paired_evidence(
        "held", batch, lambda _: shares(2) | {"cat": [1, 1]}, lambda _: answers, scoring=scoring
    )
    verdict = decide(Policy(), Evidence(held_out=pair))
    assert verdict.outcome == "failed"
    assert fault in verdict.reasons[0]


def test_no_candidate_chooses_the_loss_that_it_is_judged_by() -> None:
    labels = np.arange(400) % 2
    batch = Batch.from_columns({"inputs.x": np.arange(400.0), "label.label": labels}, model="m")
    said = np.where(np.arange(400) < 40, 1 - labels, labels)
    pair = paired_evidence(
        "held",
        batch,
        lambda _: {"label": said},
        lambda _: {"label": np.clip(said.astype(float), 0.05, 0.95)},
        scoring=AnswerScoring(),
    )
    assert (pair.loss, pair.champion_loss) == ("error rate", 0.1)
    assert decide(Policy(), Evidence(held_out=pair)).outcome == "failed"


def test_rows_of_few_entities_decide_less_than_as_many_of_their_own() -> None:
    def outcome(entities: int | None) -> str:
        batch = prices(2000, entities=entities)
        good = {"price": np.zeros(2000)}
        pair = paired_evidence(
            "held", batch, lambda _: good, lambda _: good, scoring=AnswerScoring("error", "price")
        )
        return decide(Policy(), Evidence(held_out=pair)).outcome

    assert (outcome(None), outcome(200), outcome(5)) == ("passed", "passed", "undecided")


def test_a_slice_that_falls_refuses_what_is_better_on_the_whole() -> None:
    rng = np.random.default_rng(3)
    batch = prices(3000)
    devices = np.where(np.arange(3000) % 20 == 0, "old", "new").tolist()
    wrong = {"label": np.where(rng.random(3000) < 0.3, 1.0, 0.0)}
    right = {"label": np.where(np.array(devices) == "old", 1.0, 0.0) * (rng.random(3000) < 0.9)}
    labelled = batch.with_columns({"label.label": np.zeros(3000)})

    def verdict(slices: list[str]) -> Verdict:
        pair = paired_evidence(
            "held", labelled, lambda _: wrong, lambda _: right, scoring=AnswerScoring("error"), slices=slices
        )
        return decide(Policy(), Evidence(held_out=pair))

    assert verdict([]).outcome == "passed"
    sliced = verdict(devices)
    assert sliced.outcome == "failed"
    assert "held, 2 slices: error rate +" in sliced.reasons[0]
    assert "in old (150 rows, at least +" in sliced.reasons[0]
    assert verdict([f"device {row // 20 % 10}" for row in range(3000)]).outcome == "passed"


SCORERS = """
import os, time
import numpy as np

def pinball(answers, labels):
    gap = np.asarray(labels, float) - np.asarray(answers, float)
    return np.maximum(0.9 * gap, -0.1 * gap)

def raises(answers, labels):
    return [1 / 0 for _ in labels]

def nothing(answers, labels):
    return [float("nan")] * len(labels)

def short(answers, labels):
    return [0.0]

def ends(answers, labels):
    os._exit(3)

def hangs(answers, labels):
    time.sleep(600)

def give_up():
    raise SystemExit

def gives_up(answers, labels):
    give_up()

def spoils(answers, labels):
    found = [abs(answer - labels.pop(0)) for answer in list(answers)]
    answers.clear()
    return found
"""


@pytest.mark.parametrize(
    ("scorer", "fault"),
    [
        ("raises", "scorers.py:raises raised ZeroDivisionError; it stood at scorers.py:10 (champion)"),
        ("gives_up", "raised SystemExit; it stood at scorers.py:25 (champion)"),
        ("nothing", "losses >= 0 expected, got nan for row 0 (champion)"),
        ("short", "one loss for each of 300 rows expected, got float64 of shape (1,)"),
        ("ends", "ended (exit code 3)"),
        ("hangs", "takes longer than 8 s (gate.scorer_deadline_s)"),
        ("absent", "absent is not defined there"),
    ],
)
def test_a_scorer_that_fails_refuses_that_candidate_with_the_reason(
    tmp_path: Path, scorer: str, fault: str
) -> None:
    (tmp_path / "scorers.py").write_text(SCORERS)
    deadline_s = 8.0 if scorer == "hangs" else 120.0
    scoring = AnswerScoring(f"scorers.py:{scorer}", "price", folder=tmp_path, deadline_s=deadline_s)
    pair = paired_evidence("held", prices(300), near(0.1), near(0.1, 1), scoring=scoring)
    verdict = decide(Policy(), Evidence(held_out=pair))
    assert verdict.outcome == "failed"
    assert fault in verdict.reasons[0]


def test_a_scorer_of_ones_own_decides(tmp_path: Path) -> None:
    (tmp_path / "scorers.py").write_text(SCORERS)
    scoring = AnswerScoring("scorers.py:pinball", "price", folder=tmp_path)
    batch = prices(300)
    low, high = near(0.1, shift=-0.5), near(0.1, shift=0.5)  # too low costs nine times as much
    worse = paired_evidence("held", batch, high, low, scoring=scoring)
    better = paired_evidence("held", batch, low, high, scoring=scoring)
    found = [decide(Policy(), Evidence(held_out=pair)).outcome for pair in (worse, better)]
    assert found == ["failed", "passed"]
    gap = batch.column("label.price") - low(batch)["price"]
    assert better.champion_loss == pytest.approx(np.maximum(0.9 * gap, -0.1 * gap).mean())


def test_a_scorer_that_empties_its_lists_and_rows_without_a_label_are_no_matter(tmp_path: Path) -> None:
    (tmp_path / "scorers.py").write_text(SCORERS)
    scoring = AnswerScoring("scorers.py:spoils", "price", folder=tmp_path)
    labels = [None if row < 50 else float(row % 7) for row in range(300)]
    batch = Batch.from_columns({"inputs.x": np.arange(300.0), "label.price": labels}, model="m")
    said = [{"price": np.arange(300.0) % 7 + shift} for shift in (0.5, 0.25)]
    pair = paired_evidence("held", batch, lambda _: said[0], lambda _: said[1], scoring=scoring)
    assert (pair.fault, pair.champion_loss, pair.excess.value, pair.left_out) == ("", 0.5, -0.5, 50)


def test_chosen_rows_are_weighted_to_what_they_were_chosen_from() -> None:
    ids = np.array([f"r{row}" for row in range(40)], dtype=object)
    batch = Batch.from_columns({"id": ids, "label.label": np.zeros(40, dtype=int)}, model="m")
    # 20 hard rows, each of little weight, that the candidate mends; 20 of the audit, right with both.
    weights = {f"r{row}": Asked(0.1 if row < 20 else 1.0) for row in range(40)}

    def says(hard: int) -> Any:
        return lambda _batch: {"label": np.array([hard] * 20 + [0] * 20)}

    pair = paired_evidence("fresh", batch, says(1), says(0), weights=weights, scoring=AnswerScoring())
    assert (pair.champion_loss, pair.excess.value) == (0.5, -0.5)
    assert pair.champion_share is not None
    assert pair.candidate_share is not None
    assert pair.champion_share.value == pytest.approx(20 / 22)
    assert pair.candidate_share.value == 1.0
    assert paired_evidence("held", batch, says(1), says(0), scoring=AnswerScoring()).champion_share is None


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


def sliced(entities: list[str], slices: list[str], answer: int) -> Check:
    """Check of the slices where the champion is right, and the candidate says the same to all."""
    columns = {"entity": entities, "label.label": np.ones(len(entities), dtype=int)}
    batch = Batch.from_columns(columns, model="m", rows=len(entities))

    def says(given: int) -> Any:
        return lambda _: {"label": np.full(len(entities), given)}

    pair = paired_evidence("held", batch, says(1), says(answer), scoring=AnswerScoring(), slices=slices)
    return judge_slices(pair, 0.02)


@pytest.mark.parametrize(
    ("cameras", "outcome", "told"),
    [
        (1, "not judged", "so few rows or entities could not show a loss: left (400 rows of 1 entity)"),
        (2, "not judged", "left (400 rows of 2 entities)"),
        (40, "failed", "error rate +100.0 points in left (400 rows"),
    ],
)
def test_a_slice_that_can_show_no_loss_is_not_judged(cameras: int, outcome: str, told: str) -> None:
    """All rows are lost: with one entity no bound can say so."""
    check = sliced([f"c{at % cameras}" for at in range(400)], ["left"] * 400, 0)
    assert check.outcome == outcome
    assert told in check.reason


def test_slices_pass_beside_one_that_can_show_no_loss_which_is_named() -> None:
    entities = ["a"] * 300 + [f"b{at}" for at in range(300)]
    check = sliced(entities, ["left"] * 300 + ["right"] * 300, 1)
    assert check.outcome == "passed"
    assert check.reason.endswith("could not show a loss: left (300 rows of 1 entity)")


def with_rare(rare: int, found: float, *, champion: float = 0.8) -> Verdict:
    """Verdict where champion and candidate find shares of a class of so many rows among 10,000."""
    label = np.repeat(["fraud", "fine"], [rare, 10_000 - rare])
    batch = Batch.from_columns({"label.label": label}, model="m", rows=len(label))

    def finds(share: float) -> Any:
        said = np.where(np.arange(len(label)) < round(share * rare), "fraud", "fine")
        return lambda _: {"label": said}

    pair = paired_evidence("held", batch, finds(champion), finds(found), scoring=AnswerScoring(), rare=0.02)
    return decide(Policy(max_drop=0.02), Evidence(held_out=pair))


def test_a_rare_class_that_is_lost_refuses_though_the_loss_hardly_rises() -> None:
    """One in 500: all of the class weighs a tenth of what may be lost."""
    lost = with_rare(20, 0.0)
    assert lost.outcome == "failed"
    told = (
        "failed: held, 1 rare class: error rate +80.0 points in label=fraud (20 rows, at least +47.3 points)"
    )
    assert lost.reasons[0] == f"{told}; up to +2.0 points is allowed in each"


def test_a_rare_class_that_is_kept_passes_with_the_loss_that_could_hide() -> None:
    kept = with_rare(20, 0.8)
    assert kept.outcome == "passed"
    assert any("of label=fraud (20 rows) may be lost unseen" in reason for reason in kept.reasons)


def test_a_class_of_too_few_rows_is_not_judged_and_blocks_nothing() -> None:
    few = with_rare(2, 0.0, champion=1.0)
    assert few.outcome == "passed"
    assert any(reason.startswith("not judged: held, 1 rare class") for reason in few.reasons)


def test_labels_that_are_texts_are_no_classes() -> None:
    """Their names would be rows."""
    label = [f"answer {at // 2}" for at in range(200)]
    batch = Batch.from_columns({"label.label": label}, model="m", rows=200)
    both = [lambda _: {"label": np.array(label)}] * 2
    assert not paired_evidence("held", batch, *both, scoring=AnswerScoring(loss="error"), rare=1.0).classes


def test_frequent_classes_are_not_judged_apart() -> None:
    assert not any("class" in reason for reason in with_rare(300, 0.8).reasons)


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_equal_candidates_are_rarely_refused_for_any_of_many_rare_classes() -> None:
    refused = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        label = rng.integers(100, size=3000)
        said = [np.where(rng.random(3000) < 0.1, rng.integers(100, size=3000), label) for _ in range(2)]
        batch = Batch.from_columns({"label.label": label}, model="m", rows=3000)
        answers = [lambda _, one=one: {"label": one} for one in said]
        pair = paired_evidence("held", batch, *answers, scoring=AnswerScoring(), rare=0.02)
        refused += any(
            reason.startswith("failed") and "class" in reason
            for reason in decide(Policy(max_drop=0.02), Evidence(held_out=pair)).reasons
        )
    assert refused <= 3


def classes_over(times: Any, wrong: Any) -> tuple[Batch, Any, Any]:
    """Rows with times, and two models of which the candidate alone is wrong on some."""
    labels = np.arange(len(wrong)) % 2
    batch = Batch.from_columns({"ts": times, "inputs.x": labels * 1.0, "label.label": labels}, model="m")
    return batch, lambda _: {"label": labels}, lambda _: {"label": np.where(wrong, 1 - labels, labels)}


@pytest.mark.parametrize("loss", ["error", "macro_f1"])
def test_held_out_rows_of_days_that_err_together_count_as_days(loss: str) -> None:
    rng = np.random.default_rng(0)
    day = np.arange(2000) % 10
    wrong = rng.random(2000) < np.where(day < 2, 0.07, 0.0)  # 1.4 points: of each day, or of two of ten
    start = np.datetime64("2026-01-05", "us")
    by_day, spread = (
        paired_evidence("held", *classes_over(times, wrong), scoring=AnswerScoring(loss=loss))
        for times in (
            start + day * np.timedelta64(1, "D"),
            start + rng.permutation(day) * np.timedelta64(1, "D"),
        )
    )
    assert [judge_held_out(pair, 0.03).outcome for pair in (spread, by_day)] == ["passed", "undecided"]
    assert by_day.excess.stretch == ""


def test_verdict_names_the_stretch_of_time_that_it_holds_for() -> None:
    hours = np.datetime64("2026-01-05T08", "us") + (np.arange(600) % 3) * np.timedelta64(1, "h")
    told = []
    for times in (hours, np.full(600, hours[0])):
        pair = paired_evidence("held", *classes_over(times, np.arange(600) < 3), scoring=AnswerScoring())
        told.append(judge_held_out(pair, 0.05).reason)
    assert "holds for 2026-01-05, 3 hours of one day" in told[0]
    assert "holds for rows whose event times do not differ" in told[1]
