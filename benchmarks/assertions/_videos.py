"""The shared videos as batches, one record per frame."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.data import data_folder
from outrider.assertions import Assertion, Batch, Findings
from outrider.assertions.windows.state import WindowState

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
SIDES = ("left", "top", "width", "height")
FRAMES_PER_S = {
    "TUD-Stadtmitte": 25.0,
    "KITTI-13": 10.0,
    "MOT17-02": 30.0,
    "MOT17-09": 30.0,
    "MOT17-11": 30.0,
}
DPM = ("MOT17-02", "MOT17-09", "MOT17-11")
FASTER_RCNN = ("TUD-Stadtmitte", "KITTI-13")
PEOPLE = ("Pedestrian", "Person", "Cyclist")
COUNTED = (1, 2, 7)
"""Classes of MOT17's truth that are people: walking, on a vehicle, standing or sitting."""
WITHIN_S = 0.5
DETECTIONS = "outputs.detections"
LABELS = "label.detections"


@dataclass(frozen=True, slots=True)
class Video:
    """Detections of a sequence with its true boxes as labels, one record per frame.

    Attributes
    ----------
    truth
        True boxes of every frame, shape (n, 4).
    people
        Who each of them is, shape (n,).
    """

    name: str
    batch: Batch
    truth: list[Floats]
    people: list[Ids]


def video(name: str, *, least: float = 0.0) -> Video:
    """A sequence of ``mot17_dpm`` or ``mot15_pedestrians`` with its detections above ``least``."""
    boxes, truth = (_dpm if name in DPM else _faster_rcnn)(name)
    boxes = boxes[boxes["conf"] > least]
    frames = int(max(boxes["frame"].max(), truth["frame"].max()))
    batch = frames_batch(boxes, frames=frames, name=name, fields=(*SIDES, "conf"))
    labels = frames_batch(truth, frames=frames, name=name, fields=SIDES).to_arrow().column(DETECTIONS)
    truth = truth.sort_values("frame", kind="stable")
    edges = np.searchsorted(truth["frame"], np.arange(1, frames + 2))  # of the frames, which count from 1
    return Video(
        name,
        batch.with_columns({LABELS: labels}),
        np.split(truth[list(SIDES)].to_numpy(float), edges)[1:-1],
        np.split(truth["id"].to_numpy(np.int64), edges)[1:-1],
    )


def _dpm(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    source = data_folder("mot17_dpm")
    boxes, truth = (pd.read_parquet(source / f"{file}.parquet") for file in ("detections", "truth_boxes"))
    counted = truth["cls"].isin(COUNTED) & (truth["sequence"] == name)
    return boxes[boxes["sequence"] == name], truth[counted]


def _faster_rcnn(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    source = data_folder("mot15_pedestrians")
    boxes, truth = (pd.read_parquet(source / f"{file}.parquet") for file in ("detections", "truth"))
    counted = truth["class_name"].isin(PEOPLE) & (truth["sequence"] == name)
    return boxes[boxes["sequence"] == name], truth[counted]


def true_people(name: str) -> pd.DataFrame:
    """True boxes of a sequence of ``mot17_dpm`` or ``mot15_pedestrians``."""
    return (_dpm if name in DPM else _faster_rcnn)(name)[1]


def findings_of(judge: Assertion, batch: Batch) -> Findings:
    """Findings over a whole stream of one entity, rows as in ``batch``."""
    if judge.window is None:
        return judge.findings(batch)
    (view,) = WindowState(judge.window).update(batch, ends=True)
    return judge.findings(view.batch)


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
