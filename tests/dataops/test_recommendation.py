"""What a shadow test recommends follows from what it found, the deciding reason first."""

from dataclasses import replace

import pytest

from outrider.assertions.comparison import StreamComparison
from outrider.assertions.comparison.agreement import EVERYTHING, Tally
from outrider.assertions.comparison.verdict import CandidateVerdict, MeasureVerdict, Word, stream_verdict
from outrider.assertions.statistics.difference_sequence import DifferenceSequence
from outrider.assertions.statistics.rate_sequence import RateSequence
from outrider.dataops.improvement.recommendation import DiscordantPairs, ShadowTestFindings, recommend


def agreement(word: Word, *, low: float = 0.0) -> CandidateVerdict:
    found = MeasureVerdict(word, 0.005, low, 0.01, 4000, None, "why", is_noise_known=True)
    return CandidateVerdict(word, "label", None, "why", {"label": found})


BETTER, WORSE = DiscordantPairs(300, 40, 3), DiscordantPairs(300, 3, 40)


@pytest.mark.parametrize(
    ("found", "advice", "reason"),
    [
        (ShadowTestFindings(), "undecided", "no record was answered by both"),
        (ShadowTestFindings(agreement("same")), "keep", "nothing would be gained"),
        (ShadowTestFindings(agreement("same"), smaller=0.5), "promote", "no difference beyond noise"),
        (ShadowTestFindings(agreement("close"), smaller=0.5), "promote", "within 1.00%"),
        (ShadowTestFindings(agreement("close"), smaller=0.95), "keep", "nothing would be gained"),
        (
            ShadowTestFindings(agreement("different"), smaller=0.5),
            "keep",
            "no labels prove the challenger better",
        ),
        (ShadowTestFindings(agreement("different"), labels=BETTER), "promote", "right more often"),
        (ShadowTestFindings(agreement("undecided"), smaller=0.5), "undecided", "not estimated well enough"),
        (ShadowTestFindings(agreement("undecided", low=0.001), smaller=0.5), "keep", "differs beyond noise"),
        (ShadowTestFindings(agreement("same"), labels=WORSE, smaller=0.5), "keep", "wrong more often"),
        (
            ShadowTestFindings(agreement("same"), flags=WORSE, smaller=0.5),
            "keep",
            "assertions fire on 40 records",
        ),
        (
            ShadowTestFindings(agreement("same"), regressions=("test_a",), smaller=0.5),
            "keep",
            "fails behavioral tests",
        ),
        (ShadowTestFindings(agreement("same"), out="hangs", smaller=0.5), "keep", "does not answer: hangs"),
    ],
)
def test_the_deciding_reason_comes_first(found: ShadowTestFindings, advice: str, reason: str) -> None:
    said, reasons = recommend(found, margin=0.01)
    assert (said, reason in reasons[0]) == (advice, True), reasons


def test_a_reason_names_scores_that_differ_and_classes_too_rare_to_see() -> None:
    apart = MeasureVerdict("different", 1.0, 0.9, 1.0, 4000, 0, "", is_noise_known=True)
    close = replace(agreement("close"), shown={"score": apart}, unseen={"fraud": 12})
    advice, reasons = recommend(ShadowTestFindings(close, smaller=0.5), margin=0.01)
    assert advice == "promote"
    assert reasons[0].endswith(
        "'fraud' (12 records); its score differs beyond the tolerance in 100 % (90 to 100)"
    )


def test_a_few_labels_prove_nothing() -> None:
    advice, reasons = recommend(
        ShadowTestFindings(agreement("same"), labels=DiscordantPairs(20, 0, 3)), margin=0.01
    )
    assert advice == "keep"
    assert "nothing would be gained" in reasons[0]


def test_nothing_is_promoted_where_wording_hides_a_change_unless_something_was_declared() -> None:
    varies, never = RateSequence({0: (4000, 3680)}), RateSequence({0: (4000, 0)})
    texts = Tally(varies, varies, varies, DifferenceSequence({0: (0, 0, 200, 0, 3600, 0, 200, 0, 0)}))
    facts = Tally(never, never, never, DifferenceSequence({0: (0, 0, 0, 0, 4000, 0, 0, 0, 0)}))
    found = StreamComparison({("text", EVERYTHING): texts, ("facts", EVERYTHING): facts})
    advice, reasons = recommend(
        ShadowTestFindings(stream_verdict(found, margin=0.01), smaller=0.5), margin=0.01
    )
    assert (advice, "words cannot show a change" in reasons[0]) == ("undecided", True)
    declared = stream_verdict(found, margin=0.01, agree=["facts"])
    assert recommend(ShadowTestFindings(declared, smaller=0.5), margin=0.01)[0] == "promote"
