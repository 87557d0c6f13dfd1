"""Seeded cards with handwritten digits, and their images on cameras.

A card passes a camera for several frames: a track. Cameras 1 to 3 stay healthy; 4 to 7 fail, each in its way.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Fault = Literal["healthy", "stuck", "mirrored", "inverted", "occluded"]
Phase = Literal["healthy", "faulty", "final", "flow", "watched"]

PHASES: tuple[Phase, ...] = ("healthy", "faulty", "final", "flow", "watched")
FAULTS: tuple[Fault, ...] = ("stuck", "mirrored", "inverted", "occluded")
FAULT_OF: dict[str, Fault] = {
    "cam-1": "healthy",
    "cam-2": "healthy",
    "cam-3": "healthy",
    "cam-4": "stuck",
    "cam-5": "mirrored",
    "cam-6": "inverted",
    "cam-7": "occluded",
}
CAMERAS: tuple[str, ...] = tuple(FAULT_OF)
SOUND = tuple(camera for camera in CAMERAS if FAULT_OF[camera] == "healthy")
FAULTY_SHARE = 0.45
FRAMES = 5
TRACKS = {"healthy": 100, "faulty": 800, "watched": 60}
FINAL_PER_FAULT = 87
"""Tracks per fault in the final phase; with every final card healthy once, 45 % of that traffic is faulty."""

NOISE = 0.06
SHIFT = 0.3
"""Probability that a frame is one column to the left or to the right."""
RANGE = (-0.5, 1.5)
DECIMALS = 3

_TRAIN, _HELD_OUT, _TRAFFIC = 700, 250, 420  # of 1,797 cards; the other 427 are for the final phase


@dataclass(frozen=True, slots=True)
class Deck:
    """Deck of images in [0, 1] (cards, 8, 8), digits and purposes."""

    images: Floats
    digits: NDArray[np.int64]
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    traffic: NDArray[np.int64]
    final: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Track:
    """Passage of a card at a camera; ``frames`` (frames, 8, 8)."""

    phase: Phase
    number: int
    card: str
    device: str
    fault: Fault
    digit: int
    frames: Floats

    @property
    def id(self) -> str:
        """Distinct over all phases."""
        return f"{self.card}.{self.phase[:2]}{self.number:03d}"

    def record_id(self, frame: int) -> str:
        """Id of the record of one frame."""
        return f"{self.id}.{frame}"


def read_deck(seed: int) -> Deck:
    """Scikit-learn's 1,797 UCI digits (8 by 8), shuffled by ``seed``."""
    found = find_spec("sklearn")  # found, not imported: that takes a second
    if found is None or found.origin is None:
        raise ImportError("scikit-learn is not installed: the demo's digits come with it")
    file = Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(BytesIO(gzip.decompress(file.read_bytes())), delimiter=",", dtype=np.float32)
    dealt = np.random.default_rng([seed, 1]).permutation(len(table))
    train, held_out, traffic, final = np.split(dealt, np.cumsum([_TRAIN, _HELD_OUT, _TRAFFIC]))
    images = table[:, :64].reshape(-1, 8, 8) / np.float32(16.0)
    return Deck(images, table[:, 64].astype(np.int64), train, held_out, traffic, final)


def card_name(card: int) -> str:
    """Name of a card: the entity of its records."""
    return f"card-{card:04d}"


def render(image: Floats, fault: Fault, rng: np.random.Generator, frames: int = FRAMES) -> Floats:
    """Frames (frames, 8, 8) of a card through hand, optics, noise, sensor."""
    shifts = np.where(rng.random(frames) < SHIFT, rng.integers(0, 2, frames) * 2 - 1, 0)
    padded = np.pad(image, ((0, 0), (1, 1)))
    seen = np.stack([padded[:, 1 - shift : 9 - shift] for shift in shifts])
    if fault == "mirrored":
        seen = seen[:, :, ::-1]
    elif fault == "inverted":
        seen = 1.0 - seen
    elif fault == "occluded":
        seen[:, 2:5, 2:6] = 1.0
    seen = np.clip(seen + rng.normal(0.0, NOISE, seen.shape), *RANGE)
    if fault == "stuck":
        seen[:, :, 5] = 1.5
    return seen.round(DECIMALS).astype(np.float32)


def render_healthy(
    deck: Deck, cards: NDArray[np.int64], frames: int, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    """Healthy frames (cards x frames, 8, 8) and cards (cards x frames,)."""
    seen = [render(deck.images[card], "healthy", rng, frames) for card in cards.tolist()]
    return np.concatenate(seen), np.repeat(cards, frames)


def tracks(deck: Deck, phase: Phase, seed: int) -> Iterator[Track]:
    """Tracks of a phase, in order of sending."""
    if phase == "flow":
        raise ValueError("endless traffic has no tracks of its own: see outrider.demo.driver.flow")
    rng = np.random.default_rng([seed, 2, PHASES.index(phase)])
    if phase == "final":
        cards, devices = _final(deck, rng)
    elif phase == "watched":
        cards = rng.permutation(deck.final)[: TRACKS[phase]]
        devices = _cameras(len(cards), rng)
    else:
        cards = _repeated(np.random.default_rng([seed, 4]).permutation(deck.traffic), phase)
        devices = _cameras(len(cards), rng)
    for number, (card, device) in enumerate(zip(cards.tolist(), devices.tolist(), strict=True)):
        fault = "healthy" if phase == "healthy" else FAULT_OF[device]
        own = np.random.default_rng([seed, 3, PHASES.index(phase), number])
        frames = render(deck.images[card], fault, own)
        yield Track(phase, number, card_name(card), device, fault, int(deck.digits[card]), frames)


def _repeated(cards: NDArray[np.int64], phase: Phase) -> NDArray[np.int64]:
    """Cards come round and round; the faulty phase goes on where the healthy one stopped."""
    start = 0 if phase == "healthy" else TRACKS["healthy"]
    return np.resize(cards, start + TRACKS[phase])[start:]


def _cameras(number: int, rng: np.random.Generator) -> NDArray[np.str_]:
    """A camera for each track: the failing ones get ``FAULTY_SHARE`` of them in equal parts, shuffled."""
    each = round(number * FAULTY_SHARE / len(FAULTS))
    devices = np.repeat(np.array(CAMERAS[len(SOUND) :]), each)
    return rng.permutation(np.concatenate([devices, rng.choice(SOUND, number - len(devices))]))


def _final(deck: Deck, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.str_]]:
    """Every final card once at a sound camera, some of them at each failing one, shuffled."""
    cards = [deck.final]
    devices = [rng.choice(SOUND, len(deck.final))]
    for camera in CAMERAS[len(SOUND) :]:
        cards.append(rng.permutation(deck.final)[:FINAL_PER_FAULT])
        devices.append(np.full(FINAL_PER_FAULT, camera))
    order = rng.permutation(sum(map(len, cards)))
    return np.concatenate(cards)[order], np.concatenate(devices)[order]
