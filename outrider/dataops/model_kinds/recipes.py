"""Recipe of a version: steps on a loaded module.

A recipe changes how the weights of a file are held and multiplied; `outrider.dataops.compression` makes
weights that lose nothing by it. All steps but ``bf16`` change plain ``nn.Linear`` layers only; those that
quantise take `torchao <https://github.com/pytorch/ao>`_.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from outrider.errors import ConfigError
from outrider.parts import install_command


def apply_recipe(module: torch.nn.Module, recipe: Sequence[str]) -> torch.nn.Module:
    """Apply steps in place to a module on the device where it will run: what a step can do depends on it."""
    for step in recipe:
        if step not in STEPS:
            raise ConfigError(f"recipe: no step {step!r}; there are {', '.join(STEPS)}")
    module.eval().requires_grad_(False)
    for step in recipe:
        STEPS[step](module)
    return module


def is_plain_linear(module: torch.nn.Module, name: str = "") -> bool:  # noqa: ARG001 - asked by torchao
    """True for linear layers whose weight no other module reads."""
    return type(module) is torch.nn.Linear and type(module.weight.data) is torch.Tensor


def device_of(module: torch.nn.Module) -> torch.device:
    """Device of a module; the CPU for one without parameters."""
    first = next(iter(module.parameters()), None)
    return torch.device("cpu") if first is None else first.device


def _bf16(module: torch.nn.Module) -> None:
    """Hold and multiply in bfloat16; numbers go in and come out as float32, so nobody else has to know."""
    module.bfloat16()
    module.register_forward_pre_hook(_take_bf16, with_kwargs=True)
    module.register_forward_hook(_give_float32)


def _take_bf16(
    module: torch.nn.Module,  # noqa: ARG001 - as torch calls it
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> tuple[Any, Any]:
    return tree_map(_to_bf16, args), tree_map(_to_bf16, named)


def _give_float32(module: torch.nn.Module, args: tuple[Any, ...], out: Any) -> Any:  # noqa: ARG001
    return tree_map(_to_float32, out)


def _to_bf16(value: Any) -> Any:
    return value.bfloat16() if torch.is_tensor(value) and value.dtype == torch.float32 else value


def _to_float32(value: Any) -> Any:
    return value.float() if torch.is_tensor(value) and value.dtype == torch.bfloat16 else value


def _torchao(config: str) -> Callable[[torch.nn.Module], None]:
    def quantise(module: torch.nn.Module) -> None:
        if not any(is_plain_linear(layer) for layer in module.modules()):
            raise ConfigError(f"recipe: {type(module).__name__} has no linear layer that could be quantised")
        try:
            from torchao import quantization
        except ImportError:
            raise ConfigError(
                f"recipe: quantisation needs torchao, which is not installed: {install_command(['gpu'])}"
            ) from None
        try:
            # Its settings for inductor are those of the whole process: they round the products of all others.
            chosen = getattr(quantization, config)(set_inductor_config=False)
            quantization.quantize_(module, chosen, filter_fn=is_plain_linear)
        except (AssertionError, RuntimeError, NotImplementedError) as error:
            raise ConfigError(f"recipe: {config} cannot be done on {device_of(module)}: {error}") from error

    return quantise


def _semi_structured(module: torch.nn.Module) -> None:
    """Compress weights with two zeros in every four, where the device multiplies such weights faster.

    Elsewhere they stay dense, zeros and all: the answers are the same, and so is the time.
    """
    if device_of(module).type != "cuda":
        return
    for layer in module.modules():
        if type(layer) is torch.nn.Linear and is_plain_linear(layer) and is_two_of_four(layer.weight):
            sparse = torch.sparse.to_sparse_semi_structured(layer.weight.detach())
            layer.weight = torch.nn.Parameter(sparse, requires_grad=False)


def is_two_of_four(weight: torch.Tensor) -> bool:
    """True for two zeros in every four row neighbours (rows, columns)."""
    if weight.ndim != 2 or weight.shape[1] % 4:
        return False
    return bool(((weight.reshape(-1, 4) == 0).sum(dim=1) >= 2).all())


class LowRankLinear(torch.nn.Module):
    """Linear layer of two thin matrices that hold half of its numbers; its state is what they multiply to.

    References
    ----------
    Denton et al., "Exploiting Linear Structure Within Convolutional Networks for Efficient Evaluation",
    NeurIPS 2014; decomposed as in Halko, Martinsson and Tropp, SIAM Review 2011.
    """

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        weight = layer.weight.detach()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            left, size, right = torch.svd_lowrank(weight.float().cpu(), q=_half_rank(layer), niter=4)
        self.up = torch.nn.Parameter((left * size).to(weight), requires_grad=False)  # (out, rank)
        self.down = torch.nn.Parameter(right.T.contiguous().to(weight), requires_grad=False)  # (rank, in)
        self.bias = layer.bias

    @property
    def weight(self) -> torch.Tensor:  # (out, in)
        return self.up @ self.down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        linear = torch.nn.functional.linear
        return linear(linear(x, self.down), self.up, self.bias)

    def _save_to_state_dict(self, destination: dict[str, torch.Tensor], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.weight if keep_vars else self.weight.detach()
        if self.bias is not None:
            destination[f"{prefix}bias"] = self.bias if keep_vars else self.bias.detach()


def _low_rank(module: torch.nn.Module) -> None:
    """Take each linear layer apart: exact for weights of half rank, the nearest such weights for others."""
    layers = {name: layer for name, layer in module.named_modules() if name and is_plain_linear(layer)}
    thinner = {name: layer for name, layer in layers.items() if _half_rank(layer)}
    if not thinner:
        raise ConfigError(f"recipe: {type(module).__name__} has no linear layer that could be taken apart")
    for name, layer in thinner.items():
        parent, _, last = name.rpartition(".")
        setattr(module.get_submodule(parent), last, LowRankLinear(layer))


def _half_rank(layer: torch.nn.Linear) -> int:
    """Rank at which two matrices hold half of a layer's numbers."""
    return layer.in_features * layer.out_features // (2 * (layer.in_features + layer.out_features))


STEPS: dict[str, Callable[[torch.nn.Module], None]] = {
    "bf16": _bf16,
    "int8_weight_only": _torchao("Int8WeightOnlyConfig"),
    "int8_dynamic": _torchao("Int8DynamicActivationInt8WeightConfig"),
    "fp8_weight_only": _torchao("Float8WeightOnlyConfig"),
    "fp8_dynamic": _torchao("Float8DynamicActivationFloat8WeightConfig"),
    "semi_structured": _semi_structured,
    "low_rank": _low_rank,
}
