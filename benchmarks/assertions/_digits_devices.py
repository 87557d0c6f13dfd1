"""Digits read by five kinds of device, three of them faulty: the world of the labels-saved protocol."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Floats = NDArray[np.floating]
Ints = NDArray[np.intp]

TRAINED, POOL_IMAGES = 300, 800
POOL_TRACKS, POOL_SHARES = 1200, (0.72, 0.07, 0.07, 0.06, 0.08)
TEST_TRACKS, TEST_SHARES = 600, (0.40, 0.15, 0.15, 0.15, 0.15)
FRAMES = 5
NOISE, HEAVY_NOISE = 0.08, 0.55
HEALTHY, STUCK, MIRRORED, INVERTED, NOISY = range(5)


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of tracks, shape (frames, 64), with truth, device and track of each."""

    x: Floats
    y: Ints
    device: Ints
    track: Ints


@dataclass(frozen=True, slots=True)
class World:
    """What one seed gives."""

    x: Floats
    """Labelled from the start, of the healthy device."""
    y: Ints
    pool: Frames
    test: Frames
    nuisance: Floats
    """Severities of an assertion that knows nothing."""


def make(seed: int) -> World:
    """Digits of one seed, as the protocol says."""
    rng = np.random.default_rng(seed)
    images, digits = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    images, digits = images[order] / 16.0, digits[order]
    first = images[:TRAINED] + rng.normal(0, NOISE, (TRAINED, 64))
    last = TRAINED + POOL_IMAGES
    pool = _tracks(images[TRAINED:last], digits[TRAINED:last], POOL_TRACKS, POOL_SHARES, rng)
    test = _tracks(images[last:], digits[last:], TEST_TRACKS, TEST_SHARES, rng)
    nuisance = np.where(rng.random(len(pool.y)) < 0.1, rng.random(len(pool.y)), 0.0)
    return World(np.clip(first, -0.5, 1.5).astype(np.float32), digits[:TRAINED], pool, test, nuisance)


def _tracks(
    images: Floats, digits: Ints, tracks: int, shares: tuple[float, ...], rng: np.random.Generator
) -> Frames:
    image = np.repeat(rng.choice(len(images), tracks), FRAMES)
    device = np.repeat(
        rng.permutation(np.repeat(np.arange(5), np.round(np.array(shares) * tracks).astype(int))), FRAMES
    )
    x = images[image].reshape(-1, 8, 8)
    shifts = np.where(rng.random(len(x)) < 0.3, rng.integers(-1, 2, len(x)), 0)
    x = np.stack([_shifted(frame, shift) for frame, shift in zip(x, shifts, strict=True)])
    x[device == MIRRORED] = x[device == MIRRORED, :, ::-1]
    x[device == INVERTED] = 1.0 - x[device == INVERTED]
    x += rng.normal(0, 1, x.shape) * np.where(device == NOISY, HEAVY_NOISE, NOISE)[:, None, None]
    x[device == STUCK, :, 2] = 1.0
    flat = np.clip(x, -0.5, 1.5).reshape(-1, 64).astype(np.float32)
    return Frames(flat, digits[image], device, np.repeat(np.arange(tracks), FRAMES))


def _shifted(frame: Floats, shift: int) -> Floats:
    moved = np.zeros_like(frame)
    moved[:, max(shift, 0) : 8 + min(shift, 0)] = frame[:, max(-shift, 0) : 8 - max(shift, 0)]
    return moved
