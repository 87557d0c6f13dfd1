"""Two text classifiers under assertions: sentiment of airline tweets, intents of clinc150."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from benchmarks.data import data_folder

from ._mlp import Mlp, fit
from ._rounds import Seen

POOL, WIDTH = 6000, 200
GOOD = {
    *("thank", "thanks", "love", "great", "awesome", "best", "good", "amazing", "appreciate", "excellent"),
    *("happy", "nice", "perfect", "wonderful"),
}
BAD = {
    *("delayed", "delay", "cancelled", "cancel", "hold", "hours", "worst", "not", "no", "never", "lost"),
    *("rude", "bad", "terrible", "waiting", "wait", "why", "fail", "horrible", "refund", "poor", "stuck"),
    *("ridiculous", "nothing", "missed"),
}
Floats = NDArray[np.floating]
Ints = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts as vectors, their classes, and how a classifier starts on them.

    Attributes
    ----------
    words, characters
        TF-IDF of words (1-2) and of characters (2-4) by truncated SVD, unit length, shape (texts, 200).
    hint
        What a lexicon says for each class, 0.0 nothing, shape (texts, classes); None without a lexicon.
    first, test
        Texts that labels may come from, and those that accuracy is measured on.
    start
        Texts labelled from the start.
    unsure
        The model is unsure below this top probability.
    """

    y: Ints
    words: Floats
    characters: Floats
    hint: Floats | None
    first: Ints
    test: Ints
    start: int
    unsure: float
    epochs: int
    batch: int


def tweets() -> Corpus:
    """Sentiment in order of time, the last 30 % for the test; 300 labels to start with."""
    frame = pd.read_parquet(data_folder("airline_tweets") / "tweets.parquet")
    frame = frame.sort_values("created", kind="stable")
    words = [{*"".join(c if c.isalnum() else " " for c in text.lower()).split()} for text in frame.text]
    hint = np.zeros((len(words), 3))
    hint[:, 0] = [len(found & BAD) for found in words]
    hint[:, 2] = [len(found & GOOD) for found in words]
    cut = int(0.7 * len(words))
    rows = np.arange(len(words))
    y = np.array(["negative", "neutral", "positive"]).searchsorted(frame.label.to_numpy(dtype=str))
    vectors = _vectors(frame.text.to_numpy(dtype=object), rows[:cut])
    return Corpus(y, *vectors, hint, rows[:cut], rows[cut:], start=300, unsure=0.6, epochs=40, batch=32)


def intents() -> Corpus:
    """150 intents in scope; 3,000 labels to start with, as a service has that is already at work."""
    frame = pd.read_parquet(data_folder("clinc150") / "data_full.parquet")
    frame = frame[frame.split.isin(["train", "test"])]
    _, y = np.unique(frame.label.to_numpy(dtype=str), return_inverse=True)
    first, test = (np.flatnonzero(frame.split == split) for split in ("train", "test"))
    vectors = _vectors(frame.text.to_numpy(dtype=object), first)
    return Corpus(y, *vectors, None, first, test, start=3000, unsure=0.4, epochs=15, batch=64)


def _vectors(texts: NDArray[np.object_], first: Ints) -> tuple[Floats, Floats]:
    ways: tuple[dict[str, Any], ...] = (
        {"ngram_range": (1, 2), "min_df": 2},
        {"analyzer": "char_wb", "ngram_range": (2, 4), "min_df": 5},
    )
    found = []
    for way in ways:
        counted = TfidfVectorizer(sublinear_tf=True, **way).fit(texts[first])
        svd = TruncatedSVD(WIDTH, n_iter=2, random_state=0).fit(counted.transform(texts[first[::2]]))
        found.append(normalize(svd.transform(counted.transform(texts))).astype(np.float32))
    return found[0], found[1]


@dataclass(frozen=True, slots=True)
class Twins:
    """The classifier, on words, and its twin on characters."""

    model: Mlp
    twin: Mlp


class TextTask:
    """One seed of one corpus: the twin disagrees, the model is unsure, a lexicon says otherwise."""

    groups = None
    pool_rows = POOL

    def __init__(self, corpus: Corpus, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(corpus.first)
        self._corpus, self._seed = corpus, seed
        self._start, self._pool = order[: corpus.start], order[corpus.start : corpus.start + POOL]

    def fit(self, chosen: Sequence[int]) -> Twins:
        """Both on the first labels and the chosen ones."""
        rows = np.concatenate([self._start, self._pool[np.array(chosen, dtype=np.intp)]])
        models = [self._fitted(x, rows) for x in (self._corpus.words, self._corpus.characters)]
        return Twins(*models)

    def _fitted(self, x: Floats, rows: Ints) -> Mlp:
        c = self._corpus
        classes = int(c.y.max()) + 1
        return fit(
            x[rows], c.y[rows], classes=classes, seed=self._seed, epochs=c.epochs, batch=c.batch, rate=3e-3
        )

    def look(self, model: Twins) -> Seen:
        """Two or three severities and what policies may know of the model."""
        c, pool = self._corpus, self._pool
        probabilities = model.model.probabilities(c.words[pool])
        other = model.twin.probabilities(c.characters[pool])
        answer, top = probabilities.argmax(axis=1), probabilities.max(axis=1)
        severities = [
            np.where(other.argmax(axis=1) != answer, other.max(axis=1), 0.0),
            np.maximum(c.unsure - top, 0.0),
        ]
        if c.hint is not None:
            hint = c.hint[pool]
            severities.append(np.maximum(hint.max(axis=1) - hint[np.arange(len(pool)), answer], 0.0))
        embeddings = model.model.embed(c.words[pool])
        return Seen(np.column_stack(severities), answer != c.y[pool], 1.0 - top, embeddings, probabilities)

    def scores(self, model: Twins) -> list[float]:
        """Accuracy on the test set."""
        c = self._corpus
        return [float((model.model.probabilities(c.words[c.test]).argmax(axis=1) == c.y[c.test]).mean())]
