"""Steps of an epoch as encoded rows, read from mapped files.

Few rows are encoded once and kept; of many, the next block is encoded ahead on a thread.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.dataops.datasets.row_files import conform, empty_table, merged_schema
from outrider.dataops.loaders.mapped_rows import MappedRows

from .order import Places
from .trainer import ModelLearner, StepExamples

BLOCK_ROWS = 4096
BLOCK_BYTES = 16 * 2**20
"""Most rows, and bytes of them in their file, that are encoded at once, or kept for all epochs."""


@dataclass(frozen=True, slots=True)
class EncodedStep:
    examples: StepExamples
    weights: torch.Tensor | None


class RowFeed:
    def __init__(
        self,
        learner: ModelLearner,
        files: Sequence[MappedRows],
        rows: Places,
        *,
        columns: Sequence[str],
        model: str,
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        self._learner, self._model, self._weights = learner, model, weights
        self._starts = np.cumsum([0, *(len(file) for file in files)])
        self._files = [
            MappedRows(file.id, file.digest, file.path, [name for name in columns if name in file.columns])
            for file in files
        ]
        schema = self._files[0].table.schema
        for file in self._files[1:]:
            schema, _ = merged_schema(schema, file.table.schema, file.id)
        self._schema = schema
        row_bytes = sum(file.file_bytes for file in files) // max(1, int(self._starts[-1])) + 1
        self._block_rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // row_bytes))
        self._kept = self._encoded(rows) if len(rows) <= self._block_rows else None
        self._places = np.zeros(int(self._starts[-1]) if self._kept else 0, np.int64)
        if self._kept:
            self._places[rows] = np.arange(len(rows))

    @property
    def is_even(self) -> bool:
        """True if all rows weigh the same."""
        return self._weights is None

    def steps(self, order: Places, ends: Sequence[int], first: int = 0) -> Iterator[EncodedStep]:
        if self._kept is None:
            yield from self._streamed(order, ends, first)
            return
        places = torch.from_numpy(self._places[order])
        weights = self._weights_of(order)
        start = ends[first - 1] if first else 0
        for end in ends[first:]:
            of = None if weights is None else weights[start:end]
            yield EncodedStep(self._kept.take(places[start:end]), of)
            start = end

    def _streamed(self, order: Places, ends: Sequence[int], first: int) -> Iterator[EncodedStep]:
        blocks = self._blocks(ends)
        left = [block for block in blocks if block[1] > first]
        with ThreadPoolExecutor(1, "outrider-rows") as ahead:
            pending = ahead.submit(self._block, order, ends, left[0]) if left else None
            for at, (begin, end) in enumerate(left):
                assert pending is not None
                examples = pending.result()
                if at + 1 < len(left):
                    pending = ahead.submit(self._block, order, ends, left[at + 1])
                base = ends[begin - 1] if begin else 0
                weights = self._weights_of(order[base : ends[end - 1]])
                for step in range(max(begin, first), end):
                    start, stop = (ends[step - 1] if step else 0) - base, ends[step] - base
                    of = None if weights is None else weights[start:stop]
                    yield EncodedStep(examples.slice(start, stop), of)

    def _blocks(self, ends: Sequence[int]) -> list[tuple[int, int]]:
        """Steps of each block; independent of the first step."""
        blocks, begin, base = [], 0, 0
        for step, end in enumerate(ends):
            if end - base >= self._block_rows or step == len(ends) - 1:
                blocks.append((begin, step + 1))
                begin, base = step + 1, end
        return blocks

    def _block(self, order: Places, ends: Sequence[int], block: tuple[int, int]) -> StepExamples:
        begin, end = block
        return self._encoded(order[ends[begin - 1] if begin else 0 : ends[end - 1]])

    def _encoded(self, rows: Places) -> StepExamples:
        of_file = np.searchsorted(self._starts, rows, side="right") - 1
        tables, order = [empty_table(self._schema)], []
        for at, file in enumerate(self._files):
            mine = np.flatnonzero(of_file == at)
            if len(mine):
                table = file.gather(rows[mine] - self._starts[at])
                tables.append(table if table.schema == self._schema else conform(table, self._schema))
                order.append(mine)
        table = pa.concat_tables(tables).combine_chunks()
        if len(order) > 1:
            table = table.take(pa.array(np.argsort(np.concatenate(order))))
        return self._learner.encode(Batch.from_arrow(table, model=self._model))

    def _weights_of(self, rows: Places) -> torch.Tensor | None:
        return None if self._weights is None else torch.from_numpy(self._weights[rows])
