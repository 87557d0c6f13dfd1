"""Module with adapters: one pass for all and the base."""

import copy
from collections.abc import Mapping, Sequence

import torch

from outrider.errors import ConfigError

from .adapter import Adapter, LowRank
from .adapter_mixing import Mixing, VariantSpan
from .lora import MixedLinear, rows_of
from .mixed_layers import MixedConvolution, MixedEmbedding, Replaced, ReplacedLinear
from .prefix import Prefixes

CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
Tensors = Mapping[int, Mapping[str, torch.Tensor]]


class Mixture:
    """Layers of a module with adapters, without copying parameters.

    ``is_stacked``: all rows at once, indexed on the device; by default unless on the CPU.
    """

    def __init__(
        self, module: torch.nn.Module, adapters: Sequence[Adapter], *, is_stacked: bool | None = None
    ) -> None:
        self.module = shared_copy(module)
        self.mixing = Mixing(len(adapters))
        device = next(module.parameters()).device
        stacked = device.type != "cpu" if is_stacked is None else is_stacked
        self._heads: list[Replaced | ReplacedLinear] = []
        self._is_stackable = stacked
        self._lay(adapters, stacked)
        self._prefixes = None
        if any(adapter.prefix is not None for adapter in adapters):
            self._prefixes = Prefixes(self.module, adapters, self.mixing)

    @property
    def is_indexable(self) -> bool:
        """True if every layer reads each row's variant on the device."""
        return self._is_stackable and self._prefixes is None

    def begin(self, rows: int, cuts: Sequence[VariantSpan]) -> None:
        self.mixing.begin(rows, cuts)

    def width(self, variant: int | None) -> tuple[int, int] | None:
        """Padded width of heads, and a variant's; None if all are equal."""
        for head in self._heads:
            widest = max([head.width, *head.widths.values()])
            own = head.width if variant is None else head.widths.get(variant, head.width)
            if {head.width, *head.widths.values()} != {widest}:
                return widest, own
        return None

    def idle(self) -> list[str]:
        """Layers with adapters that have not run yet."""
        marks = (MixedLinear, MixedEmbedding, MixedConvolution, Replaced, ReplacedLinear)
        layers = [(n, m) for n, m in self.module.named_modules() if isinstance(m, marks)]
        names = [name for name, layer in layers if layer not in self.mixing.entered]
        if self._prefixes is not None and not self._prefixes.has_run:
            names.append("the attention")
        return names

    def _lay(self, adapters: Sequence[Adapter], stacked: bool) -> None:
        layers = dict(self.module.named_modules(remove_duplicate=False))
        whole = _replaced(adapters, layers)
        low: dict[str, dict[int, LowRank]] = {}
        for number, adapter in enumerate(adapters):
            for name, pair in adapter.low_rank.items():
                low.setdefault(_known(adapter, name, layers), {})[number] = pair
        for name, pairs in low.items():
            laid = self._low_layer(name, layers, pairs, whole.pop(name, {}), adapters, stacked)
            _put(self.module, name, laid)
        for name, tensors in whole.items():
            moved = {v: {n: _like(t, layers[name]) for n, t in own.items()} for v, own in tensors.items()}
            head = self._head(layers[name], moved, stacked)
            self._heads.append(head)
            _put(self.module, name, head)
        _without_fast_path(self.module)

    def _low_layer(
        self,
        name: str,
        layers: Mapping[str, torch.nn.Module],
        low: Mapping[int, LowRank],
        whole: Tensors,
        adapters: Sequence[Adapter],
        stacked: bool,
    ) -> torch.nn.Module:
        layer = layers[name]
        if isinstance(layers[name.rpartition(".")[0]], torch.nn.MultiheadAttention):
            raise ConfigError(
                f"{name}: torch.nn.MultiheadAttention does not call its layers; it takes no LoRA"
            )
        for variant, pair in low.items():
            _check(adapters[variant], name, layer, pair)
        moved = {v: LowRank(_like(p.down, layer), _like(p.up, layer)) for v, p in low.items()}
        if extra := [n for own in whole.values() for n in own if n != "bias"]:
            raise ConfigError(f"{name}: an adapter has low-rank matrices and a {extra[0]} of its own for it")
        biases = {v: _like(own["bias"], layer) for v, own in whole.items()}
        if _is_linear(layer):
            self._is_stackable = self._is_stackable and not biases
            is_stacked = stacked and not biases
            return MixedLinear(layer, self.mixing, low=moved, biases=biases, is_stacked=is_stacked)
        if biases:
            raise ConfigError(f"{name}: a bias of an adapter's own is known for linear layers only")
        self._is_stackable = False
        if type(layer) is torch.nn.Embedding:
            return MixedEmbedding(layer, self.mixing, moved)
        assert isinstance(layer, CONVOLUTIONS)
        return MixedConvolution(layer, self.mixing, moved)

    def _head(self, layer: torch.nn.Module, tensors: Tensors, stacked: bool) -> "Replaced | ReplacedLinear":
        if stacked and type(layer) is torch.nn.Linear:
            return ReplacedLinear(layer, self.mixing, tensors)
        self._is_stackable = False
        return Replaced(layer, self.mixing, tensors)


