"""Embeddings, convolutions and replaced layers with adapters by row."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from .adapter import LowRank
from .adapter_mixing import Mixing, VariantSpan

Convolution = torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Conv3d


class MixedEmbedding(torch.nn.Module):
    def __init__(self, base: torch.nn.Embedding, mixing: Mixing, low: Mapping[int, LowRank]) -> None:
        super().__init__()
        self.weight = base.weight
        self._base = (base,)
        self._mixing = mixing
        self._low = dict(low)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self._mixing.enter(self, ids)
        y: torch.Tensor = self._base[0](ids)
        for cut in self._mixing.cuts(len(ids)):
            if cut.variant in self._low:
                low, part = self._low[cut.variant], slice(cut.start, cut.stop)
                y[part] += F.embedding(ids[part], low.down.t()) @ low.up.t()
        return y


class MixedConvolution(torch.nn.Module):
    def __init__(self, base: Convolution, mixing: Mixing, low: Mapping[int, LowRank]) -> None:
        super().__init__()
        self.weight, self.bias = base.weight, base.bias
        self._base = (base,)
        self._mixing = mixing
        self._low = dict(low)
        self._convolve: Any = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[base.weight.ndim]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._mixing.enter(self, x)
        base = self._base[0]
        y: torch.Tensor = base(x)
        for cut in self._mixing.cuts(len(x)):
            if cut.variant in self._low:
                low, part = self._low[cut.variant], slice(cut.start, cut.stop)
                h = self._convolve(x[part], low.down, None, base.stride, base.padding)
                y[part] += self._convolve(h, low.up)
        return y


class Replaced(torch.nn.Module):
    """Layer trained whole by adapters (``modules_to_save``, biases), each for its rows.

    Narrower outputs are padded with zeros to the widest, see ``widths``.
    """

    def __init__(
        self, base: torch.nn.Module, mixing: Mixing, tensors: Mapping[int, Mapping[str, torch.Tensor]]
    ) -> None:
        super().__init__()
        for name, parameter in base.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in base.named_buffers(recurse=False):
            self.register_buffer(name, buffer)
        self._base = (base,)
        self._mixing = mixing
        self._variants = {variant: (_with(base, own),) for variant, own in tensors.items()}
        self.widths = {variant: _width(made[0]) for variant, made in self._variants.items()}
        self.width = _width(base)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._mixing.enter(self, x)
        outs = [self._of(cut)(x[cut.start : cut.stop]) for cut in self._mixing.cuts(len(x))]
        widest = max(out.shape[-1] for out in outs)
        return torch.cat([F.pad(out, (0, widest - out.shape[-1])) for out in outs])

    def _of(self, cut: VariantSpan) -> torch.nn.Module:
        own = None if cut.variant is None else self._variants.get(cut.variant)
        return (own or self._base)[0]


class ReplacedLinear(torch.nn.Module):
    """Head trained whole, all rows in one product, indexed on the device."""

    def __init__(
        self,
        base: torch.nn.Linear,
        mixing: Mixing,
        tensors: Mapping[int, Mapping[str, torch.Tensor]],
    ) -> None:
        super().__init__()
        self.weight, self.bias = base.weight, base.bias
        self._mixing = mixing
        own = [tensors.get(variant, {}) for variant in range(mixing.variants)]
        weights = [given.get("weight", base.weight) for given in own] + [base.weight]
        self.widths = {variant: len(weights[variant]) for variant in tensors}
        self.width = len(base.weight)
        widest = max(len(weight) for weight in weights)
        self._weights = torch.stack(
            [_tall(weight.data, widest) for weight in weights]
        )  # (variants + 1, out, in)
        biases = [given.get("bias", base.bias) for given in own] + [base.bias]
        self._biases = (
            None if base.bias is None else torch.stack([_tall(bias.data, widest) for bias in biases])
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._mixing.enter(self, x)
        rows, of_rows = self._mixing.rows, self._mixing.of_rows(x.device)
        y = torch.bmm(x.reshape(rows, -1, x.shape[-1]), self._weights[of_rows].transpose(1, 2))
        if self._biases is not None:
            y += self._biases[of_rows][:, None]
        return y.view(*x.shape[:-1], y.shape[-1])


def _tall(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """With zeros below."""
    tall = tensor.new_zeros(rows, *tensor.shape[1:])
    tall[: len(tensor)] = tensor
    return tall


def _with(base: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    made = copy.copy(base)
    made._parameters = dict(base._parameters)  # a shallow copy shares the table
    for name, tensor in tensors.items():
        made._parameters[name] = torch.nn.Parameter(tensor, requires_grad=False)
    return made


def _width(layer: torch.nn.Module) -> int:
    """Outputs of a linear layer, else 0."""
    return len(layer.weight) if isinstance(layer, torch.nn.Linear) else 0
