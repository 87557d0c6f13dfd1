"""Guard against writes into tensors with later readers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class WritesIntoShared(Exception):  # noqa: N818 - reads as the thing it is
    ...


class Kept:
    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._tensors = {id(tensor): tensor for tensor in tensors}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._tensors

    def add(self, answer: Any) -> None:
        for tensor in tensors_in(answer):
            self._tensors[id(tensor)] = tensor

    def places(self) -> set[int]:
        return {_place(tensor) for tensor in self._tensors.values() if tensor.numel()}


def tensors_in(answer: Any) -> Iterator[torch.Tensor]:
    """Tensors in nested tuples, lists and mappings."""
    if isinstance(answer, torch.Tensor):
        yield answer
    elif isinstance(answer, tuple | list):
        for item in answer:
            yield from tensors_in(item)
    elif isinstance(answer, Mapping):
        for item in answer.values():
            yield from tensors_in(item)


class WriteGuard(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    def __init__(self, kept: Kept) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self._kept = kept

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func._schema.is_mutable:
            places = self._kept.places()
            for argument, value in self._written(func, args, given):
                if any(_place(t) in places for t in tensors_in(value) if t.numel()):
                    raise WritesIntoShared(f"{func} writes into {argument}, which others read")
        return func(*args, **given)

    def _written(
        self, func: Any, args: tuple[Any, ...], given: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        for number, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield argument.name, args[number] if number < len(args) else given.get(argument.name)


def _place(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():  # inside a memo this is no call of a module
        return tensor.untyped_storage().data_ptr()
