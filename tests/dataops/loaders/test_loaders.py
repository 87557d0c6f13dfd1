"""Rows of dataset versions in pandas, torch and Hugging Face, against the rows that were committed."""

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pytest
import torch
from sqlalchemy import Engine
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

import outrider
from outrider.assertions import Batch
from outrider.dataops.datasets import changes
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.scan import ipc_stream
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.loaders.arrow_cache import CachedRows, cached, unused
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.errors import ConfigError, NotFound
from outrider.monitor.settings.config import load_settings
from tests.databases import migrated_for
from tests.forked import LIGHT, forks
from tests.soak import rounds

from .stream_run import BATCH_ROWS, EPOCHS, stream_of

KILLS = rounds(20, part=4)
CONFIG = """
[models.m]
predictor = "model.py:predict"
"""


def batch_of(first: int, count: int) -> tuple[Batch, list[Provenance]]:
    rng = np.random.default_rng(first)
    ids = [f"r{row:04}" for row in range(first, first + count)]
    columns = {
        "id": ids,
        "ts": np.datetime64("2026-01-05", "us") + np.arange(first, first + count),
        "inputs.image": rng.random((count, 2, 3), np.float32),
        "inputs.age": pa.array([None if row % 5 == 0 else row for row in range(count)], pa.int64()),
        "inputs.is_new": pa.array([None if row % 7 == 0 else row % 2 == 0 for row in range(count)]),
        "inputs.small": rng.integers(0, 200, count).astype(np.uint8),
        "inputs.text": pa.array([None if row % 3 == 0 else f"text {row}" for row in range(count)]),
        "label.label": rng.integers(0, 10, count),
    }
    origin = [Provenance(key, part="held_out" if int(key[1:]) % 4 == 0 else "train") for key in ids]
    return Batch.from_columns(columns, model="m"), origin


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose dataset has three versions: rows, more rows, rows removed and relabelled."""
    monkeypatch.delenv("OUTRIDER_URL", raising=False)
    (tmp_path / "outrider.toml").write_text(CONFIG)
    engine = migrated_for(settings := load_settings(tmp_path / "outrider.toml"))
    objects = LocalObjects(settings.data_folder / "objects")
    change(engine, objects, *batch_of(0, 90))
    change(engine, objects, *batch_of(90, 60))
    batch, origin = batch_of(0, 90)
    labels = np.where(np.arange(90) % 2 == 0, 7, batch.column("label.label"))
    relabelled = batch.with_columns({"label.label": labels})
    change(engine, objects, relabelled, origin, removed=["r0100", "r0101", "r0149"])
    engine.dispose()
    return tmp_path


def change(
    engine: Engine,
    objects: LocalObjects,
    batch: Batch,
    origin: list[Provenance],
    removed: list[str] | None = None,
) -> None:
    with write(engine) as connection:
        draft = changes.prepare(
            connection,
            objects,
            dataset="d",
            batch=batch,
            provenance=origin,
            append=True,
            removed=removed or [],
        )
        changes.commit(connection, draft, validation={}, now_us=1)


def truth(folder: Path, number: int, part: str | None) -> pa.Table:
    settings = load_settings(folder / "outrider.toml")
    engine = migrated_for(settings)
    with engine.connect() as connection:
        objects = LocalObjects(settings.data_folder / "objects")
        found = datasets.read_table(connection, objects, datasets.get(connection, "d", number), part=part)
    engine.dispose()
    return found


@pytest.mark.parametrize("part", [None, "train", "held_out"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_taken_rows_are_those_of_the_version(project: Path, number: int, part: Any) -> None:
    wanted = truth(project, number, part)
    rows = outrider.open_dataset(f"d@{number}", part=part, folder=project)
    assert len(rows) == wanted.num_rows
    assert rows.table.equals(wanted)
    places = np.random.default_rng(0).integers(-len(rows), len(rows), 300)
    found = rows.take(places)
    asked = wanted.take(pa.array(places % len(rows)))
    for name, values in found.items():
        column = asked.column(name).combine_chunks()
        if name == "inputs.image":
            np.testing.assert_array_equal(values, column.to_numpy_ndarray())
        elif isinstance(values, list):
            assert values == column.to_pylist()
        else:
            np.testing.assert_array_equal(values, column.to_numpy(zero_copy_only=False).astype(values.dtype))
    assert rows.take([])["inputs.text"] == []
    with pytest.raises(IndexError, match=f"has {len(rows)} rows, got place {len(rows)}"):
        rows.take([len(rows)])


def test_a_slice_of_many_batches_is_taken_right(tmp_path: Path) -> None:
    batch, _ = batch_of(0, 200)
    table = pa.Table.from_batches([batch.to_arrow()])
    path = tmp_path / "rows.arrow"
    batches = table.slice(3).to_batches(max_chunksize=11)  # validity bitmaps at odd bits
    path.write_bytes(b"".join(ipc_stream(table.schema, batches)))
    rows = MappedRows("d@1", "digest", path)
    found = rows.take(np.arange(197))
    assert found["id"] == table.column("id").to_pylist()[3:]
    ages = [np.nan if age is None else age for age in table.column("inputs.age").to_pylist()[3:]]
    np.testing.assert_array_equal(found["inputs.age"], ages)
    again = pickle.loads(pickle.dumps(rows))
    assert again.take([5])["id"] == ["r0008"]
    assert len(pickle.dumps(rows)) < 1000


def test_columns_are_chosen_and_an_unknown_one_is_named_with_the_nearest(project: Path) -> None:
    rows = outrider.open_dataset("d", columns=["label.label", "id"], folder=project)
    assert list(rows.take([0])) == rows.columns == ["label.label", "id"]
    with pytest.raises(NotFound, match=r"d@3 has no column 'inputs.tex'; nearest: inputs.text"):
        outrider.open_dataset("d", columns=["inputs.tex"], folder=project)
    with pytest.raises(ConfigError, match=r"no dataset 'e'.* in .*; there is d@1, d@2, d@3"):
        outrider.open_dataset("e", folder=project)


def test_a_lost_or_torn_cache_is_made_again(project: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    rows = outrider.open_dataset("d", folder=project, cache=cache)
    wanted = rows.table
    (path,) = cache.glob("*.arrow")
    path.unlink()  # who has it mapped keeps it
    assert rows.take([1])["id"] == ["r0004"]
    assert outrider.open_dataset("d", folder=project, cache=cache).table.equals(wanted)
    path.write_bytes(path.read_bytes()[:-40])
    assert outrider.open_dataset("d", folder=project, cache=cache).table.equals(wanted)
    assert unused(cache, older_than_s=3600) == []
    assert path in unused(cache, older_than_s=-1)


def test_a_version_without_rows_is_opened(tmp_path: Path) -> None:
    batch, _ = batch_of(0, 1)
    table = pa.Table.from_batches([batch.to_arrow()]).slice(0, 0)
    path = tmp_path / "rows.arrow"
    path.write_bytes(b"".join(ipc_stream(table.schema, [])))
    rows = MappedRows("d@1", "digest", path)
    assert (len(rows), rows.take([])["id"], list(rows.to_pandas().columns)) == (0, [], rows.columns)
    assert list(rows.to_stream(batch_rows=3)) == []


def test_rows_that_end_too_early_are_no_cache(tmp_path: Path) -> None:
    of = CachedRows("d", 1, "digest")

    def half(file: BinaryIO) -> None:
        file.write(b"half of it")

    with pytest.raises(OSError, match="ended too early"):
        cached(tmp_path, of.name, half)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_a_frame_has_all_rows_with_utc_times(project: Path) -> None:
    frame = outrider.open_dataset("d@2", part="train", folder=project).to_pandas()
    assert list(frame["id"]) == truth(project, 2, "train").column("id").to_pylist()
    assert str(frame["ts"].dtype) == "datetime64[us, UTC]"
    few = outrider.open_dataset("d@2", columns=["label.label"], folder=project).to_pandas()
    assert list(few) == ["label.label"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks of a process with threads
@pytest.mark.parametrize("workers", [0, 2])
def test_torch_takes_rows_and_batches(project: Path, workers: int) -> None:
    columns = ["id", "ts", "inputs.image", "inputs.small", "label.label"]
    rows = outrider.open_dataset("d", columns=columns, folder=project).to_torch()
    wanted = truth(project, 3, None)
    batches = BatchSampler(SequentialSampler(rows), 40, False)
    found = list(DataLoader(rows, sampler=batches, batch_size=None, num_workers=workers))
    assert [key for batch in found for key in batch["id"]] == wanted.column("id").to_pylist()
    assert torch.cat([batch["label.label"] for batch in found]).tolist() == wanted["label.label"].to_pylist()
    assert found[0]["inputs.image"].shape == (40, 2, 3)
    usual = next(iter(DataLoader(rows, batch_size=40, num_workers=workers)))
    assert torch.equal(usual["inputs.image"], found[0]["inputs.image"])
    assert usual["ts"].dtype == torch.int64
    assert rows[3]["id"] == wanted.column("id")[3].as_py()
    assert rows[3]["label.label"].shape == ()


def test_hugging_face_has_the_rows(project: Path) -> None:
    pytest.importorskip("datasets")
    found = outrider.open_dataset("d@2", folder=project).to_hf()
    wanted = truth(project, 2, None)
    assert found["id"][:] == wanted.column("id").to_pylist()
    image = wanted.column("inputs.image").combine_chunks().to_numpy_ndarray()
    np.testing.assert_array_equal(np.array(found["inputs.image"][:], np.float32), image)


@pytest.fixture
def arrow(tmp_path: Path) -> Path:
    batch, _ = batch_of(0, 500)
    table = pa.Table.from_batches([batch.to_arrow()]).select(["id", "inputs.image", "label.label"])
    path = tmp_path / "rows.arrow"
    path.write_bytes(b"".join(ipc_stream(table.schema, table.to_batches(max_chunksize=64))))
    return path


def epochs(stream: Any, count: int = EPOCHS) -> list[list[str]]:
    return [batch["id"] for _ in range(count) for batch in stream]


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_epoch_has_each_row_once_over_all_ranks(arrow: Path, ranks: int) -> None:
    streams = [stream_of(arrow, rank, ranks) for rank in range(ranks)]
    orders = []
    for _ in range(2):
        per_rank = [epochs(stream, 1) for stream in streams]
        assert {len(batches) for batches in per_rank} == {len(streams[0])}
        ids = [key for batches in per_rank for batch in batches for key in batch]
        assert len(ids) == len(set(ids)) == 500 // ranks * ranks
        orders.append(ids)
    assert orders[0] != orders[1], "each epoch has an order of its own"
    assert orders[0] != sorted(orders[0])


@pytest.mark.parametrize("stop", [0, 1, 70, 71, 72, 73, 130])
def test_a_stream_goes_on_with_the_very_next_batch(arrow: Path, stop: int) -> None:
    whole = epochs(stream_of(arrow, 0, 1))
    stream = stream_of(arrow, 0, 1)
    found: list[list[str]] = []
    while len(found) < stop:
        for batch in stream:
            found.append(batch["id"])
            if len(found) == stop:
                break
    again = stream_of(arrow, 0, 1)
    again.load_state_dict(stream.state_dict())
    while again.state_dict()["epoch"] < EPOCHS:
        found += [batch["id"] for batch in again]
    assert found == whole


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_give_the_same_batches_and_count_what_arrived(arrow: Path, workers: int) -> None:
    whole = epochs(stream_of(arrow, 0, 1))
    stream = stream_of(arrow, 0, 1)
    found = []
    for batch in stream.loader(num_workers=workers):
        found.append(batch["id"])
        if len(found) == 30:
            break
    assert stream.state_dict()["batch"] == 30
    again = stream_of(arrow, 0, 1)
    again.load_state_dict(stream.state_dict())
    while again.state_dict()["epoch"] < EPOCHS:
        found += [batch["id"] for batch in again.loader(num_workers=workers)]
    assert found == whole


def blocks(name: str) -> list[str]:
    text = (Path(__file__).parents[3] / "docs" / name).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_guide_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    code = blocks("datasets.md")
    assert len(code) == 4
    names: dict[str, Any] = {}
    for block in code:
        if "to_hf" in block:
            pytest.importorskip("datasets")
        exec(block.replace("tumours-flagged", "d").replace("tumours", "d"), names)


def test_the_order_is_the_same_in_every_release(arrow: Path) -> None:
    """A state outlives an upgrade: the order rests on Philox alone, whose numbers are published."""
    first = next(iter(stream_of(arrow, 0, 1)))["id"]
    assert first[:6] == FIRST


FIRST = ["r0054", "r0471", "r0286", "r0343", "r0068", "r0041"]


@pytest.mark.parametrize("name", ["seed", "batch_rows", "ranks", "digest", "rows", "shuffle"])
def test_a_state_of_other_rows_or_settings_is_refused(arrow: Path, name: str) -> None:
    stream = stream_of(arrow, 0, 1)
    state = stream.state_dict()
    with pytest.raises(ValueError, match=rf"{name}: 'other' in the state, .* here"):
        stream.load_state_dict(state | {name: "other"})
    with pytest.raises(ValueError, match="batch 99999 of epoch 0: at most 72 batches"):
        stream.load_state_dict(state | {"batch": 99_999})
    with pytest.raises(ValueError, match="rank must be in 0 … 1 for 2 ranks, got 2"):
        stream_of(arrow, 2, 2)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_run_killed_anywhere_sees_the_rows_of_an_unbroken_one(
    arrow: Path, tmp_path: Path, ranks: int
) -> None:
    command = [sys.executable, "-m", "tests.dataops.loaders.stream_run", str(arrow), str(tmp_path)]
    with forks("torch", modules=LIGHT):
        done = subprocess.run(
            [*command, str(ranks), str(KILLS), str(ranks)], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(KILLS)]
    for rank in range(ranks):
        found = [line.split() for line in (tmp_path / f"ids-{rank}").read_text().splitlines()]
        assert found == epochs(stream_of(arrow, rank, ranks)), f"rank {rank}"
        assert max(map(len, found)) == BATCH_ROWS
