"""Two models of income, fitted on the first 24,000 rows when they are first asked.

``reference`` is gradient boosting on everything. ``mitigated`` never learns the sex, nor whether a spouse is
a husband or a wife, and is trained on costs that make selecting men dearer and selecting women cheaper, by as
much as equal selection needs: the reduction of demographic parity to cost-sensitive classification (Agarwal
et al., "A Reductions Approach to Fair Classification", ICML 2018) with one multiplier, found on a quarter of
the training rows. The sex is used to train it, not to decide.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

TRAINING_ROWS = 24_000
TARGET = "income"
SPOUSE = {"Husband": "Spouse", "Wife": "Spouse"}
MULTIPLIERS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.32, 0.34, 0.36)
LARGEST_GAP = 0.05
"""In selection rates, on the rows that choose the multiplier; half of what the suite allows."""


@cache
def census() -> pd.DataFrame:
    """The rows of the file that ``ADULT_CENSUS`` names, or of ``adult.parquet`` beside this file."""
    path = Path(os.environ.get("ADULT_CENSUS", Path(__file__).parent / "adult.parquet"))
    return pd.read_parquet(path)


class Boosted:
    """Gradient boosting on sorted category codes; ``drop`` names the columns that it must not see."""

    def __init__(self, drop=(), merge=None):
        self._drop, self._merge = list(drop), merge or {}
        frame = self._prepared(census())
        self._categories = {
            name: sorted(frame[name].unique())
            for name in frame
            if not pd.api.types.is_numeric_dtype(frame[name])
        }
        self._model = HistGradientBoostingClassifier(
            random_state=0, categorical_features=list(self._categories)
        )

    def fit(self, frame, truth, weights=None):
        """Learn from rows of the census; returns itself."""
        self._model.fit(self._codes(frame), truth, sample_weight=weights)
        return self

    def selects(self, frame):
        """Whether each row is said to earn more than 50,000."""
        return self._model.predict(self._codes(frame)).astype(bool)

    def _prepared(self, frame):
        kept = frame.drop(columns=[TARGET, *self._drop], errors="ignore")
        return kept.assign(relationship=kept["relationship"].replace(self._merge))

    def _codes(self, frame):
        prepared = self._prepared(frame)
        codes = {
            name: pd.Categorical(prepared[name], values).codes for name, values in self._categories.items()
        }
        return prepared.assign(**codes)


@cache
def fit_reference():
    """Fit on everything."""
    train = census()[:TRAINING_ROWS]
    return Boosted().fit(train, train[TARGET] == ">50K")


@cache
def fit_mitigated():
    """Fit with the smallest multiplier that brings the selection rates together."""
    train = census()[:TRAINING_ROWS]
    first, rest = train[: TRAINING_ROWS * 3 // 4], train[TRAINING_ROWS * 3 // 4 :]
    for multiplier in MULTIPLIERS:
        selected = _fit_with_costs(first, multiplier).selects(rest)
        men = (rest["sex"] == "Male").to_numpy()
        if abs(selected[men].mean() - selected[~men].mean()) <= LARGEST_GAP:
            break
    return _fit_with_costs(train, multiplier)


def _fit_with_costs(frame, multiplier):
    """Selecting costs men ``multiplier / P(man)`` more, and women ``multiplier / P(woman)`` less."""
    men = (frame["sex"] == "Male").to_numpy()
    gain = np.where(frame[TARGET] == ">50K", 1.0, -1.0)
    gain -= multiplier * np.where(men, 1 / men.mean(), -1 / (~men).mean())
    return Boosted(drop=["sex"], merge=SPOUSE).fit(frame, gain > 0, np.abs(gain))


def reference(batch):
    """Answer without a thought of fairness."""
    return _answers(fit_reference(), batch)


def mitigated(batch):
    """Answer alike to men and women."""
    return _answers(fit_mitigated(), batch)


def _answers(model, batch):
    return {"label": np.where(model.selects(batch.inputs), ">50K", "<=50K").astype(object)}
