"""CSV files of cases and of predictions."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def read_csv(path: Path) -> "pd.DataFrame":
    """Table of a CSV file. "NA" and "None" are missing values among numbers, and words among words."""
    import pandas as pd

    frame = pd.read_csv(path)
    told = pd.read_csv(path, keep_default_na=False, na_values=[""])
    for name, column in frame.items():
        if column.isna().all() or any(isinstance(value, str) for value in column):
            frame[name] = told[name]
    return frame
