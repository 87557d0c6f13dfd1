"""Memo of shared calls in a sequence of modules, for code that fx cannot follow.

While a :class:`Memo` is entered, a shared part called with the tensors of an earlier call returns its result,
and so does a torch function between such parts.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, TracebackType
from typing import Any, Self

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .fingerprint import PLAIN, fingerprint
from .sharing import Sharing
from .writes import Kept


class _Private(Exception):  # noqa: N818 - control flow inside this file
    """Operand of one module alone, or of unknown origin."""


class LeafForward:
    """``forward`` of a one-operation part while a memo is entered; it lies among the part's own
    attributes, where ``nn.Module`` looks first."""

    def __init__(self, part: nn.Module, *, is_shared: bool) -> None:
        self.part = part
        self.is_shared = is_shared
        self.forward: Callable[..., Any] = part.forward
        self._memo: Memo | None = None
        self._own = vars(part).get("forward")

    def enter(self, memo: "Memo") -> None:
        self._memo = memo
        vars(self.part)["forward"] = self

    def leave(self) -> None:
        self._memo = None
        del vars(self.part)["forward"]
        if self._own is not None:
            vars(self.part)["forward"] = self._own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert self._memo is not None
        return self._memo.call_part(self, args, kwargs)


class Memo(TorchFunctionMode):
    """Calls of one batch, by their operands; ``kept`` are the inputs and shared weights."""

    def __init__(self, forwards: Sequence[LeafForward], kept: Kept) -> None:
        super().__init__()
        self._forwards = forwards
        self._kept = kept
        self._answers: dict[Hashable, Any] = {}
        self.saved = 0

    def __enter__(self) -> Self:
        for forward in self._forwards:
            forward.enter(self)
        super().__enter__()  # type: ignore[no-untyped-call]  # of torch
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]  # of torch
        for forward in self._forwards:
            forward.leave()

    def call_part(self, forward: LeafForward, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            # Out of the mode: torch leaves its fused paths while one is entered.
            super(Memo, self).__exit__(None, None, None)  # type: ignore[no-untyped-call]  # of torch
            try:
                return forward.forward(*args, **kwargs)
            finally:
                super(Memo, self).__enter__()  # type: ignore[no-untyped-call]  # of torch

        if not forward.is_shared:
            return run(*args, **kwargs)
        return self._once(("part", id(forward.part)), run, args, kwargs)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._once(func, func, args, kwargs or {})

    def _once(
        self, what: Hashable, run: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        try:
            key = what, self._key(args), self._key(kwargs)
        except _Private:
            return run(*args, **kwargs)
        if key in self._answers:
            self.saved += isinstance(what, tuple)
            return self._answers[key]
        answer = self._answers[key] = run(*args, **kwargs)
        self._kept.add(answer)
        return answer

    def _key(self, value: Any) -> Hashable:
        if isinstance(value, torch.Tensor):
            if value not in self._kept:
                raise _Private
            return "tensor", id(value)
        if isinstance(value, tuple | list):
            return type(value).__name__, tuple(map(self._key, value))
        if isinstance(value, Mapping):
            return "dict", tuple((name, self._key(item)) for name, item in value.items())
        if isinstance(value, slice):
            return "slice", self._key(value.start), self._key(value.stop), self._key(value.step)
        if isinstance(value, (*PLAIN, FunctionType, BuiltinFunctionType, type)):
            return fingerprint(value)
        raise _Private  # a cache or a generator changes under way


def leaf_forwards(sharing: Sharing) -> list[LeafForward]:
    leaves = {id(leaf): leaf for number in range(len(sharing.modules)) for leaf in sharing.leaves(number)}
    return [LeafForward(leaf, is_shared=len(sharing.owners(leaf)) > 1) for leaf in leaves.values()]
