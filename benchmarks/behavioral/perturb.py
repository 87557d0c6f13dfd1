"""Perturbations: images/s against plain torch or Pillow, texts/s against CheckList, same data, same run.

The floor of an image operation is the same operation on a tensor that is at hand, without a batch around
it; ``jpeg`` is held against Pillow, which writes and reads real files. CheckList 0.0.11 wants an environment
of its own; the ``peer_…`` functions take the steps of its ``Perturb`` (MIT licensed, Copyright (c) 2020 Marco
Tulio Correia Ribeiro). What else it has needs spaCy; those families are printed without a peer.
"""

import io
import re
from collections.abc import Callable

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import affine_grid, conv2d, grid_sample, pad

from benchmarks.behavioral._medians import medians
from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.behavioral_tests import perturb
from outrider.behavioral_tests.perturb import Perturbation
from outrider.behavioral_tests.perturb.text.contractions import _CONTRACTIONS, _EXPANSIONS

IMAGES, SIDE, TEXTS = 256, 96, 2_000
RUNS = 7
Pixels = NDArray[np.float32]


def floors(pixels: Pixels) -> dict[str, tuple[Perturbation, Callable[[], object]]]:
    """Each operation beside the same in plain torch."""
    x = torch.from_numpy(pixels)
    weights = torch.exp(-0.5 * torch.arange(-4.0, 5.0) ** 2)
    kernel = (weights / weights.sum()).repeat(3, 1, 1, 1)  # (3, 1, 1, 9)
    angle = torch.full((len(x),), 0.1)
    cos, sin, zero = torch.cos(angle), torch.sin(angle), torch.zeros(len(x))
    turn = torch.stack([torch.stack([cos, -sin, zero], 1), torch.stack([sin, cos, zero], 1)], 1)

    def noise() -> object:
        grain = np.random.default_rng(0).standard_normal(pixels.shape, dtype=np.float32)
        return (x + torch.from_numpy(grain) * 0.05).clamp(0, 1)

    def blur() -> object:
        wide = conv2d(pad(x, (4, 4, 0, 0), mode="replicate"), kernel, groups=3)
        return conv2d(pad(wide, (0, 0, 4, 4), mode="replicate"), kernel.transpose(2, 3), groups=3)

    def contrast() -> object:
        mean = x.mean(dim=(1, 2, 3), keepdim=True)
        return (mean + 1.3 * (x - mean)).clamp(0, 1)

    def rotate() -> object:
        return grid_sample(x, affine_grid(turn, list(x.shape), align_corners=False), align_corners=False)

    return {
        "brightness": (perturb.image.brightness(device="cpu"), lambda: (x + 0.1).clamp(0, 1)),
        "contrast": (perturb.image.contrast(device="cpu"), contrast),
        "noise": (perturb.image.noise(device="cpu"), noise),
        "blur": (perturb.image.blur(device="cpu"), blur),
        "rotate": (perturb.image.rotate(device="cpu"), rotate),
        "flip": (perturb.image.flip(device="cpu"), lambda: x.flip(3)),
        "jpeg": (perturb.image.jpeg(device="cpu"), lambda: [pillow(image) for image in pixels]),
    }


def pillow(pixels: Pixels) -> Pixels:
    """One image through a JPEG file in memory."""
    file = io.BytesIO()
    Image.fromarray((pixels.transpose(1, 2, 0) * 255).astype(np.uint8)).save(file, "JPEG", quality=50)
    read: Pixels = np.asarray(Image.open(file), dtype=np.float32).transpose(2, 0, 1) / np.float32(255)
    return read


_SHORT = re.compile(rf"\b({'|'.join(_EXPANSIONS)})\b", flags=re.IGNORECASE | re.DOTALL)
_LONG = re.compile(rf"\b({'|'.join(_CONTRACTIONS)})\b ", flags=re.IGNORECASE | re.DOTALL)


def peer_contractions(text: str) -> list[str]:
    """Expand and contract as CheckList does, with the dictionary used here."""

    def expand(match: re.Match[str]) -> str:
        return match[0][0] + _EXPANSIONS[match[0].lower()][1:]

    def contract(match: re.Match[str]) -> str:
        return match[1][0] + _CONTRACTIONS[match[1].lower()][1:] + " "

    return [new for new in (_SHORT.sub(expand, text), _LONG.sub(contract, text)) if new != text]


def peer_number(text: str) -> list[str]:
    """Change each whole number once as CheckList does; splitting stands for its tokens, which cost more."""
    found = []
    for number in (word for word in text.split() if word.isdigit()):
        if number in ("2", "4"):
            continue
        change = int(int(number) * 0.2) + 1
        steps = np.random.randint(-min(change, int(number) - 1), change + 1, 3)
        new = [str(int(number) + step) for step in steps if step][:1]
        found += [re.sub(rf"\b{number}\b", each, text) for each in new]
    return found


def main() -> None:
    """Images, then texts."""
    pixels = np.random.default_rng(0).random((IMAGES, 3, SIDE, SIDE), dtype=np.float32)
    batch = Batch.from_columns({"inputs.image": pixels}, model="m")
    for name, (operation, floor) in floors(pixels).items():
        floor_s, ours_s = medians([floor, lambda: operation(batch, np.random.default_rng(0))], RUNS)  # noqa: B023
        what = "Pillow" if name == "jpeg" else "plain torch"
        against = f"{what}, {IMAGES / floor_s:.4g}/s"
        Figure(f"behavioral.perturb.{name}", IMAGES / ours_s, "images/s", against, floor_s / ours_s).show()

    column = pq.read_table(data_folder("airline_tweets") / "tweets.parquet", columns=["text"])["text"]
    texts = column.to_pylist()[:TEXTS]
    said = Batch.from_columns({"inputs.text": texts}, model="m")
    peers = {"contractions": peer_contractions, "numbers": peer_number}
    for family, peer in peers.items():
        made = getattr(perturb.text, family)()
        peer_s, ours_s = medians(
            [lambda: [peer(text) for text in texts], lambda: made(said, np.random.default_rng(0))],  # noqa: B023
            RUNS,
        )
        against = f"CheckList's steps, {TEXTS / peer_s:.4g}/s"
        name = f"behavioral.perturb.{family}"
        Figure(name, TEXTS / ours_s, "texts/s", against, peer_s / ours_s).show()
    for family in sorted(set(perturb.text.__all__) - set(peers)):
        options = {"phrases": "Really."} if family == "phrase" else {}
        made = getattr(perturb.text, family)(**options)
        (ours_s,) = medians([lambda: made(said, np.random.default_rng(0))], RUNS)  # noqa: B023
        print(f"# {family}: {TEXTS / ours_s:.3g} texts/s")


if __name__ == "__main__":
    main()
