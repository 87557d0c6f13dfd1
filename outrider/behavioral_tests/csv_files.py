"""CSV files of cases and of predictions."""

from pathlib import Path

import pandas as pd


def read_csv(path: Path) -> pd.DataFrame:
    """The table of a file: "NA" and "None" mean nothing among numbers, and are words among words."""
    frame = pd.read_csv(path)
    told = pd.read_csv(path, keep_default_na=False, na_values=[""])
    for name, column in frame.items():
        if column.isna().all() or any(isinstance(value, str) for value in column):
            frame[name] = told[name]
    return frame
