"""Assignment of the running batch's rows to adapters, for layers."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True)
class VariantSpan:
    """Positions ``start`` to ``stop`` of a variant, None for the base."""

    variant: int | None
    start: int
    stop: int


KEPT = 64
"""Mixtures whose tensors on the device are kept: captured passes go on reading them, in fewer sizes than
these."""


@dataclass(slots=True)
class _OnDevice:
    of_rows: torch.Tensor | None = None
    ends: dict[int, torch.Tensor] = field(default_factory=dict)


class Mixing:
    """Spans of the running batch, shared by a module's layers.

    The first dimension of tensors inside a module is rows, or rows times adjacent positions; experts that
    collect their tokens cannot run mixed. ``entered`` are layers that have run.
    """

    def __init__(self, variants: int) -> None:
        self.variants = variants
        self.entered: set[torch.nn.Module] = set()
        self.rows = 0
        self._cuts: dict[int, tuple[VariantSpan, ...]] = {}
        self._there = _OnDevice()
        self._kept: OrderedDict[tuple[VariantSpan, ...], _OnDevice] = OrderedDict()
        self._scratch = torch.empty(0)

    def begin(self, rows: int, cuts: Sequence[VariantSpan]) -> None:
        """Spans in the order of variants, the base last, covering the batch."""
        self.rows = rows
        mixture = tuple(cuts)
        self._cuts = {rows: mixture}
        self._there = self._kept.setdefault(mixture, _OnDevice())
        self._kept.move_to_end(mixture)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def begin_indexed(self, of_rows: torch.Tensor, ends: torch.Tensor) -> None:
        """Begin a batch by tensors on the device.

        ``of_rows`` is the variant of each row, int64 (``variants`` for the base), ``ends`` the end of each
        variant, shape (variants + 1,), int32.
        """
        self.rows = len(of_rows)
        self._cuts.clear()
        self._there = _OnDevice(of_rows, {self.rows: ends})

    def enter(self, layer: torch.nn.Module, x: torch.Tensor) -> None:
        """``RuntimeError`` if a tensor is not laid out by rows."""
        self.entered.add(layer)
        if len(x) % self.rows:
            raise RuntimeError(
                f"a layer with adapters got a tensor of shape {tuple(x.shape)} for {self.rows} records; "
                "adapters are mixed by record, which needs shape (records, …)"
            )

    def cuts(self, positions: int) -> tuple[VariantSpan, ...]:
        """Spans of ``positions``, a multiple of the rows."""
        found = self._cuts.get(positions)
        if found is None:
            each = positions // self.rows
            found = tuple(
                VariantSpan(c.variant, c.start * each, c.stop * each) for c in self._cuts[self.rows]
            )
            self._cuts[positions] = found
        return found

    def of_rows(self, device: torch.device) -> torch.Tensor:
        """Variant of each row, ``variants`` for the base."""
        there = self._there
        if there.of_rows is None:
            found = torch.empty(self.rows, dtype=torch.int64)
            for cut in self._cuts[self.rows]:
                found[cut.start : cut.stop] = self.variants if cut.variant is None else cut.variant
            there.of_rows = found.to(device)
        return there.of_rows

    def ends(self, positions: int, device: torch.device) -> torch.Tensor:
        """Ends of variants, then of the base: shape (variants + 1,), int32."""
        known = self._there.ends
        if self.rows not in known:
            stops = {cut.variant: cut.stop for cut in self._cuts[self.rows]}
            ends = [0]
            for variant in range(self.variants):
                ends.append(stops.get(variant, ends[-1]))
            known[self.rows] = torch.tensor([*ends[1:], self.rows], dtype=torch.int32).to(device)
        if positions not in known:
            known[positions] = known[self.rows] * (positions // self.rows)
        return known[positions]

    def scratch(self, size: int, like: torch.Tensor) -> torch.Tensor:
        """Buffer of ``size`` numbers that layers overwrite in turn."""
        if len(self._scratch) < size or self._scratch.dtype != like.dtype:
            self._scratch = like.new_empty(size)
        return self._scratch[:size]
