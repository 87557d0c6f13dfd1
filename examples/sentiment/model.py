"""A sentiment model as plain arrays: TF-IDF of words and their pairs, logistic regression, three classes."""

from functools import cache
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

WEIGHTS = Path(__file__).with_name("model.npz")
NEUTRAL = (1 / 3, 2 / 3)
"""Probability of positive within which the answer is neutral, as in CheckList's tutorial."""


def vectorizer(words=None):
    """How texts become features; the vocabulary is learned, or given."""
    least = 2 if words is None else 1
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=least, vocabulary=words)


@cache
def _model():
    with np.load(WEIGHTS, allow_pickle=False) as arrays:
        features = vectorizer(arrays["words"].tolist())
        features.idf_ = arrays["idf"]
        return features, arrays["weights"], float(arrays["bias"])


def positive(texts):
    """Probability of positive, shape (texts,)."""
    features, weights, bias = _model()
    return 1 / (1 + np.exp(-(features.transform(texts) @ weights + bias)))


def predict(batch):
    """0 negative, 1 neutral, 2 positive, and a probability for each."""
    p = positive(batch.column("inputs.text").tolist())
    probs = three_classes(p)
    return {"label": probs.argmax(axis=1), "probs": probs}


def three_classes(p):
    """Probabilities of negative, neutral and positive, shape (texts, 3)."""
    low, high = NEUTRAL
    neutral = np.where((p > low) & (p < high), 1 - 3 * np.abs(p - 0.5), 0.0)
    sure = (p <= low) | (p >= high)
    above = np.where(sure, p, np.where(p >= 0.5, 1 - neutral, 0.0))
    below = np.where(sure, 1 - p, np.where(p < 0.5, 1 - neutral, 0.0))
    return np.stack([below, neutral, above], axis=1)
