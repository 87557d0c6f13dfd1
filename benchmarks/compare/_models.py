"""Two classifiers of employment for ``file.py:callable``, and recorded requests for them."""

import pickle
from pathlib import Path

import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.data import data_folder

DATA = "acs_employment_ma"
INPUTS = (
    "AGEP", "SCHL", "MAR", "RELP", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC", "NATIVITY", "DEAR", "DEYE",
    "DREM", "SEX", "RAC1P",
)  # fmt: skip
TREES = {"production": 300, "twin": 290}
CODE = f'''
"""Trees over the answers to a census."""

import pickle
from pathlib import Path

import numpy as np

INPUTS = {INPUTS!r}
LOADED = {{}}


def answers(name, batch):
    if name not in LOADED:
        LOADED[name] = pickle.loads((Path(__file__).parent / (name + ".pickle")).read_bytes())
    probs = LOADED[name].predict_proba(np.stack([batch.column("inputs." + each) for each in INPUTS], axis=1))
    return {{"label": np.where(probs[:, 1] > 0.5, "employed", "not employed").astype(object)}}


def production(batch):
    return answers("production", batch)


def twin(batch):
    return answers("twin", batch)
'''


def write_models(folder: Path) -> None:
    """Train both models, and write them with their code."""
    frame = pd.read_parquet(data_folder(DATA) / "reference.parquet")
    values = frame[list(INPUTS)].astype(float).to_numpy()
    for name, trees in TREES.items():
        model = HistGradientBoostingClassifier(max_iter=trees, early_stopping=False, random_state=0)
        model.fit(values, frame["employed"].to_numpy())
        (folder / f"{name}.pickle").write_bytes(pickle.dumps(model))
    (folder / "models.py").write_text(CODE, encoding="utf-8")


def write_traffic(path: Path, rows: int) -> None:
    """Write the first records of three later years as recorded requests."""
    frame = pd.read_parquet(data_folder(DATA) / "analysis.parquet").head(rows)
    named = {name: frame[name].astype(float) for name in INPUTS}
    columns = {"id": frame["id"].astype(str)} | {f"inputs.{name}": each for name, each in named.items()}
    columns["attrs.sex"] = frame["SEX"].astype(str)
    pd.DataFrame(columns).to_parquet(path, index=False)
