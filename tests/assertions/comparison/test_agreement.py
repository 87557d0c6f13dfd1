"""A challenger equal to the champion is never reported as different; a real difference is."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.statistics.agreement import (
    Draw,
    agreement_of,
    classes,
    far,
    little_in_common,
    scores,
    tallies,
    words,
)
from outrider.assertions import Batch
from outrider.assertions.comparison import PairedAnswers, StreamComparison
from outrider.assertions.comparison.agreement import (
    EVERYTHING,
    Agreement,
    Tally,
    Terms,
    Verdict,
    confidence_of,
    excess,
    terms_of,
)
from outrider.assertions.comparison.differences import (
    Ruler,
    deltas,
    differ,
    measures_of,
    shared_measures,
    subjects,
)
from outrider.assertions.statistics.bets import HEAVIEST
from outrider.assertions.statistics.difference_sequence import DifferenceSequence
from outrider.assertions.statistics.rate_sequence import RateSequence
from tests.soak import rounds

Case = tuple[Draw, Callable[[Any, Any], Any], Terms]
RULER = Ruler()
BLOCKS, ROWS, PEEK = 40, 50, 8
MARGIN = 0.01
SLICES = ("cam-1", "cam-2", "cam-3")


def answers(probs: Any) -> Batch:
    """Answers of a classifier with these probabilities, shape (rows, classes)."""
    probs = np.asarray(probs, dtype=np.float64)
    columns = {
        "outputs.label": probs.argmax(1), "outputs.score": probs.max(1), "outputs.probs": probs
    }  # fmt: skip
    return Batch.from_columns(columns, model="m", rows=len(probs))


@dataclass(frozen=True)
class Stream:
    """Blocks of records whose classes are, for a part, a close call: rounding decides it at every answer."""

    seed: int
    close: float = 0.02

    def blocks(self, wrong: float) -> Any:
        """Two answers of the champion, and two of a challenger that says another class so often."""
        rng = np.random.default_rng(self.seed)
        for _ in range(BLOCKS):
            rows = int(rng.integers(1, 2 * ROWS))
            logits = rng.normal(0, 3, (rows, 4))
            # Noise lies on records that are close calls, more of them in some blocks and slices than others.
            tied = np.flatnonzero(rng.random(rows) < self.close * rng.choice([0.0, 1.0, 4.0]))
            best = np.sort(logits[tied], axis=1)
            logits[tied, logits[tied].argmax(1)] = best[:, -2]
            said = [logits + rng.normal(0, 1e-5, logits.shape) for _ in range(4)]
            far = np.flatnonzero(rng.random(rows) < wrong)
            other = rng.integers(4, size=len(far))
            for answer in said[2:]:
                answer[far, other] += 20.0
            slices = [SLICES[k] for k in np.sort(rng.integers(3, size=rows))]
            yield *(answers(softmax(each)) for each in said), slices


def softmax(logits: Any) -> Any:
    top = np.exp(logits - logits.max(1, keepdims=True))
    return top / top.sum(1, keepdims=True)


def compare(
    seed: int, wrong: float, *, look: Callable[[StreamComparison], None], share: float = 0.3
) -> StreamComparison:
    """Compare a stream block by block, asking both again about a share of the records."""
    rng = np.random.default_rng([seed, 1])
    found = StreamComparison()
    for number, (one, again, two, other, slices) in enumerate(Stream(seed).blocks(wrong)):
        asked = np.flatnonzero(rng.random(one.rows) < share)
        twice = (asked, again.take(asked), other.take(asked)) if len(asked) else ()
        found += StreamComparison.of(
            PairedAnswers(one, two, np.ones(one.rows), slices, *twice), RULER, slices=found.slices
        )
        if number % PEEK == PEEK - 1:
            look(found)
    return found


def verdicts(found: StreamComparison) -> list[Verdict]:
    return [each.verdict for each in found.agreements(margin=MARGIN).values()]


CASES: dict[str, Case] = {
    "labels": (classes(0.0), np.not_equal, terms_of("label")),
    "scores": (scores(0.0), far, terms_of("score")),
    "noisy scores": (scores(0.0, 1.0), far, terms_of("score")),
    "texts": (words(0.0), little_in_common, terms_of("score")),
}
DIFFERENT: dict[str, Case] = {
    "labels": (classes(0.05), np.not_equal, terms_of("label")),
    "greedier": (classes(0.05, greedy=True), np.not_equal, terms_of("label")),
    "scores": (scores(0.9194), far, terms_of("score")),
    "steadier scores": (scores(0.9194, other=0.05), far, terms_of("score")),
    "noisier scores": (scores(0.5, other=0.8), far, terms_of("score")),
    "texts": (words(0.3), little_in_common, terms_of("score")),
}


@pytest.mark.parametrize("case", CASES)
def test_an_equal_challenger_is_never_called_different_however_often_one_looks(case: str) -> None:
    answers, apart, terms = CASES[case]
    alarms, raw = [], 0.0
    runs = rounds(200)  # 200 of all as well: benchmarks.statistics.agreement
    for seed in range(runs):
        looks = tallies(answers, apart, seed, rows=4000)
        seen = [tally.agreement(margin=0.02, terms=terms) for tally in looks]
        alarms += [seed] * any(each.verdict in ("close", "different") for each in seen)
        raw += seen[-1].raw.value / runs
    assert alarms == []
    assert raw < 0.99  # as answered the twin differed on more than a record in a hundred


def test_an_equal_challenger_is_called_the_same() -> None:
    runs = [list(tallies(classes(0.0), np.not_equal, seed, rows=16_000))[-1] for seed in range(20)]
    assert sum(each.agreement(margin=0.02, terms=Terms(-0.5)).verdict == "same" for each in runs) >= 19


@pytest.mark.parametrize("case", DIFFERENT)
def test_agreement_beyond_noise_lies_in_its_interval_at_every_look(case: str) -> None:
    answers, apart, terms = DIFFERENT[case]
    truth, wrong, proven = agreement_of(answers, apart), 0, 0
    runs = rounds(40, part=4)
    for seed in range(runs):
        seen = [tally.agreement(margin=0.01, terms=terms) for tally in tallies(answers, apart, seed)]
        wrong += not all(each.beyond.low <= truth <= each.beyond.high for each in seen)
        proven += seen[-1].verdict == "different"
    assert wrong <= max(1, runs // 20)
    assert proven >= runs - max(1, runs // 20)


def test_being_near_is_not_transitive_and_counting_odd_ones_overstates_agreement() -> None:
    """Of three answers the odd one beyond a tolerance tells of 74.9 %, where 59.0 % did not change."""
    answers, scale = scores(0.9194), 0.35 * 2**0.5
    a, again, b, _ = answers(np.random.default_rng(0), 20_000)
    apart = norm.sf(1 - 0.9194, scale=scale) + norm.cdf(-1 - 0.9194, scale=scale)
    noise = 2 * norm.sf(1.0, scale=scale)
    exact = 1.0 - (apart - noise) / (1.0 - noise)
    assert exact == pytest.approx(0.590, abs=5e-4)
    differs, own, others = far(a, b), far(a, again), far(again, b)
    odd = (differs & others & ~own).mean() - (differs & own & ~others).mean()
    assert 1.0 - odd == pytest.approx(0.749, abs=0.01)
    found = list(tallies(answers, far, 0, rows=20_000, share=0.1))[-1].agreement(margin=0.01)
    assert found.beyond.low <= exact <= found.beyond.high < 1.0 - odd
    assert found.beyond.value == pytest.approx(exact, abs=0.03)


def test_a_greedier_challenger_does_not_hide_its_faults() -> None:
    """Its own noise is less: taking off all of the champion's would leave less than what it gets wrong."""
    answers = classes(0.01, greedy=True)
    a, again, b, _ = answers(np.random.default_rng(0), 400_000)
    assert (a != b).mean() - (a != again).mean() < 0.01
    assert agreement_of(answers, np.not_equal) < 0.99
    tally = list(tallies(answers, np.not_equal, 1, rows=40_000))[-1]
    found = tally.agreement(margin=0.001, terms=Terms(-0.5))
    assert found.verdict == "different"
    assert found.challenger_noise.value == 0.0 < found.noise.value


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_answers_are_compared_as_the_service_compares_them() -> None:
    for seed in range(3):
        seen: list[Verdict] = []
        twin = compare(seed, 0.0, look=lambda now, seen=seen: seen.extend(verdicts(now)))  # type: ignore[misc]
        assert set(seen) <= {"same", "undecided"}
        assert twin.agreements(margin=MARGIN)["label", EVERYTHING].raw.value < 1.0
        other = compare(seed, 0.1, look=lambda _: None).agreements(margin=MARGIN)
        assert {other[measure, name].verdict for measure, name in other if name == EVERYTHING} == {
            "different"
        }
        assert other["label", EVERYTHING].beyond.low <= 0.925 <= other["label", EVERYTHING].beyond.high


