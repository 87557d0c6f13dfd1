"""What the text and LLM assertions find on real data: ``python -m benchmarks.assertions.llm``.

With ``--fit`` it first fits the shipped weights anew and writes them into the package. Groundedness is fitted
on wow_dev alone; the refusal figures are of weights fitted on the two other models.
"""

import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.assertions import _llm_fit as fit
from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.assertions import Assertion, Batch
from outrider.assertions.library import groundedness, llm, text
from outrider.behavioral_tests.statistics import wilson_interval

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DRAWS = 2000
TARGET_AUROC, TARGET_ARITHMETIC = 0.945, 0.93
BEGIN = "BEGIN wow_test, weights fitted on wow_dev"
GSM8K = "GSM8K, 2,640 solutions of four models"
FINAL_LINE = r"A: -?[\d,]+(?:\.\d+)?"


def paired_intervals(
    truth: Bools, score: Floats, baseline: Floats, *, draws: int = DRAWS, seed: int = 0
) -> tuple[tuple[float, float], tuple[float, float]]:
    """95 % intervals of AUROC(score) and of its gain over the baseline, both drawn on the same records."""
    rng = np.random.default_rng(seed)
    areas = np.empty((draws, 2))
    for at in range(draws):
        drawn = rng.integers(0, len(truth), len(truth))
        areas[at] = auroc(truth[drawn], score[drawn]), auroc(truth[drawn], baseline[drawn])
    own = np.quantile(areas[:, 0], [0.025, 0.975]).tolist()
    gain = np.quantile(areas[:, 0] - areas[:, 1], [0.025, 0.975]).tolist()
    return (own[0], own[1]), (gain[0], gain[1])


def auroc(truth: Bools, score: Floats) -> float:
    """Area under the ROC curve by midranks."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    positive = int(truth.sum())
    return float((rank[truth].sum() - positive * (positive + 1) / 2) / (positive * (len(truth) - positive)))


def groundedness_figures(*, draws: int = DRAWS) -> list[Figure]:
    """Weights of wow_dev on wow_test, beside the share of the answer's words that stand in the source."""
    test = fit.dialogue("wow_test")
    X, truth = fit.dialogue_features(test), test["attributable"].to_numpy()
    score, overlap = groundedness.Weights.shipped().probability(X), X[:, 0]
    assert np.isclose(roc_auc_score(truth, score), auroc(truth, score))
    plain = auroc(truth, overlap)
    (low, high), (least, most) = paired_intervals(truth, score, overlap, draws=draws)
    flagged = score < 0.5
    against = f"share of words found, {plain:.4f}"
    value = auroc(truth, score)
    return [
        Figure(
            "assertions.llm.groundedness",
            value,
            "AUROC",
            against,
            value / plain,
            TARGET_AUROC / plain,
            n=len(truth),
            low=low,
            high=high,
            data=BEGIN,
        ),
        Figure("assertions.llm.overlap", plain, "AUROC", "1", plain, n=len(truth), data=BEGIN),
        Figure(
            "assertions.llm.groundedness.gain",
            value - plain,
            "AUROC",
            against,
            value / plain,
            1.0,
            n=len(truth),
            low=least,
            high=most,
            data=BEGIN,
        ),
        _share("ungrounded.precision", ~truth[flagged], "share of flags", BEGIN),
        _share("ungrounded.recall", flagged[~truth], "share of ungrounded", BEGIN),
    ]


def _share(name: str, hits: Bools, unit: str, data: str) -> Figure:
    """Share with its Wilson interval."""
    low, high = wilson_interval(int(hits.sum()), len(hits))
    share = float(hits.mean())
    return Figure(
        f"assertions.llm.{name}", share, unit, "1", share, n=len(hits), low=low, high=high, data=data
    )


def refusal_figures() -> list[Figure]:
    """Agreement with people's verdict (three kinds), each model judged by weights of the two others."""
    frame = fit.completions()
    X = fit.completion_features(frame)
    judged = fit.judged_by_others(frame, X, fit.refusal_strength(frame, X))
    figures = []
    for model, rows in frame.groupby("model").indices.items():
        kind, keyword = frame["kind"].to_numpy()[rows], frame["keyword"].to_numpy()[rows]
        own, plain = float((judged[rows] == kind).mean()), float((keyword == kind).mean())
        against = f"keyword match, {plain:.3f}"
        low, high = wilson_interval(int((judged[rows] == kind).sum()), len(rows))
        figures.append(
            Figure(
                f"assertions.llm.refusal.{model}",
                own,
                "agreement",
                against,
                own / plain,
                1.0,
                n=len(rows),
                low=low,
                high=high,
                data="XSTest, weights of the two other models",
            )
        )
        figures.append(_share(f"keywords.{model}", keyword == kind, "agreement", "XSTest"))
    not_complied, flagged = frame["kind"].to_numpy() != "complied", judged != "complied"
    figures.append(_share("refusal.precision", not_complied[flagged], "share of flags", "XSTest"))
    figures.append(_share("refusal.recall", flagged[not_complied], "share of refusals", "XSTest"))
    return figures


