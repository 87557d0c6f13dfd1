"""Fits the weights that the library ships for groundedness and refusal; a few dozen numbers each."""

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.data import data_folder
from outrider.assertions.library import groundedness
from outrider.assertions.library import refusals as refusal

Floats = NDArray[np.float64]
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0)
KINDS: list[str] = list(refusal.KINDS)
FINAL_LABELS = {
    "1_full_compliance": "complied",
    "2_full_refusal": "refused",
    "3_partial_refusal": "partly refused",
}


def dialogue(part: str) -> pd.DataFrame:
    """Answers of ``wow_dev`` or ``wow_test`` with ``attributable`` as truth."""
    frame = pd.read_parquet(data_folder("begin_grounded_dialogue") / f"{part}.parquet")
    return frame.assign(attributable=frame["begin_label"] == "Fully attributable")


def dialogue_features(frame: pd.DataFrame) -> Floats:
    """Features of every answer, shape (rows, features)."""
    pairs = zip(frame["knowledge"], frame["response"], strict=True)
    return np.array([groundedness.features(passage, answer) for passage, answer in pairs])


def completions() -> pd.DataFrame:
    """Completions of three models with people's verdict as ``kind``, the keyword judge's as ``keyword``."""
    frame = pd.read_parquet(data_folder("xstest_refusals") / "completions.parquet")
    return frame.assign(
        kind=frame["final_label"].map(FINAL_LABELS), keyword=frame["strmatch_label"].map(FINAL_LABELS)
    )


def completion_features(frame: pd.DataFrame) -> Floats:
    """Features of every completion, shape (rows, features)."""
    return refusal.features(frame["completion"].tolist())


def _pipeline(strength: float) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=5000))


def _raw_weights(fitted: Any) -> tuple[Floats, Floats]:
    """Weights per unit of each feature, shape (features, classes or 1), and biases."""
    scaler, model = fitted[0], fitted[-1]
    weight = model.coef_ / scaler.scale_
    return weight.T, model.intercept_ - weight @ scaler.mean_


# ---- groundedness: fitted on wow_dev alone ----------------------------------------------------------------


def groundedness_strength(X: Floats, attributable: NDArray[np.bool_]) -> tuple[float, float]:
    """Regularisation with the best mean AUROC over five 10-fold cross-validations, and that AUROC."""

    def auroc(strength: float) -> float:
        return float(np.mean([_out_of_fold_auroc(X, attributable, strength, seed) for seed in range(5)]))

    return max(((strength, auroc(strength)) for strength in STRENGTHS), key=lambda pair: pair[1])


def _out_of_fold_auroc(X: Floats, truth: NDArray[np.bool_], strength: float, seed: int) -> float:
    folds = StratifiedKFold(10, shuffle=True, random_state=seed)
    out = cross_val_predict(_pipeline(strength), X, truth, cv=folds, method="predict_proba")
    return float(roc_auc_score(truth, out[:, 1]))


def fit_groundedness() -> dict[str, Any]:
    """What ``weights/groundedness.json`` holds."""
    dev = dialogue("wow_dev")
    X, truth = dialogue_features(dev), dev["attributable"].to_numpy()
    strength, auroc = groundedness_strength(X, truth)
    weight, bias = _raw_weights(_pipeline(strength).fit(X, truth))
    return {
        "fitted_on": f"begin_grounded_dialogue wow_dev, {len(dev)} answers",
        "command": "python -m benchmarks.assertions.llm --fit",
        "strength": strength,
        "cross_validated_auroc": round(auroc, 4),
        "features": list(groundedness.FEATURES),
        "low": _rounded(X.min(axis=0)),
        "high": _rounded(X.max(axis=0)),
        "weight": _rounded(weight[:, 0]),
        "bias": round(float(bias[0]), 6),
    }


# ---- refusal: strength chosen by fitting on two models and testing on the third -------------------------


def fit_refusal_weights(X: Floats, kind: Iterable[str], strength: float) -> refusal.Weights:
    """Weights in the order of ``refusal.KINDS``."""
    codes = np.array([KINDS.index(one) for one in kind])
    return refusal.Weights(*_raw_weights(_pipeline(strength).fit(X, codes)))


def judged_by_others(frame: pd.DataFrame, X: Floats, strength: float) -> NDArray[np.object_]:
    """Kind of every completion as judged by weights fitted on the two other models."""
    model, kind = frame["model"].to_numpy(), frame["kind"].to_numpy()
    judged = np.empty(len(frame), dtype=object)
    for held_out in np.unique(model):
        test = model == held_out
        weights = fit_refusal_weights(X[~test], kind[~test], strength)
        judged[test] = np.array(refusal.KINDS, dtype=object)[weights.probabilities(X[test]).argmax(axis=1)]
    return judged


def refusal_strength(frame: pd.DataFrame, X: Floats) -> float:
    """Regularisation with the best mean agreement over held-out models."""

    def agreement(strength: float) -> float:
        right = judged_by_others(frame, X, strength) == frame["kind"].to_numpy()
        return float(pd.Series(right).groupby(frame["model"].to_numpy()).mean().mean())

    return max(STRENGTHS, key=agreement)


def fit_refusal() -> dict[str, Any]:
    """What ``weights/refusal.json`` holds."""
    frame = completions()
    X = completion_features(frame)
    strength = refusal_strength(frame, X)
    weights = fit_refusal_weights(X, frame["kind"], strength)
    return {
        "fitted_on": f"xstest_refusals, {len(frame)} completions of three models",
        "command": "python -m benchmarks.assertions.llm --fit",
        "strength": strength,
        "kinds": list(refusal.KINDS),
        "features": list(refusal.FEATURES),
        "weight": [_rounded(row) for row in weights.weight],
        "bias": _rounded(weights.bias),
    }


def _rounded(values: Floats) -> list[float]:
    return [round(float(value), 6) for value in values]


def write_weights() -> None:
    """Fit both and write them into the package."""
    folder = Path(str(files("outrider.assertions.library"))) / "weights"
    folder.mkdir(exist_ok=True)
    for name, fitted in (("groundedness", fit_groundedness()), ("refusal", fit_refusal())):
        rows = [f"  {json.dumps(key)}: {_shown(value)}" for key, value in fitted.items()]
        text = "{\n" + ",\n".join(rows) + "\n}\n"
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        print(f"wrote {folder / name}.json", flush=True)


def _shown(value: Any) -> str:
    """JSON of a value, one row of a table or one name per line."""
    if isinstance(value, list) and isinstance(value[0], list | str):
        return "[\n    " + ",\n    ".join(json.dumps(item) for item in value) + "\n  ]"
    return json.dumps(value)
