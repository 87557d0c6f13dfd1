"""What the text and LLM assertions find on real data: ``python -m benchmarks.assertions.llm``.

With ``--fit`` it first fits the shipped weights anew and writes them into the package. Groundedness is fitted
on wow_dev alone; the refusal figures are of weights fitted on the two other models.
"""

import sys
import time

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.assertions import _llm_fit as fit
from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.assertions import Assertion, Batch
from outrider.assertions.library import groundedness, llm, text

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DRAWS = 2000
TARGET_AUROC, TARGET_ARITHMETIC = 0.945, 0.93
FINAL_LINE = r"A: -?[\d,]+(?:\.\d+)?"


def paired_lower_end(
    truth: Bools, score: Floats, baseline: Floats, *, draws: int = DRAWS, seed: int = 0
) -> float:
    """Lower end of the 95 % interval of AUROC(score) - AUROC(baseline), both drawn on the same records."""
    rng = np.random.default_rng(seed)
    gains = []
    for _ in range(draws):
        drawn = rng.integers(0, len(truth), len(truth))
        gains.append(auroc(truth[drawn], score[drawn]) - auroc(truth[drawn], baseline[drawn]))
    return float(np.quantile(gains, 0.025))


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
    plain, lower = auroc(truth, overlap), paired_lower_end(truth, score, overlap, draws=draws)
    flagged = score < 0.5
    precision, found = float((~truth[flagged]).mean()), float(flagged[~truth].mean())
    against = f"share of words found, {plain:.4f}"
    value = auroc(truth, score)
    return [
        Figure("assertions.llm.groundedness", value, "AUROC", against, value / plain, TARGET_AUROC / plain),
        Figure(
            "assertions.llm.groundedness gain, lower end of 95 %",
            lower,
            "AUROC",
            against,
            1 + lower / plain,
            1.0,
        ),
        Figure("assertions.llm.ungrounded precision", precision, "share of flags", "1", precision),
        Figure("assertions.llm.ungrounded recall", found, "share of ungrounded", "1", found),
    ]


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
        figures.append(Figure(f"assertions.llm.refusal {model}", own, "agreement", against, own / plain, 1.0))
    not_complied, flagged = frame["kind"].to_numpy() != "complied", judged != "complied"
    precision, found = float(not_complied[flagged].mean()), float(flagged[not_complied].mean())
    figures.append(Figure("assertions.llm.refusal precision", precision, "share of flags", "1", precision))
    figures.append(Figure("assertions.llm.refusal recall", found, "share of refusals", "1", found))
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
        precision = float(incorrect[fired].mean())
        against = (
            f"1; {int(incorrect[fired].sum())} of {int(fired.sum())} flags, base rate {incorrect.mean():.3f}"
        )
        figures.append(
            Figure(f"assertions.llm.{one.name} precision", precision, "share", against, precision, target)
        )
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
            rate, against = fired / batch.rows * 1000, f"1,000 texts; {fired} of {batch.rows}"
            figures.append(
                Figure(f"assertions.text.{one.name} {name}", rate, "fired per 1,000", against, rate / 1000)
            )
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
            Figure(f"assertions.cost {one.name}", cost, "µs/record", f"length, {floor:.2f}", cost / floor)
        )
    return figures


def _micros(one: Assertion, batch: Batch, runs: int) -> float:
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        one.severities(batch)
        times.append(time.perf_counter() - begin)
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
