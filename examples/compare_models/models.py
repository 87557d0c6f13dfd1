"""The model in production and two that may replace it, fitted when they are first asked."""

from functools import cache

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

INPUTS = ("radius", "texture", "smoothness", "concavity")


@cache
def measurements():
    """Measurements of tumours, shape (569, 4), and what they were."""
    data = load_breast_cancer()
    names = [name.replace("mean ", "") for name in data.feature_names]
    columns = [names.index(name) for name in INPUTS]
    return data.data[:, columns], data.target_names[data.target]


@cache
def _fitted(model):
    return model().fit(*measurements())


def production(batch):
    """Gradient boosting, as it runs today."""
    return _answers(HistGradientBoostingClassifier, _inputs(batch))


def twin(batch):
    """The same model behind half precision: what a cheaper machine would answer."""
    return _answers(HistGradientBoostingClassifier, _inputs(batch).astype(np.float16).astype(np.float64))


def _linear():
    return make_pipeline(StandardScaler(), LogisticRegression())


def linear(batch):
    """A model that is a hundred times smaller."""
    return _answers(_linear, _inputs(batch))


def _inputs(batch):
    return np.stack([batch.column(f"inputs.{name}") for name in INPUTS], axis=1)


def _answers(model, values):
    return {"label": _fitted(model).predict(values).astype(object)}
