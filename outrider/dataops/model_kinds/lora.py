"""Linear layers with LoRA adapters by row in one batch."""

from collections.abc import Mapping

import torch

from .adapter import LowRank
from .adapter_mixing import Mixing, VariantSpan
from .stacked import Stacked

MERGED_NUMBERS = 384 * 1536
"""Numbers of a merged weight that are made at a time, in one buffer for all layers: 2.4 MB."""


class MixedLinear(torch.nn.Module):
    """Linear layer: the base's product plus each row's adapter term.

    Rows of an adapter lie side by side. On the CPU a long run of them is multiplied by ``W + up @ down``,
    made block by block in a buffer that is used again: that takes fewer operations than the low rank as soon
    as there are more than ``in * out / (in + out)`` positions. For short runs, what the adapter adds is
    written where the base's product is then added, as the bias is, so that the output is not read once more.
    On a GPU both low-rank products are taken for all rows at once (`Stacked`; Chen et al., "Punica:
    Multi-Tenant LoRA Serving", MLSys 2024).

    Parameters
    ----------
    base
        ``torch.nn.Linear``, or the ``Conv1D`` of GPT-2, whose weight lies the other way round. Its very
        parameters are used, under their names.
    low
        By number of the variant; those that are not named leave this layer as it is.
    biases
        What stands in the place of the base's bias, for adapters that trained it.
    is_stacked
        Whether all rows are taken at once, as on a GPU; then there are no biases.
    """

    def __init__(
        self,
        base: torch.nn.Module,
        mixing: Mixing,
        *,
        low: Mapping[int, LowRank],
        biases: Mapping[int, torch.Tensor],
        is_stacked: bool = False,
    ) -> None:
        super().__init__()
        weight, bias = base.weight, base.bias
        assert isinstance(weight, torch.Tensor)
        assert bias is None or isinstance(bias, torch.Tensor)
        self.weight, self.bias = weight, bias
        self._base = (base,)  # in a tuple: its parameters are this module's own already
        self._rows = rows_of(base)
        self.out_features, self.in_features = self._rows.shape  # (out, in)
        self._mixing = mixing
        self._low, self._biases = dict(low), dict(biases)
        self._stacked = Stacked(mixing, self._low) if is_stacked else None
        if is_stacked:
            self._low.clear()
        self._worth = self.in_features * self.out_features // (self.in_features + self.out_features)
        self._is_plain = (
            type(self.weight.data) is torch.Tensor
            and self.weight.dtype == torch.float32
            and self.weight.device.type == "cpu"
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Output of shape (…, out) for ``x`` of shape (…, in)."""
        self._mixing.enter(self, x)
        flat = x.reshape(-1, self.in_features)  # (positions, in)
        return self._answer(flat).view(*x.shape[:-1], self.out_features)

    def _answer(self, x: torch.Tensor) -> torch.Tensor:
        if self._stacked is not None:
            y: torch.Tensor = self._base[0](x)
            self._stacked.add(x, y)
            return y
        cuts = self._mixing.cuts(len(x))
        return self._fused(x, cuts) if self._is_plain else self._beside(x, cuts)

    def _fused(self, x: torch.Tensor, cuts: tuple[VariantSpan, ...]) -> torch.Tensor:
        y = x.new_empty(len(x), self.out_features)
        done = 0
        for cut in cuts:
            part = slice(cut.start, cut.stop)
            low = None if cut.variant is None else self._low.get(cut.variant)
            if low is not None and cut.stop - cut.start > self._worth:
                self._add_base(x, y, done, cut.start)
                self._run_merged(x[part], y[part], low, self._bias(cut))
                done = cut.stop
            else:
                _begin(x[part], y[part], low, self._bias(cut))
        self._add_base(x, y, done, len(x))
        return y

    def _add_base(self, x: torch.Tensor, y: torch.Tensor, start: int, stop: int) -> None:
        if start < stop:
            y[start:stop].addmm_(x[start:stop], self._rows.t())

    def _run_merged(self, x: torch.Tensor, y: torch.Tensor, low: LowRank, bias: torch.Tensor | None) -> None:
        """Output of the rows of one variant, by the base's weight with the adapter's product added to it."""
        step = max(64, MERGED_NUMBERS // self.in_features)
        for start in range(0, self.out_features, step):
            stop = min(start + step, self.out_features)
            room = self._mixing.scratch((stop - start) * self.in_features, x).view(stop - start, -1)
            torch.addmm(self._rows[start:stop], low.up[start:stop], low.down, out=room)
            if bias is None:
                torch.mm(x, room.t(), out=y[:, start:stop])
            else:
                torch.addmm(bias[start:stop], x, room.t(), out=y[:, start:stop])

    def _bias(self, cut: VariantSpan) -> torch.Tensor | None:
        return self.bias if cut.variant is None else self._biases.get(cut.variant, self.bias)

    def _beside(self, x: torch.Tensor, cuts: tuple[VariantSpan, ...]) -> torch.Tensor:
        """The base's own output, whatever its weights are, with what adapters add."""
        y: torch.Tensor = self._base[0](x)
        for cut in cuts:
            part = y[cut.start : cut.stop]
            low = None if cut.variant is None else self._low.get(cut.variant)
            if low is not None:
                part += (x[cut.start : cut.stop].to(low.down.dtype) @ low.down.t() @ low.up.t()).to(y.dtype)
            if self.bias is not None and cut.variant in self._biases:
                part += self._biases[cut.variant] - self.bias
        return y


def rows_of(layer: torch.nn.Module) -> torch.Tensor:
    """Linear layer's weight as (out, in), transposed for GPT-2's ``Conv1D``."""
    weight = layer.weight
    assert isinstance(weight, torch.Tensor)
    return weight if isinstance(layer, torch.nn.Linear) else weight.t()


def _begin(x: torch.Tensor, y: torch.Tensor, low: LowRank | None, bias: torch.Tensor | None) -> None:
    """Everything but the base's product, into ``y``."""
    if low is None:
        _ = y.zero_() if bias is None else y.copy_(bias)
        return
    h = torch.mm(x, low.down.t())  # (positions, r)
    if bias is None:
        torch.mm(h, low.up.t(), out=y)
    else:
        torch.addmm(bias, h, low.up.t(), out=y)