def solutions() -> tuple[Batch, Bools]:
    """GSM8K solutions of four models, and which are incorrect."""
    frame = pd.read_parquet(data_folder("gsm8k_model_solutions") / "solutions.parquet")
    batch = Batch.from_columns({"outputs.answer": frame["solution"].tolist()}, model="tutor")
    return batch, ~frame["is_correct"].to_numpy(dtype=bool)


def arithmetic_figures() -> list[Figure]:
    """Share of flagged solutions whose final answer is wrong."""
    batch, incorrect = solutions()
    kinds: list[tuple[Assertion, float | None]] = [
        (llm.arithmetic(), TARGET_ARITHMETIC),
        (llm.arithmetic(inline=True, name="arithmetic inline"), None),
        (llm.final_line(FINAL_LINE), None),
    ]
    figures = []
    for one, target in kinds:
        fired = one.severities(batch) > 0
        found = _share(f"{one.name.replace(' ', '_')}.precision", incorrect[fired], "share of flags", GSM8K)
        figures.append(replace(found, target=target))
    return figures


def texts(folder: str, file: str, column: str) -> Batch:
    """One column of texts as answers."""
    values = pd.read_parquet(data_folder(folder) / file)[column].dropna().drop_duplicates()
    return Batch.from_columns({"outputs.answer": values.tolist()}, model="text")


def text_figures() -> list[Figure]:
    """How often the text assertions fire on real English texts."""
    sources = [
        texts("airline_tweets", "tweets.parquet", "text"),
        texts("clinc150", "data_full.parquet", "text"),
        texts("halueval_general", "general.parquet", "chatgpt_response"),
    ]
    figures = []
    for one in (text.language("en"), text.repetition(), text.personal_data(known=None)):
        for name, batch in zip(("airline_tweets", "clinc150", "halueval_general"), sources, strict=True):
            fired = int((one.severities(batch) > 0).sum())
            low, high = (1000 * end for end in wilson_interval(fired, batch.rows))
            rate, against = 1000 * fired / batch.rows, f"1,000 texts; {fired} of {batch.rows}"
            stem = f"assertions.llm.{one.name}.{name}"
            figures.append(
                Figure(
                    stem, rate, "fired per 1,000", against, rate, n=batch.rows, low=low, high=high,
                    data=f"{name}, English texts",
                )
            )  # fmt: skip
    return figures


def cost_figures(*, runs: int = 5) -> list[Figure]:
    """Microseconds per record in blocks of 1,000 answers, medians; against reading the texts' lengths."""
    batch, _ = solutions()
    frame = fit.dialogue("wow_test").head(1000)
    grounded = Batch.from_columns(
        {"inputs.passages": frame["knowledge"].tolist(), "outputs.answer": frame["response"].tolist()},
        model="m",
    )
    answers = texts("halueval_general", "general.parquet", "chatgpt_response").slice(0, 1000)
    block = batch.slice(0, 1000)
    jobs: list[tuple[Assertion, Batch]] = [
        *(
            (one, answers)
            for one in (text.length(), text.language(), text.repetition(), text.personal_data())
        ),
        (llm.ungrounded(), grounded),
        (llm.refusal(), answers),
        *((one, block) for one in (llm.arithmetic(), llm.arithmetic(inline=True, name="arithmetic inline"))),
        (llm.final_line(FINAL_LINE), block),
        (llm.json_schema(), answers),
    ]
    floor = _micros(text.length(), answers, runs)
    figures = []
    for one, records in jobs:
        cost = _micros(one, records, runs)
        figures.append(
            Figure(
                f"assertions.llm.cost.{one.name.replace(' ', '_')}",
                cost,
                "µs/record",
                f"length, {floor:.2f}",
                cost / floor,
                n=runs,
                data="CPU time of one core, blocks of 1,000 answers, medians",
            )
        )
    return figures


def _micros(one: Assertion, batch: Batch, runs: int) -> float:
    times = []
    for _ in range(runs):
        begin = time.thread_time()
        one.severities(batch)
        times.append(time.thread_time() - begin)
    return float(np.median(times)) / batch.rows * 1e6


def main() -> None:
    """Print every figure."""
    if "--fit" in sys.argv:
        fit.write_weights()
    for figures in (groundedness_figures, refusal_figures, arithmetic_figures, text_figures, cost_figures):
        for figure in figures():
            figure.show()


if __name__ == "__main__":
    main()
