"""Linear layers with LoRA adapters by row in one batch."""

from collections.abc import Mapping

import torch

from .adapter import LowRank
from .adapter_mixing import Mixing, VariantSpan

MERGED_NUMBERS = 384 * 1536
"""Numbers of a merged weight made at a time, in one buffer for all layers: 2.4 MB."""


class MixedLinear(torch.nn.Module):
    """Base's product plus each row's adapter term, rows of an adapter adjacent.

    On the CPU a long run is multiplied by ``W + up @ down``, made in blocks: fewer operations from ``in * out
    / (in + out)`` positions. Short runs write the adapter's term first and add the base's product in place.
    On a GPU both low-rank products are taken for all rows (`Stacked`; Chen et al., "Punica", MLSys 2024).
    ``base`` is Linear or GPT-2's transposed Conv1D; its parameters are used, not copied.
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
        return self._fused(x, cuts) if self._is_plain else self._added(x, cuts)

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

    def _added(self, x: torch.Tensor, cuts: tuple[VariantSpan, ...]) -> torch.Tensor:
        """The base's own output, whatever its weights are, plus adapters' terms."""
        y: torch.Tensor = self._base[0](x)
        for cut in cuts:
            part = y[cut.start : cut.stop]
            low = None if cut.variant is None else self._low.get(cut.variant)
            if low is not None:
                part += (x[cut.start : cut.stop].to(low.down.dtype) @ low.down.t() @ low.up.t()).to(y.dtype)
            if self.bias is not None and cut.variant in self._biases:
                part += self._biases[cut.variant] - self.bias
        return y


class Stacked:
    """Sum of adapters' terms over a batch, in two products.

    bfloat16 takes grouped products, other types batched ones; both index rows on the device, so that a
    captured pass serves every mixture. Ranks are padded to a multiple of eight; the base has zeros, last.
    """

    def __init__(self, mixing: Mixing, low: Mapping[int, LowRank]) -> None:
        some = next(iter(low.values()))
        rank = -(-max(pair.down.shape[0] for pair in low.values()) // 8) * 8
        groups = mixing.variants + 1
        self._mixing = mixing
        self.down = some.down.new_zeros(groups, rank, some.down.shape[1])  # (variants + 1, r, in)
        self.up = some.up.new_zeros(groups, some.up.shape[0], rank)  # (variants + 1, out, r)
        for variant, pair in low.items():
            own = pair.down.shape[0]
            self.down[variant, :own], self.up[variant, :, :own] = pair.down, pair.up

    def add(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Add terms for ``x`` (positions, in) to ``y`` (positions, out)."""
        if x.dtype == torch.bfloat16 and x.shape[1] % 8 == 0 and y.shape[1] % 8 == 0:
            ends = self._mixing.ends(len(x), x.device)
            h = torch._grouped_mm(x, self.down.transpose(1, 2), offs=ends)  # (positions, r)
            y += torch._grouped_mm(h, self.up.transpose(1, 2), offs=ends)
            return
        rows, of_rows = self._mixing.rows, self._mixing.of_rows(x.device)
        h = torch.bmm(x.view(rows, -1, x.shape[1]), self.down[of_rows].transpose(1, 2))  # (rows, each, r)
        y.view(rows, -1, y.shape[1]).baddbmm_(h, self.up[of_rows].transpose(1, 2))


def rows_of(layer: torch.nn.Module) -> torch.Tensor:
    """Weight as (out, in), transposed for GPT-2's ``Conv1D``."""
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
