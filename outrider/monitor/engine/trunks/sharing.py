"""Sharing of equal weights and submodules as one object in memory.

Parts at the same place, of one class with equal attributes and bit-equal tensors, are the same computation.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from .fingerprint import fingerprint

_OF_TORCH = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_SAMPLE = 64


class Sharing:
    """Modules whose equal parts are one object, with the owners.

    Modules are changed in place: equal tensors and submodules are replaced, and ``inplace`` is switched
    off, for what one writes into another may still read.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._tensors: dict[Hashable, list[torch.Tensor]] = {}
        self._parts: dict[Hashable, nn.Module] = {}
        self._prints: dict[int, Hashable] = {}
        self._owners: dict[int, frozenset[int]] = {}
        self._weighs: dict[int, bool] = {}
        self._splits: dict[int, bool] = {}
        self.modules = list(modules)
        self.separate_bytes = sum(t.nbytes for module in modules for t in _tensors_of(module))
        for number, module in enumerate(modules):
            self._share_below(module, "")
            for part in module.modules():
                self._owners[id(part)] = self._owners.get(id(part), frozenset()) | {number}
        held = {id(t): t.nbytes for module in modules for t in _tensors_of(module)}
        self.held_bytes = sum(held.values())
        self._tensors.clear()
        self._parts.clear()
        self._prints.clear()

    def owners(self, part: nn.Module) -> frozenset[int]:
        return self._owners.get(id(part), frozenset())

    def is_split(self, part: nn.Module) -> bool:
        if id(part) not in self._splits:
            mine = self.owners(part)
            self._splits[id(part)] = any(
                self.owners(inner) > mine and self._has_tensors(inner) for inner in part.modules()
            )
        return self._splits[id(part)]

    def groups(self) -> list[list[int]]:
        """Groups of modules, as numbers, sharing weights directly or through others."""
        joined = {number: {number} for number in range(len(self.modules))}
        for module in self.modules:
            for part in module.modules():
                if len(self.owners(part)) > 1 and self._has_tensors(part):
                    whole = set().union(*(joined[number] for number in self.owners(part)))
                    joined |= dict.fromkeys(whole, whole)
        return sorted(sorted(found) for found in {id(found): found for found in joined.values()}.values())

    def leaves(self, number: int) -> Iterator[nn.Module]:
        """Largest one-operation parts of a module that share nothing inside alone."""
        yield from self._leaves_of(self.modules[number])

    def shared_tensors(self) -> list[torch.Tensor]:
        count: dict[int, int] = {}
        found: dict[int, torch.Tensor] = {}
        for module in self.modules:
            for tensor in _tensors_of(module):
                found[id(tensor)] = tensor
                count[id(tensor)] = count.get(id(tensor), 0) + 1
        return [found[key] for key, times in count.items() if times > 1]

    # ---- inside ----------------------------------------------------------------------------------------

    def _leaves_of(self, part: nn.Module) -> Iterator[nn.Module]:
        for child in part.children():
            if self.is_split(child):
                yield from self._leaves_of(child)
            else:
                yield child

    def _share_below(self, module: nn.Module, path: str) -> None:
        if isinstance(getattr(module, "inplace", None), bool):
            module.inplace = False  # type: ignore[assignment]  # nn.Module declares tensors and modules only
        stores: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for store in stores:
            for name, tensor in store.items():
                if tensor is not None:
                    store[name] = self._known_tensor(tensor, f"{path}.{name}")
        base = getattr(module, "base_model_prefix", None)  # the trunk of a Hugging Face model with a head
        for name, part in module._modules.items():
            if part is not None:
                below = path if name == base else f"{path}.{name}"
                self._share_below(part, below)
                module._modules[name] = self._parts.setdefault((below, self._key(part)), part)

    def _known_tensor(self, tensor: torch.Tensor, path: str) -> torch.Tensor:
        if type(tensor) not in (torch.Tensor, nn.Parameter):
            return tensor  # quantised: what lies behind it is not ours to compare
        place = (path, type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        known = self._tensors.setdefault(place, [])
        for other in known:
            if is_same(tensor, other):
                return other
        known.append(tensor)
        return tensor

    def _key(self, part: nn.Module) -> Hashable:
        if any(getattr(part, hooks) for hooks in _HOOKS):
            return id(part)
        own = {name: value for name, value in vars(part).items() if name not in _OF_TORCH}
        tensors = {**part._parameters, **part._buffers}
        return (
            self._print(type(part)),
            tuple((name, self._print(value)) for name, value in sorted(own.items())),
            tuple((name, None if tensor is None else id(tensor)) for name, tensor in tensors.items()),
            tuple((name, None if inner is None else id(inner)) for name, inner in part._modules.items()),
        )

    def _print(self, value: object) -> Hashable:
        """Fingerprint, cached for classes and configurations that hundreds of parts name."""
        if not isinstance(value, type) and not hasattr(value, "to_dict"):
            return fingerprint(value)
        if id(value) not in self._prints:
            self._prints[id(value)] = fingerprint(value)
        return self._prints[id(value)]

    def _has_tensors(self, part: nn.Module) -> bool:
        if id(part) not in self._weighs:
            self._weighs[id(part)] = next(_tensors_of(part), None) is not None
        return self._weighs[id(part)]


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other:
        return True
    start, begin = (t.detach().reshape(-1)[:_SAMPLE] for t in (one, other))
    return _same_bits(start, begin) and _same_bits(one.detach(), other.detach())


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    left, right = (t.contiguous().reshape(-1).view(torch.uint8) for t in (one, other))
    return torch.equal(left, right)


def _tensors_of(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()
