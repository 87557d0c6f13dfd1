"""Threshold of ``ungrounded`` fitted on 50 labelled examples, against its default, on answers never seen.

BEGIN wow_test (no answer of it was used to fit the shipped weights). With several passages the right one
stands among others drawn at random, as retrieval gives them: scores shift, and the default with them.
"""

import numpy as np

from benchmarks.assertions._llm_fit import dialogue
from benchmarks.figure import Figure
from outrider.assertions.flags.threshold import fit_threshold
from outrider.assertions.library.groundedness import groundedness

LABELS, DRAWS, DEFAULT = 50, 100, 0.5
PASSAGES = (1, 5, 20)


def main() -> None:
    """Print F1 of default and calibrated threshold, and coverage of the intervals that calibrate gives."""
    frame = dialogue("wow_test")
    wrong = ~frame["attributable"].to_numpy()
    knowledge, answers = frame["knowledge"].to_numpy(dtype=object), frame["response"].tolist()
    for passages in PASSAGES:
        rng = np.random.default_rng(passages)
        others = rng.integers(0, len(frame), (len(frame), passages - 1))
        sources = ["\n".join([*knowledge[row], knowledge[at]]) for at, row in enumerate(others)]
        score = 1.0 - groundedness(sources, answers)
        default, fitted, held = [], [], []
        for seed in range(DRAWS):
            drawn = np.random.default_rng(seed).choice(len(score), LABELS, replace=False)
            rest = np.setdiff1d(np.arange(len(score)), drawn)
            found = fit_threshold(score[drawn], wrong[drawn], seed=seed)
            fired = score[rest] > found.score
            hits = int((fired & wrong[rest]).sum())
            precision, recall = hits / fired.sum(), hits / wrong[rest].sum()
            default.append(_f1(score[rest] > DEFAULT, wrong[rest]))
            fitted.append(2 * precision * recall / (precision + recall))
            pairs = ((found.precision, precision), (found.recall, recall))
            held.append([interval.low <= truth <= interval.high for interval, truth in pairs])
        data = f"BEGIN wow_test, {len(score):,} answers on {passages} passages; {DRAWS} draws of {LABELS}"
        name = f"statistics.calibration.{passages}_passages"
        usual = float(np.mean(default))
        low, high = np.quantile(fitted, [0.025, 0.975]).tolist()
        Figure(f"{name}.default", usual, "F1", "1", usual, n=len(score), data=data).show()
        mean = float(np.mean(fitted))
        Figure(
            f"{name}.calibrated",
            mean,
            "F1",
            f"default, {usual:.3f}",
            mean / usual,
            n=DRAWS,
            low=low,
            high=high,
            data=data,
        ).show()
        for what, share in zip(("precision", "recall"), np.mean(held, axis=0).tolist(), strict=True):
            title = f"{name}.{what}_covered"
            Figure(title, share, "draws", "95 %", share / 0.95, n=DRAWS, data=data).show()


def _f1(fired: np.ndarray, wrong: np.ndarray) -> float:
    return float(2 * (fired & wrong).sum() / (fired.sum() + wrong.sum()))


if __name__ == "__main__":
    main()