def test_without_asking_again_nothing_is_called_different() -> None:
    one, _, two, _, slices = next(iter(Stream(1).blocks(0.9)))
    found = StreamComparison.of(PairedAnswers(one, two, np.ones(one.rows), slices), RULER)
    assert found.agreements(margin=MARGIN)["label", EVERYTHING].verdict == "undecided"
    assert found.agreements(margin=MARGIN)["label", EVERYTHING].noise.rows == 0


def test_parts_add_up_to_the_whole_and_survive_json() -> None:
    halves = [compare(seed, 0.1, share=0.3, look=lambda _: None) for seed in (1, 2)]
    both = halves[0] + halves[1]
    again = halves[1] + halves[0]
    assert {k: t.to_dict() for k, t in both.tallies.items()} == {
        k: t.to_dict() for k, t in again.tallies.items()
    }
    read = StreamComparison.from_dict(both.to_dict())
    assert read.to_dict() == both.to_dict()
    assert StreamComparison.from_dict({}).to_dict() == StreamComparison().to_dict()
    total = both.tallies["label", EVERYTHING].differs.asked
    assert total == sum(both.tallies["label", name].differs.asked for name in SLICES)
    assert sum(both.apart) == total


def test_intervals_of_all_records_and_slices_share_one_error() -> None:
    whole, part = (1 - confidence_of(name, 3) for name in (EVERYTHING, "a"))
    assert 3 * whole + 3 * 12 * part == pytest.approx(0.05)


