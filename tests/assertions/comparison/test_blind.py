"""No verdict is *same* where its measure could not have seen the change, and the records at hand decide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.statistics.blind import Case, compared
from outrider.assertions import Batch
from outrider.assertions.comparison import PairedAnswers, StreamComparison
from outrider.assertions.comparison.agreement import EVERYTHING, ITEMS, Tally, Terms, held_excess
from outrider.assertions.comparison.differences import Ruler
from outrider.assertions.comparison.items import checked_agree
from outrider.assertions.comparison.text_properties import with_text_properties
from outrider.assertions.comparison.verdict import CandidateVerdict, stream_verdict, verdict_of
from outrider.assertions.comparison.verdict_sentence import details_sentence
from outrider.assertions.statistics.difference_sequence import DifferenceSequence
from outrider.assertions.statistics.rate_sequence import RateSequence
from outrider.assertions.texts.facts import facts_of
from outrider.errors import ConfigError


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
@pytest.mark.parametrize(
    ("case", "rows", "word"),
    [
        (Case(), 1500, "same"),
        (Case("JSON", 0.0, "order"), 1500, "same"),
        (Case(noise=1.0, agree=("facts",)), 1500, "same"),
        (Case("English", 0.0, "style", agree=("facts",)), 1500, "same"),
        (Case("JSON", 1.0, agree=("$.decision",)), 1500, "same"),
        (Case("English", 1.0, agree=("classes=approved,rejected",)), 1500, "same"),
        (Case("English", 0.0, "style"), 500, "different"),
        (Case("English", 1.0, "number", 0.33), 1000, "different"),
        (Case("English", 1.0, "decision"), 2000, "different"),
        (Case("English", 1.0, "words"), 500, "different"),
        (Case("Chinese", 1.0, "refusal"), 500, "different"),
        (Case("English", 0.0, "decision", 0.5), 500, "different"),
        (Case("JSON", 1.0, "decision", 0.5, agree=("$.decision",)), 500, "different"),
        (Case("English", 1.0, "decision", 0.5, agree=("classes=approved,rejected",)), 500, "different"),
    ],
    ids=str,
)
def test_a_comparison_decides_where_its_measure_sees(case: Case, rows: int, word: str) -> None:
    assert compared(case, 1, rows).conclusion.word == word


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
@pytest.mark.parametrize(
    "case",
    [
        Case(noise=1.0),
        Case("Chinese", noise=1.0),
        Case("English", 0.3, "word", 0.03, "noisiest"),
        Case("English", 1.0, "decision", 0.03),
        Case("JSON", 0.3, "number", 0.03, "noisiest"),
        Case("Chinese", 1.0, "number", 0.03),
    ],
    ids=str,
)
def test_a_comparison_is_undecided_where_wording_varies_and_nothing_was_declared(case: Case) -> None:
    found = compared(case, 1, 800).conclusion
    assert found.word == "undecided"
    assert "words cannot show a change; say with --agree" in found.sentence


@pytest.mark.parametrize(
    "case",
    [
        Case("English", 0.0, "order", 0.5),
        Case("Chinese", 1.0, "decision", 0.5, agree=("classes=批准,拒绝",)),
    ],
    ids=str,
)
def test_a_comparison_sees_order_and_classes_in_every_script(case: Case) -> None:
    assert compared(case, 1, 300).conclusion.word == "different"


@pytest.mark.parametrize(
    "case",
    [
        Case("JSON", 1.0, "decision", agree=("$.decison",), margin=0.2),
        Case("English", 1.0, "decision", agree=("classes=genehmigt,abgelehnt",), margin=0.2),
        Case("JSON", 1.0, agree=("$.decision", "$.decison"), margin=0.2),
    ],
    ids=str,
)
def test_a_declaration_that_no_answer_holds_says_nothing(case: Case) -> None:
    found = compared(case, 1, 250).conclusion
    assert found.word == "undecided"
    assert "only 0 % of production's answers hold" in found.sentence


@pytest.mark.parametrize(("path", "word"), [("$.a", "same"), ("$.b", "undecided")])
def test_a_service_reads_what_was_declared_as_a_comparison_does(path: str, word: str) -> None:
    rows, agree = 2000, (path,)
    said = Batch.from_columns({"outputs.text": ['{"a": 1}'] * rows}, model="m", rows=rows)
    pair = PairedAnswers(said, said, np.ones(rows), [""] * rows).declared_steady(challenger=True)
    ruler = Ruler("text", is_text=True, agree=agree)
    found = StreamComparison.from_dict(StreamComparison.of(pair, ruler).to_dict())
    found += StreamComparison.of(pair, ruler)
    assert found.agreements(margin=0.02, agree=agree)[path, EVERYTHING].verdict == word
    assert stream_verdict(found, margin=0.02, agree=agree).word == word


def answered(outputs: list[list[str]], ruler: Ruler, *, column: str = "text") -> StreamComparison:
    """Answers of two models that never contradict themselves."""
    one, two = (
        with_text_properties(
            Batch.from_columns({f"outputs.{column}": each}, model="m", rows=len(each)), ruler
        )
        for each in outputs
    )
    ones = np.ones(one.rows)
    pair = PairedAnswers(one, two, ones, [""] * one.rows).declared_steady(challenger=True)
    return StreamComparison.of(pair, ruler)


def test_calls_of_tools_without_texts_must_agree_in_their_arguments() -> None:
    calls = [[f'[{{"name": "pay", "arguments": {{"eur": {eur}}}}}]'] * 1000 for eur in (5, 6)]
    found = answered(calls, Ruler("text", is_text=True), column="tool_calls")
    for verdict in (verdict_of(found, margin=0.02), stream_verdict(found, margin=0.02, agree=["facts"])):
        assert (verdict.word, verdict.decided_by) == ("different", "arguments")


@pytest.mark.parametrize(
    ("one", "other"),
    [("30", '"30"'), ("null", '"null"'), ("true", '"true"'), ("[]", '"[]"'), ('["a"]', '{"0": "a"}')],
)
@pytest.mark.parametrize("agree", [(), ("words",), ("$.a",)], ids=str)
def test_values_of_json_of_another_type_are_others(one: str, other: str, agree: tuple[str, ...]) -> None:
    texts = [[f'{{"a": {value}}}'] * 600 for value in (one, other)]
    found = answered(texts, Ruler("text", is_text=True, agree=agree))
    assert verdict_of(found, margin=0.02, agree=agree).word == "different"


def test_a_text_too_short_to_know_its_language_is_in_no_other() -> None:
    texts = [
        "You can return your order within 30 days of delivery, and we will refund the price in full.",
        "Return within 30 days.",
        "Sie können die Ware innerhalb von 30 Tagen an uns senden, und wir erstatten den Preis.",
    ]
    for other, word in zip(texts[1:], ("same", "different"), strict=True):
        found = answered([[texts[0]] * 800, [other] * 800], Ruler("text", is_text=True, agree=("facts",)))
        assert verdict_of(found, margin=0.02, agree=["facts"]).word == word


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("at most 30 MB", "at most 30 GB"), ("$30 mn", "$30 bn"),
        (".5 mg", "5 mg"), ("30MB", "30GB"), ("5 am", "5 pm"), ("5pm", "5 a.m."),
        ("use 1.2.3", "use 1.2.4"), ("Rs.500", "Rs.900"), ("USD30", "USD90"), ("$30k", "$30bn"),
        ("5 mg", "5 ml"), ("30 °C", "30 °F"), ("on 03/05/2024", "on 05/03/2024"), (".5", ".9"),
    ],
)  # fmt: skip
def test_facts_tell_units_versions_and_dates_apart(one: str, other: str) -> None:
    assert facts_of(f"It is {one} then.") != facts_of(f"It is {other} then.")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("30MB", "30 megabytes"),
        ("5 pm", "5p.m."),
        ("USD30", "$30"),
        ("$30k", "30,000 dollars"),
        ("30 °C", "30C"),
    ],
)
def test_facts_are_alike_in_any_form_of_a_unit(one: str, other: str) -> None:
    assert facts_of(f"It is {one} then.") == facts_of(f"It is {other} then.")


def test_a_tally_says_nothing_where_noise_leaves_no_room_for_a_difference() -> None:
    rows = 4000
    noise, differs = RateSequence({0: (rows, 3680)}), RateSequence({0: (rows, 3680)})
    equal = DifferenceSequence({0: (0, 0, 200, 0, 3600, 0, 200, 0, 0)})
    found = Tally(differs, noise, noise, equal).agreement(margin=0.02, terms=Terms(-0.5))
    assert (found.verdict, found.beyond.high) == ("undecided", 1.0)
    assert found.beyond.low < 0.9
    apart = DifferenceSequence({0: (0, 0, 200, 0, 3480, 0, 320, 0, 0)})
    found = Tally(RateSequence({0: (rows, 3788)}), noise, noise, apart).agreement(
        margin=0.02, terms=Terms(-0.5)
    )
    assert found.verdict == "different"
    assert found.beyond.value == pytest.approx(0.66, abs=0.01)


def rare_class(*, is_lost: bool, rare: float = 0.005, rows: int = 8000) -> CandidateVerdict:
    """Classes of which one is rare, and lost by a candidate that is else as noisy as production."""
    rng = np.random.default_rng(1)
    truth = np.where(rng.random(rows) < rare, 7, rng.integers(3, size=rows))
    said = [np.where(rng.random(rows) < 0.01, rng.integers(3, size=rows), truth) for _ in range(4)]
    if is_lost:
        said[2:] = [np.where(each == 7, 0, each) for each in said[2:]]
    a, again, b, other = (Batch.from_columns({"outputs.label": each}, model="m", rows=rows) for each in said)
    pair = PairedAnswers(a, b, np.ones(rows), [""] * rows, np.arange(rows), again, other)
    found = StreamComparison.of(pair, Ruler())
    assert StreamComparison.from_dict(found.to_dict()).to_dict() == found.to_dict()
    return verdict_of(found, margin=0.02)


def test_a_class_rarer_than_the_margin_is_compared_among_its_own_records_or_named() -> None:
    lost, kept, few = (
        rare_class(is_lost=True), rare_class(is_lost=False), rare_class(is_lost=True, rare=0.0005)
    )  # fmt: skip
    assert (lost.word, list(lost.apart)) == ("different", ["7"])
    assert "of '7' it changes" in details_sentence(lost)
    assert (kept.word, few.word) == ("same", "same")
    assert "too rare to see a change: '7'" in details_sentence(few)


@given(
    st.lists(st.lists(st.integers(0, 300), min_size=6, max_size=6), min_size=1, max_size=9),
    st.integers(64, 200),
)
def test_exchanged_words_of_answers_drawn_alike_are_no_difference_on_average(
    apart: list[list[int]], size: int
) -> None:
    own, other, *cross = np.array(apart, dtype=np.float64).T / size
    a, b, c, d = cross
    pairings = (
        ([a, b, c, d], own, other),
        ([own, b, c, other], a, d),
        ([a, own, other, d], b, c),
    )
    found = [held_excess(*each, one=1 / ITEMS) for each in pairings]
    assert np.abs(np.sum(found, axis=0)).max() < 1e-9


@pytest.mark.parametrize("exchanged", [1, 10])
def test_an_answer_of_fixed_wording_counts_once_however_many_words_it_exchanges(exchanged: int) -> None:
    rows = 1000
    said = [" ".join(f"w{row % 7}{at}" for at in range(40)) for row in range(rows)]
    other = [
        " ".join(
            f"new{at}" if row % 10 == 0 and at < exchanged else word for at, word in enumerate(text.split())
        )
        for row, text in enumerate(said)
    ]
    one, two = (Batch.from_columns({"outputs.text": each}, model="m", rows=rows) for each in (said, other))
    pair = PairedAnswers(one, two, np.ones(rows), [""] * rows, np.arange(rows), one, two)
    found = StreamComparison.of(pair, Ruler("text", is_text=True))
    told = verdict_of(found, margin=0.02).measures["words"]
    assert told.value == pytest.approx(0.1)


def test_facts_of_a_text_are_the_same_whatever_its_form() -> None:
    assert facts_of("Within thirty days, for 1,000 dollars.") == facts_of("$1000... 30 days")
    assert facts_of("您可以在30天内退货") == ["30 day"]
    assert facts_of('{"days": 30}') == ["30"]
    assert facts_of("1. first\n2. second") == []


def test_a_declaration_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"agree: words, facts, a path of JSON"):
        checked_agree(["decision"])
    assert checked_agree(["embedding", "facts"]) == ("embedding", "facts")


def labelled_scores(change: float, rows: int = 1000, *, spread: float = 0.5) -> CandidateVerdict:
    """Equal classes with scores, those of the candidate apart by a change."""
    rng = np.random.default_rng(2)
    label, score = rng.integers(3, size=rows), 0.5 + spread * rng.random(rows)
    sides = [
        Batch.from_columns({"outputs.label": label, "outputs.score": each}, model="m", rows=rows)
        for each in (score, score * (1.0 + change * rng.choice([-1.0, 1.0], rows)))
    ]
    quarter = np.arange(0, rows, 4)
    again = [each.take(quarter) for each in sides]
    pair = PairedAnswers(sides[0], sides[1], np.ones(rows), [""] * rows, quarter, again[0], again[1])
    return verdict_of(StreamComparison.of(pair, Ruler().at(sides[0])), margin=0.02)


def test_scores_beside_a_label_turn_same_into_close_and_are_named_but_raise_no_difference() -> None:
    for spread in (0.5, 0.0):
        rounded, equal = labelled_scores(1e-6, spread=spread), labelled_scores(0.0, spread=spread)
        assert (rounded.word, equal.word, [*rounded.measures]) == ("same", "same", ["label"])
        assert details_sentence(rounded) == ""
    apart = labelled_scores(0.05)
    assert (apart.word, apart.decided_by, apart.shown["score"].word) == ("close", "label", "different")
    assert details_sentence(apart).startswith("; its score differs beyond the tolerance in 100 % (")


def test_a_declaration_about_texts_leaves_classes_to_themselves() -> None:
    label = np.arange(1000) % 3
    one, two = (Batch.from_columns({"outputs.label": label}, model="m", rows=1000) for _ in range(2))
    pair = PairedAnswers(one, two, np.ones(1000), [""] * 1000, np.arange(1000), one, two)
    comparison = StreamComparison.of(pair, Ruler(agree=("facts",)))
    assert verdict_of(comparison, margin=0.02, agree=("facts",)).word == "same"
    assert stream_verdict(comparison, margin=0.02, agree=("facts",)).decided_by == "label"


@pytest.mark.parametrize("agree", ["facts", "$.decison", "classes=approved,rejected"])
def test_a_declaration_that_no_answer_holds_says_nothing_of_texts_with_scores_either(agree: str) -> None:
    said = {"outputs.text": ['{"decision": "wait"}'] * 2000, "outputs.logprob": np.linspace(-2.0, -1.0, 2000)}
    one, two = (Batch.from_columns(said, model="m", rows=2000) for _ in range(2))
    pair = PairedAnswers(one, two, np.ones(2000), [""] * 2000, np.arange(2000), one, two)
    ruler = Ruler("text", is_text=True, agree=(agree,)).at(one)
    assert "score" in StreamComparison.of(pair, ruler).measures
    for found in (
        verdict_of(StreamComparison.of(pair, ruler), margin=0.02, agree=ruler.agree),
        stream_verdict(StreamComparison.of(pair, ruler), margin=0.02, agree=ruler.agree),
    ):
        assert found.word == "undecided"
