"""The shared videos as batches, one record per frame."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.data import data_folder
from outrider.assertions import Batch

Floats = NDArray[np.float64]
SIDES = ("left", "top", "width", "height")
FRAMES_PER_S = {
    "TUD-Stadtmitte": 25.0,
    "KITTI-13": 10.0,
    "MOT17-02": 30.0,
    "MOT17-09": 30.0,
    "MOT17-11": 30.0,
}
PEOPLE = ("Pedestrian", "Person", "Cyclist")
DETECTIONS = "outputs.detections"


@dataclass(frozen=True, slots=True)
class Video:
    """Detections of a sequence, one record per frame, and the truth boxes of every frame; None: not known."""

    name: str
    batch: Batch
    truth: list[Floats | None]


def pedestrians(name: str) -> Video:
    """A sequence of ``mot15_pedestrians`` that has truth."""
    source = data_folder("mot15_pedestrians")
    boxes = pd.read_parquet(source / "detections.parquet").query("sequence == @name")
    truth = pd.read_parquet(source / "truth.parquet").query("sequence == @name")
    truth = truth[truth["class_name"].isin(PEOPLE)]
    frames = int(max(boxes["frame"].max(), truth["frame"].max()))
    batch = frames_batch(boxes, frames=frames, name=name, fields=(*SIDES, "conf"))
    return Video(name, batch, [part[list(SIDES)].to_numpy(float) for part in by_frame(truth, frames)])


def by_frame(boxes: pd.DataFrame, frames: int, first: int = 1) -> list[pd.DataFrame]:
    """Rows of every frame, in order."""
    groups = dict(list(boxes.groupby("frame")))
    return [groups.get(frame, boxes.iloc[:0]) for frame in range(first, first + frames)]


def frames_batch(
    boxes: pd.DataFrame, *, frames: int, name: str, fields: tuple[str, ...], first: int = 1
) -> Batch:
    """One record per frame, its boxes in column ``outputs.detections``."""
    ordered = boxes.sort_values("frame", kind="stable")
    ends = np.searchsorted(ordered["frame"].to_numpy(), np.arange(first, first + frames + 1))
    arrays = [pa.array(ordered[field].to_numpy()) for field in fields]
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.StructArray.from_arrays(arrays, fields))
    micros = np.rint(np.arange(frames) * 1e6 / FRAMES_PER_S.get(name, 10.0)).astype(np.int64)
    columns = {
        "id": pa.array([f"{name}-{frame}" for frame in range(first, first + frames)]),
        "entity": pa.array([name] * frames),
        "ts": pa.array(micros, pa.timestamp("us", tz="UTC")),
        DETECTIONS: lists,
    }
    return Batch.from_columns(columns, model="detector", rows=frames)


def sparse_pedestrians(name: str) -> Video:
    """A sequence of ``mot17_dpm``: unbounded scores squashed to [0, 1], truth centres on every third frame.

    The truth of a frame is its centres, shape (n, 2); frames between have None.
    """
    source = data_folder("mot17_dpm")
    boxes = pd.read_parquet(source / "detections.parquet").query("sequence == @name and conf > 0")
    boxes = boxes.assign(conf=1 / (1 + np.exp(-boxes["conf"])))
    centres = pd.read_parquet(source / "truth_centres_every3.parquet").query("sequence == @name")
    frames = int(max(boxes["frame"].max(), centres["frame"].max()))
    places = [
        part[["x_centre_frac", "y_centre_frac"]].to_numpy(float) * [1920, 1080] if len(part) else None
        for part in by_frame(centres, frames)
    ]
    return Video(name, frames_batch(boxes, frames=frames, name=name, fields=(*SIDES, "conf")), places)


def kitti(name: str) -> pd.DataFrame:
    """True boxes of a sequence of ``kitti_tracks`` with ``id``, regions nobody looked at left out."""
    truth = pd.read_parquet(data_folder("kitti_tracks") / "truth.parquet")
    truth = truth[(truth["sequence"] == name) & (truth["id"] >= 0)]
    sides = {"left": truth["x1"], "top": truth["y1"], "width": truth["x2"] - truth["x1"]}
    return truth.assign(**sides, height=truth["y2"] - truth["y1"])


def kitti_sequences() -> list[str]:
    """Names of the sequences of ``kitti_tracks``."""
    names = pd.read_parquet(data_folder("kitti_tracks") / "truth.parquet", columns=["sequence"])["sequence"]
    return [str(name) for name in sorted(names.unique())]
