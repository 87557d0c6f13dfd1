"""CSV files of cases and of predictions."""

from pathlib import Path

import pandas as pd


def read_csv(path: Path) -> pd.DataFrame:
    """The table of a file: "NA" and "None" mean nothing among numbers, and are words among words."""
    frame = pd.read_csv(path)
    if words := [name for name in frame if frame[name].isna().all() or frame[name].map(type).eq(str).any()]:
        frame[words] = pd.read_csv(path, keep_default_na=False, na_values=[""])[words]
    return frame
