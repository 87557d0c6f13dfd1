import pandas as pd

from outrider.assertions import Batch


def frame_of(batch: Batch) -> pd.DataFrame:
    """Full column names, times in UTC."""
    frame = batch.to_pandas()
    for column in ("ts", "received"):
        if column in frame:
            frame[column] = pd.to_datetime(frame[column], utc=True).astype("datetime64[us, UTC]")
    return frame
