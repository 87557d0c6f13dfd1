"""Low-rank matrices of a layer's adapters, two tensors for a GPU."""

from collections.abc import Mapping

import torch

from .adapter import LowRank
from .adapter_mixing import Mixing


class Stacked:
    """Sum of adapters' terms over a batch, in two products.

    bfloat16 takes grouped products (one kernel over runs of rows of any length), everything else a product
    of batches with the matrices of each row; both read on the device which row is whose, so that a captured
    pass serves every mixture.

    Parameters
    ----------
    low
        By variant; ranks are padded with zeros to a multiple of eight, and the base is one of zeros behind
        the variants.
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
        """Add adapter terms for ``x`` (positions, in) to ``y`` (positions, out)."""
        if x.dtype == torch.bfloat16 and x.shape[1] % 8 == 0 and y.shape[1] % 8 == 0:
            ends = self._mixing.ends(len(x), x.device)
            h = torch._grouped_mm(x, self.down.transpose(1, 2), offs=ends)  # (positions, r)
            y += torch._grouped_mm(h, self.up.transpose(1, 2), offs=ends)
            return
        rows, of_rows = self._mixing.rows, self._mixing.of_rows(x.device)
        h = torch.bmm(x.view(rows, -1, x.shape[1]), self.down[of_rows].transpose(1, 2))  # (rows, each, r)
        y.view(rows, -1, y.shape[1]).baddbmm_(h, self.up[of_rows].transpose(1, 2))