def test_the_mean_difference_is_covered_at_all_times_under_unequal_weights() -> None:
    """Records with 1 are captured a quarter as often: their weight makes up for it, and bounds hold."""
    wrong, runs = 0, rounds(200)
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        values = rng.choice([-1.0, -0.25, 0.0, 0.5, 1.0], p=[0.05, 0.2, 0.5, 0.1, 0.15], size=4000)
        keep = rng.random(4000) < np.where(values == 1, 0.25, 1.0)
        values, weight = values[keep], np.where(values == 1, 4.0, 1.0)[keep]
        seen = DifferenceSequence()
        misses = False
        for start in range(0, len(values), 500):
            part = slice(start, start + 500)
            seen += DifferenceSequence.of(values[part], weight[part])
            low, high = seen.interval()
            misses |= not low <= 0.1 <= high
        wrong += misses
    assert wrong <= 0.05 * runs


def test_a_difference_sequence_refuses_other_values_and_heavy_weights_only_widen() -> None:
    with pytest.raises(ValueError, match="numbers from -1 to 1 in steps of"):
        DifferenceSequence.of(np.array([0.3]), np.ones(1))
    assert DifferenceSequence().interval() == (-1.0, 1.0)
    heavy = DifferenceSequence.of(np.ones(50), np.full(50, 10 * HEAVIEST))
    assert heavy.interval()[0] <= heavy.mean == 1.0
    every = DifferenceSequence.of(np.ones(300), np.ones(300))
    assert every.interval()[0] > 0.9


def test_a_tally_says_close_within_its_margin() -> None:
    never = RateSequence({0: (20_000, 0)})
    beyond = DifferenceSequence({0: (0, 0, 0, 0, 19_960, 0, 0, 0, 40)})
    tally = Tally(RateSequence({0: (20_000, 40)}), never, never, beyond)
    found: Agreement = tally.agreement(margin=0.01)
    assert found.verdict == "close"
    assert found.beyond.low > 0.99
    assert tally.agreement(margin=0.0001).verdict == "different"


