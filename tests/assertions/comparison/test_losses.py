import numpy as np
import pytest
from sklearn.metrics import log_loss

from outrider.assertions.comparison.losses import LOSSES, loss_of_target, losses
from outrider.assertions.statistics.set_figures import SET_FIGURES
from outrider.monitor.settings.gate_sections import GateSettings


def test_logarithmic_losses_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    shares, labels = rng.dirichlet([1.0, 1.0, 1.0], size=200), rng.integers(0, 3, 200)
    names = ["a", "b", "c"]
    found = losses("log", shares, [names[label] for label in labels], classes=names)
    assert found.mean() == pytest.approx(log_loss(labels, shares))
    assert losses("log", [[1.0, 0.0]], ["b"], classes=["a", "b"])[0] == pytest.approx(-np.log(1e-15))
    assert np.isnan(losses("log", [[1.0, 0.0]], ["c"], classes=["a", "b"])[0])
    with pytest.raises(ValueError, match=r"shape \(rows, 3\) expected, got \(1, 2\)"):
        losses("log", [[0.5, 0.5]], ["a"], classes=names)


@pytest.mark.parametrize("scores", [[1.0, 1.0], [4.0, -3.0], [0.2, 0.2], [9.0, 1.0]])
def test_scores_that_are_no_probabilities_have_no_logarithmic_loss(scores: list[float]) -> None:
    with pytest.raises(ValueError, match=r"that sum to 1 expected, got others for 1 of"):
        losses("log", [[0.5, 0.5], scores], ["a", "b"], classes=["a", "b"])


def test_probabilities_that_were_rounded_gain_nothing_by_it_and_missing_ones_cannot_be_compared() -> None:
    shares = [[0.52, 0.52], [np.nan, 0.5], None]
    found = losses("log", shares, ["a", "a", "b"], classes=["a", "b"])
    assert found.tolist() == [pytest.approx(np.log(2)), np.inf, np.inf]


@pytest.mark.parametrize(
    ("answer", "label", "loss"),
    [
        ("The cat sat", "the cat sat", 0.0),
        ("a a b", "a b b", 1 - 2 * 2 / 6),
        ("dog", "cat", 1.0),
        ("", "", 0.0),
        (None, "cat", 1.0),
        ("cat", None, np.nan),
    ],
)
def test_losses_of_words(answer: str | None, label: str | None, loss: float) -> None:
    assert losses("token_f1", [answer], [label])[0] == pytest.approx(loss, nan_ok=True)


def test_losses_of_numbers_and_classes() -> None:
    said, truth = [1.0, None, 2.5, np.inf, 4.0], [0.5, 1.0, None, 1.0, 4]
    assert losses("absolute", said, truth).tolist()[:2] == [0.5, np.inf]
    assert np.isnan(losses("squared", said, truth)[2])
    assert losses("squared", said, truth)[[0, 3, 4]].tolist() == [0.25, np.inf, 0.0]
    found = losses("error", ["1", "0", None, "1"], [1, 1, 1, None], classes=[0, 1])
    assert found.tolist()[:3] == [0.0, 1.0, 1.0]
    assert np.isnan(found[3])
    assert loss_of_target([0.5, 1.0], [1.0, 2.0], (0, 1)) == "error"


def test_settings_know_the_losses() -> None:
    assert [GateSettings(loss=loss).loss for loss in ("auto", *LOSSES, *SET_FIGURES, "own.py:mine")]
    with pytest.raises(ValueError, match=r"one of auto, error, absolute, squared, token_f1, log"):
        GateSettings(loss="mae")
