"""Small models of texts and numbers, and rows for them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import EncodedRows, Tensors

WORDS = 50


class Reader(torch.nn.Module):
    """Mean of embeddings of the tokens that count, then a layer; as many positions as ``longest``."""

    def __init__(self, longest: int = 64, classes: int = 3) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 8)
        self.positions = torch.nn.Embedding(longest, 8)
        self.head = torch.nn.Linear(8, classes)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        known = self.words(ids) + self.positions(torch.arange(ids.shape[1]))  # (B, T, 8)
        weights = mask.unsqueeze(-1).to(known.dtype)
        out: torch.Tensor = self.head((known * weights).sum(1) / weights.sum(1).clamp(min=1))
        return out


class TextRunner:
    """The reader as a Runner."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module.eval()
        self.device = torch.device("cpu")

    def encode(self, batch: Batch, /) -> EncodedRows:
        raise NotImplementedError

    def run(self, tensors: Tensors, /) -> Tensors:
        return {"out": self.module(tensors["ids"], tensors["mask"])}

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        return {"value": answers["out"].numpy()}


def texts(count: int, *, longest: int = 40, seed: int = 0) -> EncodedRows:
    """Rows of random texts, as narrow as their longest."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest + 1, count)
    width = int(lengths.max())
    mask = torch.from_numpy((np.arange(width) < lengths[:, None]).astype(np.int64))
    ids = torch.from_numpy(random.integers(1, WORDS, (count, width))) * mask
    return EncodedRows({"ids": ids, "mask": mask}, lengths)


def same(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> None:
    """Assert equal answers but for the rounding of another batch shape."""
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=1e-5, atol=1e-6)
