"""Verdicts on candidates of known truth hold at every look; a conversation counts once."""

import numpy as np
import pytest

from benchmarks.statistics.verdict import (
    DIFFERENT,
    EQUAL,
    Case,
    fixed_size,
    is_ever_different,
    is_named_first,
    judged,
    looks,
    records_until_different,
)
from outrider.assertions import Batch
from outrider.assertions.comparison import PairedAnswers, StreamComparison
from outrider.assertions.comparison.agreement import EVERYTHING, Tally, Terms
from outrider.assertions.comparison.differences import Ruler
from outrider.assertions.comparison.judged import JudgedPairs
from outrider.assertions.comparison.paired_outcomes import DirectedOutcomes
from outrider.assertions.comparison.text_properties import (
    languages,
    refusals,
    tool_calls,
    with_text_properties,
)
from outrider.assertions.comparison.verdict import Bounding, measure_verdict, records_needed, verdict_of
from outrider.assertions.statistics.difference_sequence import DifferenceSequence
from outrider.assertions.statistics.rate_sequence import RateSequence
from tests.soak import at_most, rounds


@pytest.mark.parametrize("case", EQUAL, ids=str)
def test_an_equal_candidate_is_not_called_different_or_worse(case: Case) -> None:
    runs = rounds(1000, part=100)
    assert sum(is_ever_different(case, seed) for seed in range(runs)) <= at_most(0.01, runs) * runs


@pytest.mark.parametrize("case", DIFFERENT, ids=str)
def test_a_difference_is_found_within_twice_the_records_of_a_fixed_size(case: Case) -> None:
    found = [records_until_different(case, seed) for seed in range(rounds(1000, part=100))]
    assert np.median(found) <= (2.0 if len(found) > 100 else 3.0) * fixed_size(case)


def test_a_slice_at_fault_is_named_first() -> None:
    runs = rounds(100, part=20)
    assert sum(map(is_named_first, range(runs))) >= 0.8 * runs


def test_a_forecast_is_honest_within_a_factor_of_two() -> None:
    ratios = []
    for seed in range(rounds(100)):
        told = None
        for number, seen in enumerate(looks(Case("label", 0.01), seed, 6000), start=1):
            if number == 3:
                told = verdict_of(seen, margin=0.01).more
            if verdict_of(seen, margin=0.01, has_forecast=False).is_settled:
                if told is not None:
                    ratios.append((number * 100 - 300) / max(told, 100))
                break
    assert 0.5 <= np.median(ratios) <= 2.0


def test_records_needed_are_about_those_that_settle() -> None:
    said = records_needed(0.01, 0.01, 1.0)
    took = []
    for seed in range(10):
        for number, seen in enumerate(looks(Case("label", 0.01), seed, 8000), start=1):
            if verdict_of(seen, margin=0.01, has_forecast=False).is_settled:
                took.append(100 * number)
                break
    assert said is not None
    assert 0.5 <= np.median(took) / said <= 2.0


def test_a_production_that_was_only_recorded_is_close_at_best() -> None:
    few, many = (
        StreamComparison({("label", EVERYTHING): Tally(RateSequence({0: (2000, differs)}))})
        for differs in (1, 400)
    )
    assert verdict_of(few, margin=0.02).word == "close"
    found = verdict_of(many, margin=0.02)
    assert (found.word, found.more) == ("undecided", None)
    assert "noise is not known" in found.why


