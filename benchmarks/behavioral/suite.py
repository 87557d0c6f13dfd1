"""CheckList's sentiment suite (38 tests, 178,578 examples): run and summary, against CheckList's own way.

Two questions. With a model that costs nothing, what does the suite cost per example, beside CheckList's steps
over the same cases (``_checklist.py``)? Both must count the same failures in every test. With a real one
(TF-IDF and logistic regression, trained on SST-2), what does the suite add to the CPU seconds that the model
itself takes for the same batches? Everything but ``predict_proba`` counts as added.
"""

import gzip
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.behavioral._checklist import PeerTest
from benchmarks.behavioral._medians import medians
from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.assertions import Batch, Predictor
from outrider.behavioral_tests import Suite, load_suite
from outrider.behavioral_tests.report import failure_lines, matrix_lines
from outrider.behavioral_tests.suite_file import write
from outrider.behavioral_tests.suite_file.checklist import read_checklist

RUNS = 5
PROBS = np.array([[0.8, 0.15, 0.05], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]])


def by_length(batch: Batch) -> dict[str, NDArray[Any]]:
    """Class and probabilities that go by the length of a text: next to nothing to compute, many failures."""
    label = pc.utf8_length(batch.arrow("inputs.text")).to_numpy(zero_copy_only=False) % 3
    return {"label": label, "probs": PROBS[label]}


def by_length_peer(texts: Sequence[str]) -> tuple[Sequence[int], Sequence[NDArray[Any]]]:
    """The same for the peer."""
    labels = [len(text) % 3 for text in texts]
    return labels, [PROBS[label] for label in labels]


def our_suite(source: Path) -> Suite:
    """The suite, its cases in memory as the peer's are."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "sentiment.suite.json"
        write(read_checklist(source)[0], path)
        return load_suite(path)


def run_ours(suite: Suite, predictor: Predictor) -> list[int]:
    """Run every test, write matrix and worst examples; failures by test."""
    outcomes = suite.run(predictor)
    lines = matrix_lines(outcomes) + [line for outcome in outcomes for line in failure_lines(outcome)]
    assert len(lines) > len(outcomes)
    return [outcome.failures for outcome in outcomes]


def run_peer(tests: Sequence[PeerTest]) -> list[int]:
    """The same the peer's way."""
    for test in tests:
        test.run(by_length_peer)
    lines = [line for test in tests for line in test.summary()]
    assert len(lines) > len(tests)
    return [test.fails for test in tests]


class Sentiment:
    """TF-IDF and logistic regression; ``seconds`` is CPU time of the model itself."""

    def __init__(self) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        train = pq.read_table(data_folder("sst2") / "train.parquet", columns=["text", "label"]).to_pandas()
        self.model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(max_iter=200))
        self.model.fit(train["text"].tolist(), train["label"].to_numpy())
        self.seconds = 0.0

    def __call__(self, batch: Batch) -> dict[str, NDArray[Any]]:
        """Class and probabilities of negative, neutral (never) and positive."""
        texts = batch.column("inputs.text")
        start = time.process_time()
        positive = self.model.predict_proba(texts)[:, 1]
        self.seconds += time.process_time() - start
        probs = np.stack([1 - positive, np.zeros(len(positive)), positive], axis=1)
        return {"label": np.where(positive > 0.5, 2, 0), "probs": probs}


def overhead(suite: Suite, model: Sentiment) -> tuple[float, float]:
    """CPU seconds of one run with its summary, and those of the model in it."""
    model.seconds = 0.0
    start = time.process_time()
    run_ours(suite, model)
    return time.process_time() - start, model.seconds


def main() -> None:
    """Both figures."""
    source = data_folder("checklist") / "sentiment_suite.jsonl.gz"
    with gzip.open(source) as lines:
        peer = [PeerTest(json.loads(line)) for line in lines]
    suite = our_suite(source)
    rows = sum(outcome.asked for outcome in suite.run(by_length))
    if run_ours(suite, by_length) != run_peer(peer):
        raise RuntimeError("the two count different failures: they do not do the same work")
    theirs_s, ours_s = medians([lambda: run_peer(peer), lambda: run_ours(suite, by_length)], RUNS)
    against = f"CheckList's steps, {1e6 * theirs_s / rows:.3g} µs"
    Figure("behavioral.suite", 1e6 * ours_s / rows, "µs an example", against, theirs_s / ours_s, 1.0).show()

    model = Sentiment()
    runs = [overhead(suite, model) for _ in range(RUNS)]
    more = median((total - inside) / inside for total, inside in runs)
    took = median(inside for _, inside in runs)
    against = f"5 % of the model's own {took:.3g} s ({1e6 * took / rows:.3g} µs an example)"
    Figure("behavioral.suite.overhead", 100 * more, "% above the model", against, 0.05 / more, 1.0).show()


if __name__ == "__main__":
    main()
