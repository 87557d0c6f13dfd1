"""What a shadow test recommends follows from what it found, the deciding reason first."""

import pytest

from outrider.assertions.agreement import Agreement, Share, Verdict
from outrider.dataops.improvement.recommendation import Found, Sides, recommend


def agreement(verdict: Verdict) -> Agreement:
    share = Share(0.995, 0.99, 1.0, 4000)
    noise = Share(0.001, 0.0, 0.01, 400)
    return Agreement(share, noise, noise, share, verdict)


BETTER, WORSE = Sides(300, 40, 3), Sides(300, 3, 40)


@pytest.mark.parametrize(
    ("found", "advice", "reason"),
    [
        (Found(), "undecided", "no record was answered by both"),
        (Found(agreement("same")), "keep", "nothing would be gained"),
        (Found(agreement("same"), smaller=0.5), "promote", "no difference beyond noise"),
        (Found(agreement("close"), smaller=0.5), "promote", "within 1.00%"),
        (Found(agreement("close"), smaller=0.95), "keep", "nothing would be gained"),
        (Found(agreement("different"), smaller=0.5), "keep", "no labels prove the challenger better"),
        (Found(agreement("different"), labels=BETTER), "promote", "right oftener"),
        (Found(agreement("undecided"), smaller=0.5), "undecided", "not known well enough"),
        (Found(agreement("same"), labels=WORSE, smaller=0.5), "keep", "wrong oftener"),
        (Found(agreement("same"), flags=WORSE, smaller=0.5), "keep", "assertions fire on 40 records"),
        (Found(agreement("same"), regressions=("test_a",), smaller=0.5), "keep", "fails behavioral tests"),
        (Found(agreement("same"), out="hangs", smaller=0.5), "keep", "does not answer: hangs"),
    ],
)
def test_the_deciding_reason_comes_first(found: Found, advice: str, reason: str) -> None:
    said, reasons = recommend(found, margin=0.01)
    assert (said, reason in reasons[0]) == (advice, True), reasons


def test_a_few_labels_prove_nothing() -> None:
    advice, reasons = recommend(Found(agreement("same"), labels=Sides(20, 0, 3)), margin=0.01)
    assert advice == "keep"
    assert "nothing would be gained" in reasons[0]