def labels(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Batch:
    return Batch.from_columns({"outputs.label": values}, model="m", rows=len(values))


def conversations(seed: int, *, blocks: int = 8, talks: int = 60) -> StreamComparison:
    """Conversations of 1 to 50 turns, all of which differ (one in ten) or none; some go on later."""
    rng = np.random.default_rng(seed)
    found, old = StreamComparison(), np.zeros(0, dtype=np.int64)
    differs = rng.random(blocks * talks) < 0.1
    for block in range(blocks):
        new = np.arange(block * talks, (block + 1) * talks)
        talk = np.concatenate([np.repeat(new, rng.integers(1, 51, talks)), old])
        old = rng.choice(new, 40)
        one, two = labels(np.zeros(len(talk), dtype=np.int64)), labels(differs[talk].astype(np.int64))
        pair = PairedAnswers(
            one, two, np.ones(len(talk)), [""] * len(talk), entities=[str(each) for each in talk]
        )
        pair = pair.declared_steady(challenger=True)
        found += StreamComparison.of(pair, Ruler(), entities=found.entities)
    return found


def test_intervals_hold_where_turns_of_a_conversation_are_alike() -> None:
    runs, wrong = rounds(200), 0
    for seed in range(runs):
        found = conversations(seed)
        told = verdict_of(found, margin=0.01, error=0.2, has_forecast=False).measures["label"]
        assert told.rows == 8 * 60
        wrong += not told.low <= 0.1 <= told.high
    assert wrong <= at_most(0.05, runs) * runs
    assert StreamComparison.from_dict(found.to_dict()).entities == found.entities
    with pytest.raises(ValueError, match="counted in both"):
        _ = found + found


def test_outcomes_are_worse_better_or_within_the_margin_and_survive_json() -> None:
    few, many = np.arange(1000) < 5, np.arange(1000) < 60
    for production, candidate, margin, word in (
        (few, many, 0.02, "worse"),
        (many, few, 0.02, "better"),
        (few, many, 0.05, "undecided"),
        (many, few, 0.05, "undecided"),
        (few, many, 0.1, "close"),
        (many, few, 0.1, "close"),
        (many, many, 0.02, "same"),
        (many[:100], many[:100], 0.02, "undecided"),
    ):
        found = DirectedOutcomes.of("no answer", production, candidate)
        assert found.verdicts(kinds=3, margin=margin)["no answer"].word == word
        assert DirectedOutcomes.from_dict(found.to_dict()).to_dict() == found.to_dict()
    twice = DirectedOutcomes.of("x", few, many, entities=["a"] * 1000, keys=list(range(1000)))
    assert twice.kinds["x"].rows == 1
    more = DirectedOutcomes.of("x", few, many, entities=["a"] * 1000, keys=list(range(1000)), counted=twice)
    assert (twice + more).kinds["x"].rows == 1


@pytest.mark.parametrize(("alone", "word"), [(1, "same"), (2, "same"), (5, "close"), (15, "worse")])
def test_undecided_outcomes_say_how_many_more_records_settle_them(alone: int, word: str) -> None:
    few = DifferenceSequence({0: (0, 0, 0, 0, 500 - alone, 0, 0, 0, alone)})
    found = DirectedOutcomes({"no answer": few}).verdicts(kinds=2, margin=0.02)["no answer"]
    assert (found.word, found.more is not None and found.more > 0) == ("undecided", True)
    factor = 1.0 + (found.more or 0) / 500

    def at(factor: float) -> str:
        counts = round((500 - alone) * factor), round(alone * factor)
        scaled = DifferenceSequence({0: (0, 0, 0, 0, counts[0], 0, 0, 0, counts[1])})
        return DirectedOutcomes({"no answer": scaled}).verdicts(kinds=2, margin=0.02)["no answer"].word

    assert (at(factor), at(0.9 * factor)) == (word, "undecided")
    at_margin = DifferenceSequence({0: (0, 0, 0, 0, 490, 0, 0, 0, 10)})
    assert DirectedOutcomes({"x": at_margin}).verdicts(kinds=2, margin=0.02)["x"].more is None


def test_a_biased_judge_turns_no_verdict_and_is_silent_without_labels() -> None:
    runs = rounds(1000)
    told = [judged(seed, better=0.0, biased=0.05).verdict().direction for seed in range(runs)]
    assert told.count("no difference shown") >= 0.95 * runs
    found = judged(1, better=0.4, biased=0.05)
    assert found.verdict().direction == "better"
    assert JudgedPairs.from_dict(found.to_dict()).verdict() == found.verdict()
    assert JudgedPairs.of(np.ones(9), np.full(9, np.nan), np.ones(9)).verdict().direction == "no verdict"


REFUSED = (
    "I'm sorry, but I can't help with that request.",
    "I cannot provide instructions for that.",
    "As an AI language model, I am not able to assist with this.",
    "Es tut mir leid, dabei kann ich nicht helfen.",
    "Ich kann diese Anfrage leider nicht beantworten.",
    "Désolé, je ne peux pas vous aider.",
    "Lo siento, pero no puedo ayudar con eso.",
    "Mi dispiace, non posso aiutarti.",
    "Het spijt me, daar kan ik niet bij helpen.",
    "Sinto muito, não posso ajudar com isso.",
)
ANSWERED = (
    "The parcel arrives on Tuesday.",
    "Sure! Here are three ways to say it.",
    "To end a process, press Ctrl+C in its terminal.",
    "Das Paket kommt am Dienstag an.",
    "Le colis arrive mardi matin.",
    "El paquete llega el martes.",
    "Il pacco arriva martedì.",
    "Het pakket komt dinsdag aan.",
    "O pacote chega na terça-feira.",
    "42",
)
SPOKEN = {
    "en": "Where is the parcel that I ordered for my mother?",
    "de": "Wo ist das Paket, das ich für meine Mutter bestellt habe?",
    "fr": "Où est le colis que j'ai commandé pour ma mère ?",
    "es": "¿Dónde está el paquete que pedí para mi madre?",
    "it": "Dove è il pacco che ho ordinato per mia madre?",
    "nl": "Waar is het pakket dat ik voor mijn moeder heb besteld?",
    "ja": "注文した荷物はどこにありますか",
    "ru": "Где посылка, которую я заказал для мамы?",
    "unknown": "12345 :-)",
}


def test_refusals_and_languages_are_told_in_nine_of_ten() -> None:
    right = (refusals(REFUSED) == "refused").sum() + (refusals(ANSWERED) == "answered").sum()
    assert right >= 18
    assert sum(languages(list(SPOKEN.values())) == np.array(list(SPOKEN))) >= 8


def test_properties_of_texts_are_compared_each_for_itself() -> None:
    ruler, ones = Ruler("text", is_text=True), np.ones(3)
    said = [
        with_text_properties(
            Batch.from_columns({"outputs.text": texts, "outputs.tool_calls": calls}, model="m", rows=3), ruler
        )
        for texts, calls in (
            (["It is here.", '{"a": 1}', "yes"], ['[{"name": "f", "arguments": "{\\"x\\": 1}"}]', "", ""]),
            (["I cannot help.", '{"b": 1}', "yes"], ['[{"name": "f", "arguments": "{ \\"x\\":1}"}]', "", ""]),
        )
    ]
    found = StreamComparison.of(PairedAnswers(said[0], said[1], ones, [""] * 3), ruler)
    differs = {measure: tally.differs.failed for (measure, _), tally in found.tallies.items()}
    assert {"refusal", "language", "length", "structure", "tools", "arguments"} < set(differs)
    assert (differs["refusal"], differs["structure"], differs["tools"], differs["arguments"]) == (1, 1, 0, 0)
    assert tool_calls("no json") == (("", "no json"),)


def test_a_proven_difference_leaves_the_word_open_until_it_exceeds_the_margin() -> None:
    never = RateSequence({0: (2000, 0)})
    tally = Tally(
        RateSequence({0: (2000, 40)}), never, never, DifferenceSequence({0: (0, 0, 0, 0, 1960, 0, 0, 0, 40)})
    )
    found = tally.agreement(margin=0.015, terms=Terms(-0.5))
    assert found.verdict == "undecided"
    verdict = measure_verdict(tally, Bounding(0.95), margin=0.015)
    assert verdict.word == "undecided"
    assert verdict.more is not None
    more = (2000 + verdict.more) / 2000
    none = RateSequence({0: (round(2000 * more), 0)})
    differs = RateSequence({0: (round(2000 * more), round(40 * more))})
    beyond = DifferenceSequence({0: (0, 0, 0, 0, round(1960 * more), 0, 0, 0, round(40 * more))})
    later = Tally(differs, none, none, beyond)
    assert measure_verdict(later, Bounding(0.95), margin=0.015).word == "different"
