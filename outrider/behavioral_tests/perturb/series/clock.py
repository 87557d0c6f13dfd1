"""Changes of time: shift, uneven clock, lower rate, order of channels."""

from collections.abc import Sequence

import numpy as np

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, check_order

from .columns import Floats, series


def shift(name: str = "series", *, steps: int = 1) -> Perturbation:
    """Move each series by 1 to ``steps`` samples, repeating edge values."""
    if steps < 1:
        raise ValueError(f"steps must be >= 1, got {steps}; a shift by 0 changes nothing")

    def change(x: Floats, rng: Rng) -> Floats:
        moved = rng.integers(1, steps + 1, len(x)) * rng.choice([-1, 1], len(x))
        source = np.clip(np.arange(x.shape[1]) - moved[:, None], 0, x.shape[1] - 1)  # (rows, time)
        return np.take_along_axis(x, source[:, :, None], axis=1)

    return series(name, change)


def warp(name: str = "series", *, by: float = 0.2, knots: int = 4) -> Perturbation:
    """Speed time up and down by a share of up to ``by``.

    Time is divided into ``knots`` stretches; the first and last sample keep their place.

    References
    ----------
    Um et al., "Data Augmentation of Wearable Sensor Data for Parkinson's Disease Monitoring using
    Convolutional Neural Networks", ICMI 2017 (time warping); here with straight stretches between knots.
    """
    if not 0 < by < 1 or knots < 2:
        raise ValueError(f"by in (0, 1) and knots >= 2 expected, got by={by}, knots={knots}")

    def change(x: Floats, rng: Rng) -> Floats:
        last = x.shape[1] - 1
        speed = 1 + rng.uniform(-by, by, (len(x), knots))
        stretch = np.minimum((np.arange(last) * knots) // max(last, 1), knots - 1)
        places = np.cumsum(speed[:, stretch], axis=1)  # (rows, time - 1)
        places = np.concatenate([np.zeros((len(x), 1)), places * (last / places[:, -1:])], axis=1)
        return _read(x, places)

    return series(name, change, shortest=3)


def resample(name: str = "series", *, every: int = 2) -> Perturbation:
    """Keep each ``every``-th sample and interpolate linearly between."""
    if every < 2:
        raise ValueError(f"every must be >= 2, got {every}; 1 keeps all samples")

    def change(x: Floats, rng: Rng) -> Floats:  # noqa: ARG001 - a change takes both
        kept = x[:, ::every]
        places = np.minimum(np.arange(x.shape[1]) / every, kept.shape[1] - 1)
        return _read(kept, np.broadcast_to(places, (len(x), x.shape[1])))

    return series(name, change, shortest=3)


def channels(name: str = "series", *, order: Sequence[int]) -> Perturbation:
    """Reorder the channels of each series, like swapped leads.

    Raises
    ------
    ValueError
        At creation, if ``order`` is not a permutation or keeps the order; at run time, if series have another
        number of channels.
    """
    check_order(order, (1, 0))

    def change(x: Floats, rng: Rng) -> Floats:  # noqa: ARG001
        if x.shape[2] != len(order):
            raise ValueError(f"inputs.{name}: {len(order)} channels expected, got {x.shape[2]}")
        return x[:, :, list(order)]

    return series(name, change, shortest=1)


def _read(x: Floats, places: Floats) -> Floats:
    """Series interpolated linearly at ``places``, in samples, shape (rows, time)."""
    left = np.clip(np.floor(places), 0, max(x.shape[1] - 2, 0)).astype(np.int64)
    right = np.minimum(left + 1, x.shape[1] - 1)
    weight = (places - left)[:, :, None]
    before, after = (np.take_along_axis(x, at[:, :, None], axis=1) for at in (left, right))
    # A missing sample counts only where its share is not 0.
    between = np.where(weight == 0, before, before * (1 - weight) + after * weight)
    return np.where(weight == 1, after, between)
