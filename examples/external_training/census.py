"""The census model: features, training, and the first version (``python census.py adult.parquet``)."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from skl2onnx import to_onnx
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

FIRST_ROWS = 200
"""The first version learned from few people, and of their age and hours alone."""


def features(frame):
    """Inputs of the model, by name, from the rows of the data set."""
    found = frame.rename(columns=lambda name: name.replace("-", "_"))
    names = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
    return found[names].assign(married=found["marital_status"].str.startswith("Married").astype(int))


def first(x, y):
    """The first version."""
    narrow = np.zeros_like(x)
    narrow[:, [0, 4]] = x[:, [0, 4]]
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(narrow, y)


def better(x, y, *, seed, progress):
    """A model of all inputs, which tells how it goes."""
    model = GradientBoostingClassifier(n_estimators=60, random_state=seed)
    return model.fit(x, y, monitor=lambda step, own, _: progress(step + 1, 60, own.train_score_[step]))


def as_onnx(model, width):
    """The bytes of an ONNX file with probabilities as one table."""
    estimator = model[-1] if hasattr(model, "steps") else model
    options = {id(estimator): {"zipmap": False}}
    return to_onnx(model, np.zeros((1, width), np.float32), options=options).SerializeToString()


if __name__ == "__main__":
    rows = pd.read_parquet(sys.argv[1])[:FIRST_ROWS]
    x = features(rows).to_numpy(np.float32)
    Path("census_1.onnx").write_bytes(as_onnx(first(x, rows["income"].to_numpy(str)), x.shape[1]))
