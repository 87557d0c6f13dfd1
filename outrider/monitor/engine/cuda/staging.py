"""Batch memory: one block for all tensors, copied at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from outrider.dataops.model_kinds.runner import Tensors

ALIGNMENT = 256
"""Alignment of CUDA allocations; kernels choose wider loads for it."""


@dataclass(frozen=True, slots=True)
class Spec:
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


Specs = tuple[tuple[str, Spec], ...]


def specs_of(tensors: Tensors) -> Specs:
    return tuple((name, Spec(tuple(t.shape), t.dtype)) for name, t in tensors.items())


def bytes_of(specs: Specs) -> int:
    return sum(-(-spec.nbytes // ALIGNMENT) * ALIGNMENT for _, spec in specs)


def views(block: torch.Tensor, specs: Specs) -> dict[str, torch.Tensor]:
    found, at = {}, 0
    for name, spec in specs:
        found[name] = block[at : at + spec.nbytes].view(spec.dtype).view(spec.shape)
        at += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
    return found


class Arena:
    """A block of bytes that grows and is reused."""

    def __init__(self, allocate: Callable[[int], torch.Tensor]) -> None:
        self._allocate = allocate
        self._memory: torch.Tensor | None = None

    def block(self, nbytes: int) -> torch.Tensor:
        """First bytes of the arena; growing loses the content."""
        if self._memory is None or len(self._memory) < nbytes:
            self._memory = None  # or both are held at once
            self._memory = self._allocate(1 << max(12, (nbytes - 1).bit_length()))
        return self._memory[:nbytes]


def fill(target: torch.Tensor, source: torch.Tensor, padding: int) -> None:
    """Copy rows into a wider and longer tensor, and pad.

    Padding rows repeat the first: a row of padding alone could make a softmax over nothing, stale content
    could index beyond a table.
    """
    rows = len(source)
    if source.ndim > 1 and source.shape[1] < target.shape[1]:
        target[:rows, source.shape[1] :] = padding
        target[:rows, : source.shape[1]].copy_(source)
    else:
        target[:rows].copy_(source)
    if rows < len(target):
        target[rows:].copy_(target[:1].expand_as(target[rows:]))


def grown(
    tensors: Tensors, *, rows: int, width: int | None, narrow: Mapping[torch.dtype, torch.dtype]
) -> Specs:
    found = []
    for name, tensor in tensors.items():
        tail = tuple(tensor.shape[1:])
        if width is not None and tail:
            tail = (width, *tail[1:])
        found.append((name, Spec((rows, *tail), narrow.get(tensor.dtype, tensor.dtype))))
    return tuple(found)
