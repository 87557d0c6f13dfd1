"""A classifier of intents from words and pairs of words, by their hashes."""

import re
import zlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

CLASSES = 151
"""150 intents of clinc150, and queries out of scope."""
HASHES, PLACES, WIDTH = 2**14, 32, 64


class Bag(torch.nn.Module):
    """Mean of embedded words, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.EmbeddingBag(HASHES, WIDTH, padding_idx=0)
        self.drop = torch.nn.Dropout(0.3)
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits of every class."""
        logits: torch.Tensor = self.head(self.drop(torch.tanh(4.0 * self.words(words.long()))))
        return logits


def net() -> torch.nn.Module:
    """Return an untrained one."""
    return Bag()


def encoded(texts: Sequence[str]) -> NDArray[np.int64]:
    """Hashes of the words and of the pairs of words, shape (texts, PLACES); 0 is none."""
    found = np.zeros((len(texts), PLACES), np.int64)
    for row, text in enumerate(texts):
        words = re.findall(r"[a-z0-9']+", text.lower())
        pairs = [f"{one} {two}" for one, two in zip(["^", *words], [*words, "$"], strict=True)]
        known = [1 + zlib.crc32(one.encode()) % (HASHES - 1) for one in (*words, *pairs)][:PLACES]
        found[row, : len(known)] = known
    return found
