"""Linear layers with several LoRA adapters, each for its own rows of one batch."""

from collections.abc import Mapping

import torch

from .adapter import LowRank
from .mixing import Cut, Mixing

MERGED_NUMBERS = 384 * 384
"""Numbers of a merged weight that are made at a time: they stay in the second-level cache while they are used."""


class MixedLinear(torch.nn.Module):
    """A linear layer whose rows have adapters: the base's product, and what each adapter adds to its rows.

    Rows of an adapter lie side by side. On the CPU a long run of them is multiplied by ``W + up @ down``, made
    block by block in a buffer that is used again: that takes fewer operations than the low rank as soon as
    there are more than ``in * out / (in + out)`` positions. For short runs, what the adapter adds is written
    where the base's product is then added, as the bias is, so that the output is not read once more. On a GPU
    each of both low-rank products is one grouped product (Chen et al., "Punica: Multi-Tenant LoRA Serving",
    MLSys 2024).

    Parameters
    ----------
    base
        ``torch.nn.Linear``, or the ``Conv1D`` of GPT-2, whose weight lies the other way round. Its very
        parameters are used, under their names.
    low
        By number of the variant; those that are not named leave this layer as it is.
    biases
        What stands in the place of the base's bias.
    is_grouped
        Whether products are grouped; else they are taken one by one.
    """

    def __init__(
        self,
        base: torch.nn.Module,
        mixing: Mixing,
        *,
        low: Mapping[int, LowRank],
        biases: Mapping[int, torch.Tensor],
        is_grouped: bool = False,
    ) -> None:
        super().__init__()
        self.weight, self.bias = base.weight, base.bias
        self._base = (base,)  # in a tuple: its parameters are this module's own already
        self._rows: torch.Tensor = self.weight if isinstance(base, torch.nn.Linear) else self.weight.t()
        self.out_features, self.in_features = self._rows.shape  # (out, in)
        self._mixing = mixing
        self._low, self._biases = dict(low), dict(biases)
        self._worth = self.in_features * self.out_features // (self.in_features + self.out_features)
        self._is_plain = type(self.weight.data) is torch.Tensor and self.weight.dtype == torch.float32
        self._stack = _Stack(mixing, self._low) if is_grouped and low else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Output of shape (…, out) for ``x`` of shape (…, in)."""
        cuts = self._mixing.enter(self, x)
        flat = x.reshape(-1, self.in_features)  # (positions, in)
        if self._stack is not None or not self._is_plain or x.is_cuda:
            return self._beside(flat, cuts).view(*x.shape[:-1], self.out_features)
        y = flat.new_empty(len(flat), self.out_features)
        done = 0
        for cut in cuts:
            if cut.variant in self._low and cut.stop - cut.start > self._worth:
                self._add_base(flat, y, done, cut.start)
                self._run_merged(flat[cut.start : cut.stop], y[cut.start : cut.stop], cut.variant)
                done = cut.stop
            else:
                self._begin(flat[cut.start : cut.stop], y[cut.start : cut.stop], cut.variant)
        self._add_base(flat, y, done, len(flat))
        return y.view(*x.shape[:-1], self.out_features)

    def _begin(self, x: torch.Tensor, y: torch.Tensor, variant: int | None) -> None:
        """Everything but the base's product, into ``y``."""
        bias = self._bias(variant)
        if variant is None or variant not in self._low:
            _ = y.zero_() if bias is None else y.copy_(bias)
            return
        low = self._low[variant]
        h = torch.mm(x, low.down.t())  # (positions, r)
        if bias is None:
            torch.mm(h, low.up.t(), out=y)
        else:
            torch.addmm(bias, h, low.up.t(), out=y)

    def _add_base(self, x: torch.Tensor, y: torch.Tensor, start: int, stop: int) -> None:
        if start < stop:
            y[start:stop].addmm_(x[start:stop], self._rows.t())

    def _run_merged(self, x: torch.Tensor, y: torch.Tensor, variant: int) -> None:
        """Output of the rows of one variant, by the base's weight with the adapter's product added to it."""
        low, bias = self._low[variant], self._bias(variant)
        step = max(64, MERGED_NUMBERS // self.in_features)
        for start in range(0, self.out_features, step):
            stop = min(start + step, self.out_features)
            room = self._mixing.scratch((stop - start) * self.in_features, x).view(stop - start, -1)
            torch.addmm(self._rows[start:stop], low.up[start:stop], low.down, out=room)
            if bias is None:
                torch.mm(x, room.t(), out=y[:, start:stop])
            else:
                torch.addmm(bias[start:stop], x, room.t(), out=y[:, start:stop])

    def _bias(self, variant: int | None) -> torch.Tensor | None:
        return self.bias if variant is None else self._biases.get(variant, self.bias)

    def _beside(self, x: torch.Tensor, cuts: tuple[Cut, ...]) -> torch.Tensor:
        """The base's own output, whatever its weights are, with what adapters add."""
        y: torch.Tensor = self._base[0](x)
        if self._stack is not None:
            self._stack.add(x, y)
        for cut in cuts:
            part, variant = y[cut.start : cut.stop], cut.variant
            if variant is None:
                continue
            if self._stack is None and variant in self._low:
                low = self._low[variant]
                part += x[cut.start : cut.stop] @ low.down.t() @ low.up.t()
            if variant in self._biases:
                part += self._biases[variant] - (0 if self.bias is None else self.bias)
        return y


class _Stack:
    """Low-rank matrices of all variants in two tensors, ranks padded with zeros to a multiple of eight."""

    def __init__(self, mixing: Mixing, low: dict[int, LowRank]) -> None:
        some = next(iter(low.values()))
        rank = -(-max(pair.down.shape[0] for pair in low.values()) // 8) * 8
        groups = mixing.variants + 1  # the last is the base: zeros
        self._mixing = mixing
        self._down = some.down.new_zeros(groups, rank, some.down.shape[1])  # (variants + 1, r, in)
        self._up = some.up.new_zeros(groups, some.up.shape[0], rank)  # (variants + 1, out, r)
        for variant, pair in low.items():
            own = pair.down.shape[0]
            self._down[variant, :own], self._up[variant, :, :own] = pair.down, pair.up
            low[variant] = LowRank(self._down[variant, :own], self._up[variant, :, :own])  # no second copy

    def add(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Add to ``y`` what the adapters say to ``x``."""
        ends = self._mixing.ends(len(x), x.device)
        h = torch._grouped_mm(x, self._down.transpose(1, 2), offs=ends)  # (positions, r)
        y += torch._grouped_mm(h, self._up.transpose(1, 2), offs=ends)
