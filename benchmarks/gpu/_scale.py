"""How large everything is on a GPU, and on a CPU, where the figures only show that all of it runs."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["cuda", "cpu"]


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of models and batches, and times.

    Attributes
    ----------
    seconds
        Of every timed stretch, of which there are ``rounds`` of each kind in turn.
    neighbour_s
        How long the other process measures itself, alone and beside the engine.
    pixels
        Edge of an image of three channels.
    """

    layers: int
    width: int
    heads: int
    length: int
    rows: int
    adapters: int
    rank: int
    tops: int
    top_layers: int
    pixels: int
    channels: int
    image_rows: int
    rounds: int
    seconds: float
    neighbour_s: float


SCALES: dict[Kind, Scale] = {
    "cuda": Scale(12, 768, 12, 128, 128, 64, 16, 8, 2, 128, 192, 256, 5, 1.0, 8.0),
    "cpu": Scale(2, 32, 2, 16, 16, 4, 4, 3, 1, 16, 4, 16, 1, 0.01, 0.2),
}
