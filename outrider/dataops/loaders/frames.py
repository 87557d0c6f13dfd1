"""Records as pandas frames whose times are UTC."""

import pandas as pd

from outrider.assertions import Batch


def frame_of(batch: Batch) -> pd.DataFrame:
    """Frame of a batch under full column names, times in UTC."""
    frame = batch.to_pandas()
    for column in ("ts", "received"):
        if column in frame:
            frame[column] = pd.to_datetime(frame[column], utc=True).astype("datetime64[us, UTC]")
    return frame
