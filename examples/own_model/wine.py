"""A model of wines: the grape of a bottle by five measurements of a laboratory."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier

FEATURES = ["alcohol", "flavanoids", "color_intensity", "hue", "proline"]
ROWS = Path(__file__).with_name("rows.arrow")


def bottles(*, known):
    """Measurements and grapes of two thirds of the bottles, or of the third nobody trained on."""
    table = load_wine(as_frame=True)
    chosen = (np.arange(len(table.data)) % 3 != 0) == known
    grapes = np.array(["barolo", "grignolino", "barbera"])[table.target]
    return table.data.loc[chosen, FEATURES].reset_index(drop=True), grapes[chosen]


def first():
    """Version 1: a forest of the known bottles."""
    return RandomForestClassifier(40, random_state=0).fit(*bottles(known=True))


def again():
    """A later version: the known bottles, and what Outrider's dataset has learned since."""
    measured, grapes = bottles(known=True)
    with pa.ipc.open_stream(ROWS) as stream:
        rows = stream.read_pandas()
    fresh = rows[[f"inputs.{name}" for name in FEATURES]].set_axis(FEATURES, axis=1)
    grapes = np.concatenate([grapes, rows["label.label"]])
    return RandomForestClassifier(40, random_state=0).fit(pd.concat([measured, fresh]), grapes)