def batch(**outputs: Any) -> Batch:
    rows = [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
    return Batch.from_records([{"id": str(k), "outputs": row} for k, row in enumerate(rows)], model="m")


def test_what_can_be_compared_follows_from_the_answers() -> None:
    assert measures_of(answers(np.eye(3)), RULER) == ("label", "score", "rank")
    assert measures_of(answers(np.eye(2)), RULER) == ("label", "score", "rank")
    assert measures_of(batch(label=["yes", "no"]), RULER) == ("label",)
    assert measures_of(batch(value=[0.1, 0.2]), RULER) == ("score", "rank")
    assert measures_of(batch(text=["a b", "c"]), Ruler("text", is_text=True)) == ("text", "words", "facts")
    assert measures_of(batch(tags=[["O"], ["B", "I"]]), RULER) == ("label",)


def test_labels_scores_ranks_and_texts_are_compared_record_by_record() -> None:
    one = answers([[0.5, 0.3, 0.15, 0.05], [0.4, 0.3, 0.2, 0.1]])
    two = answers([[0.5, 0.295, 0.155, 0.05], [0.4, 0.2, 0.3, 0.1]])
    assert differ("label", one, two, RULER).tolist() == [False, False]
    assert differ("score", one, two, RULER).tolist() == [False, True]
    assert differ("rank", one, two, RULER).tolist() == [False, True]
    texts = [batch(text=[said, "the same"]) for said in ("a cat sat here", "a dog sat there")]
    assert differ("text", texts[0], texts[1], Ruler("text", is_text=True)).tolist() == [True, False]
    tags = [batch(tags=[["O", "B"], ["O"]]), batch(tags=[["O", "B"], ["B"]])]
    assert differ("label", tags[0], tags[1], RULER).tolist() == [False, True]


def test_records_with_one_score_are_ranked_in_pairs() -> None:
    one, two = batch(value=[0.1, 0.9, 0.5, 0.4, 0.3]), batch(value=[10.0, 90.0, 0.4, 0.5, 0.3])
    assert subjects("rank", one, RULER).tolist() == [[0, 1], [2, 3]]
    assert differ("rank", one, two, RULER).tolist() == [False, True]


def test_distances_of_scores_are_shares_of_the_spread_and_know_what_is_no_number() -> None:
    one, two = batch(value=[1000.0, 0.0, np.nan, np.nan]), batch(value=[1005.0, 4.5, np.nan, 1.0])
    ruler = RULER.at(one)
    found = deltas(one, two, ruler)
    assert ruler.spread == pytest.approx(900.0)
    assert found[:3] == pytest.approx([5 / 900, 0.005, 0.0])
    assert differ(
        "score", batch(value=[2026.0]), batch(value=[2026.1]), RULER.at(batch(value=[2026.0]))
    ).all()
    rounded = batch(value=[2026.0002])
    assert not differ("score", batch(value=[2026.0]), rounded, RULER.at(batch(value=[2026.0]))).any()
    assert np.isinf(found[3])
    assert np.isinf(deltas(answers(np.eye(3)), answers(np.eye(3)[:, :2]), RULER)).all()


def test_every_block_of_the_guide_runs() -> None:
    guide = Path(__file__).parents[3] / "docs" / "agreement.md"
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    for block in blocks:
        exec(compile(block, str(guide), "exec"), {"__name__": "guide"})


def test_models_of_different_kinds_are_compared_by_what_both_answer() -> None:
    module = answers([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    columns = {"outputs.label": [0, 1, 1], "outputs.score": [0.9, 0.9, 0.9]}
    function = Batch.from_columns(columns, model="m", rows=3)  # no probs: its scores are of another kind
    for one, two in ((module, function), (function, module)):
        assert shared_measures(one, two, RULER) == ("label",)
        found = StreamComparison.of(PairedAnswers(one, two, np.ones(3), ["", "", ""]), RULER)
        assert found.measures == ("label",)
        assert found.tallies["label", EVERYTHING].differs.asked == 3


def test_the_old_form_of_a_tally_keeps_its_rates() -> None:
    old = {
        "differs": {"classes": {"0": [100, 20]}},
        "noise": {"classes": {"0": [40, 2]}},
        "beyond": {"classes": {"0": [100, 15, 2]}},
    }
    read = Tally.from_dict(old)
    assert (read.differs.asked, read.noise.asked) == (100, 40)
    assert (read.challenger_noise.asked, read.beyond.rows) == (0, 0)
    assert read.agreement(margin=0.01).verdict == "undecided"


def test_what_four_equal_answers_can_say_is_bounded_by_the_measure() -> None:
    """Being equal is transitive, so no four labels say less than -1/2; four texts can."""
    for a, again, b, other in itertools.product(range(4), repeat=4):
        pairs = [np.array([x != y]) for x in (a, again) for y in (b, other)]
        assert excess(pairs, np.array([a != again]), np.array([b != other]))[0] >= terms_of("label").least
    seen = DifferenceSequence.of(np.array([-1.0, 1.0, 1.0]), np.ones(3))
    assert seen.interval(least=-0.5) == seen.interval()  # never trusted against what was seen


def test_models_of_other_numbers_of_classes_differ_in_rank_everywhere() -> None:
    one, two = (
        Batch.from_columns({"outputs.probs": np.full((4, width), 1.0 / width)}, model="m", rows=4)
        for width in (5, 2)
    )
    assert differ("rank", one, two, Ruler()).tolist() == [True] * 4
