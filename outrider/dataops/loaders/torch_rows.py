"""Rows of a dataset version for torch: by position, or streamed."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

TorchBatch: TypeAlias = dict[str, Any]
"""Tensors by column; texts and lists stay lists, times become whole numbers of their unit."""


class PlacedRows(Protocol):
    @property
    def digest(self) -> str: ...

    def __len__(self) -> int: ...

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> dict[str, NDArray[Any] | list[Any]]: ...


class TorchRows(Dataset[TorchBatch]):
    """Rows by place: one row of an integer, a batch of several.

    A batch at once is much faster than rows one by one: give the loader a batch sampler and no batch size.

    Examples
    --------
    >>> from torch.utils.data import BatchSampler, DataLoader, RandomSampler
    >>> def batches_of(rows: TorchRows, size: int) -> DataLoader[TorchBatch]:
    ...     return DataLoader(rows, sampler=BatchSampler(RandomSampler(rows), size, False), batch_size=None)
    """

    def __init__(self, rows: PlacedRows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | Sequence[int]) -> TorchBatch:
        if isinstance(index, int):
            return {name: value[0] for name, value in tensors(self.rows.take([index])).items()}
        return tensors(self.rows.take(index))

    def __getitems__(self, index: Sequence[int]) -> list[TorchBatch]:
        found = tensors(self.rows.take(index))
        return [{name: value[row] for name, value in found.items()} for row in range(len(index))]


class RowStream(IterableDataset[TorchBatch]):
    """Batches of consecutive epochs, in an order that seed and epoch determine.

    Iterating goes on behind the last batch that was handed out, to the end of the epoch; the next iteration
    is the next epoch. With workers, iterate :meth:`loader`, which counts what arrives.
    """

    def __init__(
        self, rows: PlacedRows, *, batch_rows: int, seed: int, shuffle: bool, rank: int, ranks: int
    ) -> None:
        if batch_rows < 1:
            raise ValueError(f"batch_rows must be >= 1, got {batch_rows}")
        if not 0 <= rank < ranks:
            raise ValueError(f"rank must be in 0 … {ranks - 1} for {ranks} ranks, got {rank}")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed must be in 0 … 2**64 - 1, got {seed}")
        self.rows = rows
        self._batch_rows, self._seed, self._shuffle = batch_rows, seed, shuffle
        self._rank, self._ranks = rank, ranks
        self._epoch = self._batch = 0

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank."""
        return -(-(len(self.rows) // self._ranks) // self._batch_rows)

    def __iter__(self) -> Iterator[TorchBatch]:
        worker = get_worker_info()
        if worker is None:
            yield from self._counted(self._batches(0, 1))
        else:  # the loader takes a batch of each worker in turn
            yield from self._batches(worker.id, worker.num_workers)

    def loader(
        self, *, num_workers: int = 0, pin_memory: bool = False, prefetch: int = 2
    ) -> "Iterator[TorchBatch]":
        """Rest of this epoch, read ahead by worker processes.

        The state counts batches as they arrive.

        Parameters
        ----------
        prefetch
            Batches that each worker reads ahead.
        """
        if num_workers == 0 and not pin_memory:
            return iter(self)
        made: DataLoader[TorchBatch] = DataLoader(
            self,
            batch_size=None,
            num_workers=num_workers,
            pin_memory=pin_memory,
            prefetch_factor=prefetch if num_workers else None,
        )
        return iter(made) if num_workers == 0 else self._counted(made)

    def set_epoch(self, epoch: int) -> None:
        """Begin that epoch with the next iteration."""
        self._epoch, self._batch = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Place of the next batch and the settings of the order.

        Plain numbers and texts.
        """
        return {"epoch": self._epoch, "batch": self._batch} | self._order_of()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at that place with the very batch that came next.

        Raises
        ------
        ValueError
            If the state is of other rows, another seed, batch size or division among ranks.
        """
        for name, mine in self._order_of().items():
            if state.get(name) != mine:
                raise ValueError(
                    f"{name}: {state.get(name)!r} in the state, {mine!r} here; "
                    "open the same version with the same settings; where rows were erased from it, begin anew"
                )
        epoch, batch = int(state["epoch"]), int(state["batch"])
        if epoch < 0 or not 0 <= batch <= len(self):
            raise ValueError(f"batch {batch} of epoch {epoch}: at most {len(self)} batches expected")
        self._epoch, self._batch = epoch, batch

    def _order_of(self) -> dict[str, Any]:
        return {
            "digest": self.rows.digest,
            "rows": len(self.rows),
            "seed": self._seed,
            "shuffle": self._shuffle,
            "batch_rows": self._batch_rows,
            "rank": self._rank,
            "ranks": self._ranks,
        }

    def _counted(self, batches: Any) -> Iterator[TorchBatch]:
        for batch in batches:
            self._batch += 1  # before it is used: a state taken beside it says what comes next
            yield batch
        self._epoch, self._batch = self._epoch + 1, 0

    def _batches(self, first: int, step: int) -> Iterator[TorchBatch]:
        """Every ``step``-th batch of the rest of the epoch, starting with the ``first``."""
        mine = self._order()[self._rank :: self._ranks][: len(self.rows) // self._ranks]
        for batch in range(self._batch + first, len(self), step):
            yield tensors(self.rows.take(mine[batch * self._batch_rows : (batch + 1) * self._batch_rows]))

    def _order(self) -> NDArray[np.int64]:
        """Counter-based, so equal in every release of numpy."""
        if not self._shuffle:
            return np.arange(len(self.rows))
        generator = np.random.Philox(key=np.array([self._seed, self._epoch], np.uint64))
        return np.argsort(generator.random_raw(len(self.rows)), kind="stable")


def tensors(columns: dict[str, NDArray[Any] | list[Any]]) -> TorchBatch:
    return {name: value if isinstance(value, list) else _tensor(value) for name, value in columns.items()}


def _tensor(values: NDArray[Any]) -> torch.Tensor:
    if values.dtype.kind == "M":
        values = values.view(np.int64)
    elif values.dtype.kind == "u" and values.dtype.itemsize > 1:
        values = values.astype(np.int64)
    return torch.from_numpy(values)
