"""Rows of mapped files as steps: tensors of every layout, several files, blocks of any size."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.training.feed import RowFeed
from outrider.dataops.training.torch_learner import TorchLearner

ROWS = 60
IMAGES = np.arange(ROWS * 4, dtype=np.float64).reshape(ROWS, 2, 2)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> MappedRows:
    """Images as pandas and Parquet bring them: their type names the order of its dimensions."""
    kind = pa.fixed_shape_tensor(pa.float64(), (2, 2), permutation=[0, 1])
    flat = pa.FixedSizeListArray.from_arrays(pa.array(IMAGES.ravel()), 4)
    columns = {"id": [str(row) for row in range(ROWS)], "label.label": np.arange(ROWS) % 2}
    table = pa.Table.from_batches([Batch.from_columns(columns, model="m").to_arrow()])
    table = table.append_column("inputs.image", pa.ExtensionArray.from_storage(kind, flat))
    path = tmp_path_factory.mktemp("feed") / "images.arrow"
    with path.open("wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=25)
    return MappedRows("images@1", "digest", path)


def test_gathered_rows_are_those_asked_for_in_their_order(rows: MappedRows) -> None:
    for places in ([59, 3, 30, 3], [], list(range(ROWS))):
        found = rows.gather(np.array(places, np.int64))
        assert found.column("id").to_pylist() == [str(place) for place in places]


@pytest.mark.parametrize("block_rows", [4096, 16])
@pytest.mark.parametrize("first", [0, 2, 5])
def test_steps_of_two_files_hold_the_rows_of_the_order(
    rows: MappedRows, monkeypatch: pytest.MonkeyPatch, block_rows: int, first: int
) -> None:
    monkeypatch.setattr("outrider.dataops.training.feed.BLOCK_ROWS", block_rows)
    source = Source("torch", "none", inputs=("image",), classes=(0, 1))
    learner = TorchLearner(torch.nn.Linear(1, 2), source=source, target="label")
    columns = ["inputs.image", "label.label"]
    weights = np.arange(2 * ROWS, dtype=np.float32)
    feed = RowFeed(learner, [rows, rows], np.arange(2 * ROWS), columns=columns, model="m", weights=weights)
    order = np.random.default_rng(0).permutation(2 * ROWS)
    ends = [*range(11, 2 * ROWS, 11), 2 * ROWS]
    steps = list(feed.steps(order, ends, first))
    assert [step.examples.rows for step in steps] == np.diff([0, *ends])[first:].tolist()
    left = order[ends[first - 1] if first else 0 :]
    found = torch.cat([step.examples.tensors["x"] for step in steps]).numpy()
    assert (found == IMAGES[left % ROWS]).all()
    assert torch.cat([step.examples.tensors["label"] for step in steps]).tolist() == (left % 2).tolist()
    assert torch.cat([w for step in steps if (w := step.weights) is not None]).tolist() == left.tolist()
