"""Runner: encode records, run the module, decode its answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch

Outputs = Mapping[str, NDArray[Any]]
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class EncodedRows:
    tensors: dict[str, torch.Tensor]
    """By argument of the module, each of shape (rows, …)."""
    lengths: NDArray[np.int64] | None = None
    """Unpadded positions of each row, shape (rows,); None if all are equal."""
    padding: Mapping[str, int] = field(default_factory=dict)
    """Padding value by tensor; 0 by default."""
    cut: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """By input: truncated texts, shape (rows,), if the encoder knows."""

    @property
    def count(self) -> int:
        return len(next(iter(self.tensors.values())))

    def slice(self, start: int, stop: int) -> "EncodedRows":
        """View, as wide as its longest record."""
        lengths = None if self.lengths is None else self.lengths[start:stop]
        cut = {name: rows[start:stop] for name, rows in self.cut.items()}
        return self._narrow({name: t[start:stop] for name, t in self.tensors.items()}, lengths, cut)

    def take(self, index: NDArray[np.intp]) -> "EncodedRows":
        """Copy, as wide as its longest record."""
        rows = torch.from_numpy(np.ascontiguousarray(index))
        lengths = None if self.lengths is None else self.lengths[index]
        cut = {name: each[index] for name, each in self.cut.items()}
        narrow = self._narrow(self.tensors, lengths, cut)
        return EncodedRows(
            {n: t.index_select(0, rows) for n, t in narrow.tensors.items()}, lengths, self.padding, cut
        )

    def _narrow(
        self,
        tensors: Mapping[str, torch.Tensor],
        lengths: NDArray[np.int64] | None,
        cut: Mapping[str, NDArray[np.bool_]],
    ) -> "EncodedRows":
        if lengths is None or not len(lengths):
            return EncodedRows(dict(tensors), lengths, self.padding, cut)
        width = max(1, int(lengths.max()))
        return EncodedRows({name: t[:, :width] for name, t in tensors.items()}, lengths, self.padding, cut)

    @classmethod
    def concat(cls, parts: "Sequence[EncodedRows]") -> "EncodedRows":
        """Padded to the widest; a single part is returned unchanged."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        if first.lengths is None:
            return cls({name: torch.cat([p.tensors[name] for p in parts]) for name in first.tensors})
        known = [part.lengths for part in parts if part.lengths is not None]
        lengths = np.concatenate(known)
        width = max(1, int(lengths.max()))
        joined = {}
        for name, tensor in first.tensors.items():
            whole = tensor.new_full((len(lengths), width, *tensor.shape[2:]), first.padding.get(name, 0))
            at = 0
            for part in parts:
                piece = part.tensors[name][:, :width]
                whole[at : at + len(piece), : piece.shape[1]] = piece
                at += len(piece)
            joined[name] = whole
        cut = {name: np.concatenate([part.cut[name] for part in parts]) for name in first.cut}
        return cls(joined, lengths, first.padding, cut)


class Runner(Protocol):
    """Loaded torch module with its encoder and decoder.

    Only ``run`` touches the device; it takes any selection of encoded rows, and a row's answer does not
    depend on the others but for rounding.
    """

    module: torch.nn.Module
    device: torch.device

    def encode(self, batch: Batch, /) -> EncodedRows:
        """On the CPU; raises for missing or unfit columns."""

    def run(self, tensors: Tensors, /) -> Tensors:
        """Raw answers (rows, …) on the device, without gradients."""

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        """Outputs by field, for raw answers on the CPU."""


class RunnerPredictor:
    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def __call__(self, batch: Batch, /) -> dict[str, NDArray[Any]]:
        runner = self.runner
        rows = runner.encode(batch)
        with torch.inference_mode():
            answers = runner.run({name: t.to(runner.device) for name, t in rows.tensors.items()})
        return runner.decode({name: t.cpu() for name, t in answers.items()})
