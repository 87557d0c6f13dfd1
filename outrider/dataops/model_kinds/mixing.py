"""Which rows of the batch that runs belong to which adapter, for the layers inside the module."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Cut:
    """Positions ``start`` to ``stop`` that belong to a variant; None is the base without an adapter."""

    variant: int | None
    start: int
    stop: int


class Mixing:
    """The cuts of the batch under way; one is shared by all layers of a module.

    Tensors inside a module have the rows of the batch as their first dimension, or rows times positions with
    the positions of a row side by side. Layers that see rows in another order (experts that collect their
    tokens) cannot run mixed.

    Parameters
    ----------
    variants
        Number of adapters.

    Attributes
    ----------
    entered
        Layers that have run since it was emptied.
    rows
        Records of the batch.
    """

    def __init__(self, variants: int) -> None:
        self.variants = variants
        self.entered: set[torch.nn.Module] = set()
        self.rows = 0
        self._cuts: dict[int, tuple[Cut, ...]] = {}
        self._ends: dict[int, torch.Tensor] = {}
        self._scratch = torch.empty(0)

    def begin(self, rows: int, cuts: Sequence[Cut]) -> None:
        """Cuts of the batch that comes next, by its rows.

        They follow each other in the order of the variants, the base behind them, and cover the batch.
        """
        self.rows = rows
        self._cuts = {rows: tuple(cuts)}
        self._ends.clear()

    def enter(self, layer: torch.nn.Module, x: torch.Tensor) -> tuple[Cut, ...]:
        """Cuts of what a layer is given, of shape (rows, …, width), by its positions.

        Raises
        ------
        RuntimeError
            If its first dimension is no multiple of the rows: the tensor is then not laid out by rows.
        """
        self.entered.add(layer)
        if len(x) % self.rows:
            raise RuntimeError(
                f"a layer with adapters got a tensor of shape {tuple(x.shape)} for {self.rows} records; adapters "
                "are mixed by record, which needs shape (records, …)"
            )
        return self.cuts(x.numel() // x.shape[-1])

    def cuts(self, positions: int) -> tuple[Cut, ...]:
        """Cuts of as many positions, a multiple of the rows."""
        found = self._cuts.get(positions)
        if found is None:
            each = positions // self.rows
            found = tuple(Cut(c.variant, c.start * each, c.stop * each) for c in self._cuts[self.rows])
            self._cuts[positions] = found
        return found

    def ends(self, positions: int, device: torch.device) -> torch.Tensor:
        """Where each variant ends and, last, the base: shape (variants + 1,), int32, as grouped products take it."""
        found = self._ends.get(positions)
        if found is None:
            stops = {cut.variant: cut.stop for cut in self.cuts(positions)}
            ends = [0]
            for variant in range(self.variants):
                ends.append(stops.get(variant, ends[-1]))
            found = torch.tensor([*ends[1:], positions], dtype=torch.int32, device=device)
            self._ends[positions] = found
        return found

    def scratch(self, size: int, like: torch.Tensor) -> torch.Tensor:
        """Room for ``size`` numbers, the same for every layer: what it holds is of the last who asked."""
        if len(self._scratch) < size or self._scratch.dtype != like.dtype:
            self._scratch = like.new_empty(size)
        return self._scratch[:size]