def shared_copy(module: torch.nn.Module) -> torch.nn.Module:
    """Same structure with the same parameters and buffers."""
    shared = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(tensor): tensor for tensor in shared})


def _replaced(
    adapters: Sequence[Adapter], layers: Mapping[str, torch.nn.Module]
) -> dict[str, dict[int, dict[str, torch.Tensor]]]:
    """Replacing tensors by layer and variant, without those equal to the base's."""
    found: dict[str, dict[int, dict[str, torch.Tensor]]] = {}
    for number, adapter in enumerate(adapters):
        for full, tensor in adapter.replaced.items():
            name, _, part = full.rpartition(".")
            layer = layers[_known(adapter, name, layers)]
            base = getattr(layer, part, None)
            if not isinstance(base, torch.Tensor):
                raise ConfigError(f"adapter {adapter.name}: {full} is no parameter of the base")
            expected = _shape(adapter, name, layer, base)
            if tensor.shape != expected:
                raise ConfigError(
                    f"adapter {adapter.name}: {full} of shape {expected} expected, got {tuple(tensor.shape)}"
                )
            if base.shape == tensor.shape and torch.equal(_like(tensor, layer), base):
                continue
            found.setdefault(name, {}).setdefault(number, {})[part] = tensor
    return found


def _shape(adapter: Adapter, name: str, layer: torch.nn.Module, base: torch.Tensor) -> tuple[int, ...]:
    """The base's shape, but for the outputs of a head."""
    head = adapter.replaced.get(f"{name}.weight")
    if type(layer) is torch.nn.Linear and head is not None:
        return (len(head), *base.shape[1:])
    return tuple(base.shape)


def _known(adapter: Adapter, name: str, layers: Mapping[str, torch.nn.Module]) -> str:
    if name not in layers:
        near = [other for other in layers if other.rpartition(".")[2] == name.rpartition(".")[2]]
        hint = f"; the base has {near[0]}" if near else ""
        raise ConfigError(f"adapter {adapter.name}: the base has no layer {name}{hint}")
    return name


def _check(adapter: Adapter, name: str, layer: torch.nn.Module, pair: LowRank) -> None:
    if _is_linear(layer):
        expected: tuple[int, ...] = tuple(rows_of(layer).shape)
    elif type(layer) is torch.nn.Embedding:
        expected = (layer.weight.shape[1], layer.weight.shape[0])
    elif isinstance(layer, CONVOLUTIONS):
        if layer.groups != 1 or any(size != 1 for size in layer.dilation) or layer.padding_mode != "zeros":
            raise ConfigError(
                f"adapter {adapter.name}: {name}: groups, dilation and padding modes are not known"
            )
        expected = (layer.out_channels, layer.in_channels)
    else:
        raise ConfigError(
            f"adapter {adapter.name}: {name} is a {type(layer).__name__}; LoRA is known for Linear, Conv1D, "
            "Embedding and convolutions"
        )
    got = (pair.up.shape[0], pair.down.shape[1])
    if got != expected:
        raise ConfigError(
            f"adapter {adapter.name}: {name} takes {expected[1]} to {expected[0]}, LoRA {got[1]} to {got[0]}"
        )


def _is_linear(layer: torch.nn.Module) -> bool:
    """``torch.nn.Linear``, also with other weights, or GPT-2's ``Conv1D``."""
    return isinstance(layer, torch.nn.Linear) or type(layer).__name__ == "Conv1D"


def _like(tensor: torch.Tensor, layer: torch.nn.Module) -> torch.Tensor:
    """On the layer's device, in its type if that is a float."""
    weight = layer.weight
    assert isinstance(weight, torch.Tensor)
    dtype = weight.dtype if weight.dtype.is_floating_point else torch.float32
    return tensor.to(device=weight.device, dtype=dtype)


def _put(module: torch.nn.Module, name: str, layer: torch.nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, layer.eval())


def _without_fast_path(module: torch.nn.Module) -> None:
    """Torch's fused encoder kernel reads the base's weights alone."""
    for layer in module.modules():
        if isinstance(layer, torch.nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0
