"""Models of the benchmark: a transformer of texts, a convolution of images, and records for them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import EncodedRows, Tensors
from outrider.dataops.model_kinds.torch_models import read_logits

from ._scale import Scale

WORDS, CLASSES = 8000, 4


class Block(nn.Module):
    """Attention and two layers, each behind a norm; the linear layers stand apart, as adapters want them."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.heads = scale.heads
        self.q, self.k, self.v, self.o = (nn.Linear(scale.width, scale.width) for _ in range(4))
        self.up = nn.Linear(scale.width, 4 * scale.width)
        self.down = nn.Linear(4 * scale.width, scale.width)
        self.before, self.between = nn.LayerNorm(scale.width), nn.LayerNorm(scale.width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Shape (rows, length, width) to the same."""
        h = self.before(x)
        q, k, v = (self._split(part(h)) for part in (self.q, self.k, self.v))  # (B, heads, T, C)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(seen.transpose(1, 2).flatten(2))
        out: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.between(x))))
        return out

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class Stem(nn.Module):
    """Words and positions, then blocks."""

    def __init__(self, scale: Scale, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, scale.width)
        self.positions = nn.Embedding(scale.length, scale.width)
        self.blocks = nn.ModuleList(Block(scale) for _ in range(layers))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Shape (rows, length) to (rows, length, width)."""
        x: torch.Tensor = self.words(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        return x  # (B, T, C)


class Top(nn.Module):
    """Blocks, mean over the words that count, and a layer."""

    def __init__(self, scale: Scale, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(scale) for _ in range(layers))
        self.norm = nn.LayerNorm(scale.width)
        self.out = nn.Linear(scale.width, CLASSES)
        nn.init.normal_(self.out.weight, std=2 / scale.width**0.5)  # as far apart as after training

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Shape (rows, length, width) to (rows, classes)."""
        for block in self.blocks:
            x = block(x, mask)
        counts = mask[:, 0, 0].to(x.dtype).unsqueeze(2)  # (B, T, 1)
        out: torch.Tensor = self.out(self.norm((x * counts).sum(1) / counts.sum(1)))
        return out


class TextModel(nn.Module):
    """Stem and top."""

    def __init__(self, scale: Scale, *, top_layers: int = 0) -> None:
        super().__init__()
        self.stem = Stem(scale, scale.layers - top_layers)
        self.top = Top(scale, top_layers)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Token ids (rows, length), 0 where there is no word, to logits (rows, classes)."""
        mask = (ids != 0)[:, None, None, :]
        out: torch.Tensor = self.top(self.stem(ids, mask), mask)
        return out


class ImageModel(nn.Module):
    """Convolutions, as many as asked for, a mean, and a layer."""

    def __init__(self, scale: Scale, depth: int) -> None:
        super().__init__()
        c = scale.channels
        first = [nn.Conv2d(3, c, 5, stride=4, padding=2), nn.ReLU()]
        others = [part for _ in range(depth) for part in (nn.Conv2d(c, c, 3, padding=1), nn.ReLU())]
        self.body = nn.Sequential(*first, *others)
        self.out = nn.Linear(c, CLASSES)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Shape (rows, 3, edge, edge) to (rows, classes)."""
        out: torch.Tensor = self.out(self.body(image).mean((2, 3)))
        return out


class OneInput:
    """A module with one argument as a Runner: of token ids as texts, of anything else as it is."""

    def __init__(self, module: nn.Module, argument: str = "ids") -> None:
        self.module = module.eval()
        self.device = torch.device("cpu")
        self.argument = argument
        self.encoding = argument
        """Equal for runners that encode alike."""

    def encode(self, batch: Batch, /) -> EncodedRows:
        """The column of that name as a tensor; texts with their lengths."""
        values = batch.tensor(f"inputs.{self.argument}", null=0)
        if self.argument != "ids":
            return EncodedRows({self.argument: torch.from_numpy(np.array(values, dtype=np.float32))})
        ids = values.astype(np.int64)
        lengths = (ids != 0).sum(1)
        return EncodedRows({"ids": torch.from_numpy(ids)[:, : int(lengths.max())]}, lengths)

    def run(self, tensors: Tensors, /) -> Tensors:
        """Logits."""
        return {"out": self.module(tensors[self.argument])}

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        """Class, score, margin and probabilities."""
        return read_logits(answers["out"].float(), np.arange(CLASSES))


def texts(scale: Scale, rows: int, *, seed: int = 0, shortest: int | None = None) -> Batch:
    """Random texts, all of full length unless a shortest one is given."""
    random = np.random.default_rng(seed)
    ids = random.integers(1, WORDS, (rows, scale.length), dtype=np.int32)
    if shortest is not None:
        lengths = random.integers(shortest, scale.length + 1, rows)
        ids[np.arange(scale.length) >= lengths[:, None]] = 0
    return Batch.from_columns({"inputs.ids": ids}, model="text")


def token_rows(scale: Scale, rows: int, *, seed: int = 0) -> EncodedRows:
    """The same, encoded."""
    return OneInput(nn.Identity()).encode(texts(scale, rows, seed=seed))


def image_rows(scale: Scale, rows: int) -> EncodedRows:
    """Random images, encoded."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(rows, 3, scale.pixels, scale.pixels, generator=generator)
    return EncodedRows({"image": image})
