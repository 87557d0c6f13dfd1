"""Faults of a sensor: noise, gain, drift, spikes, stuck or lost samples."""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, check_positive, check_share

from .columns import Floats, series

Fill: TypeAlias = Literal["hold", "zero", "nan"]


def jitter(name: str = "series", *, sigma: float = 0.05) -> Perturbation:
    """Add Gaussian noise of ``sigma`` standard deviations.

    The standard deviation is that of each series and channel; a constant channel is unchanged.
    """
    check_positive(sigma, "sigma")
    return series(name, lambda x, rng: x + sigma * _spread(x) * rng.standard_normal(x.shape))


def scaling(name: str = "series", *, by: float = 0.1) -> Perturbation:
    """Multiply each series by a wrong gain. The factor is in 1 ± [by / 2, by]."""
    check_positive(by, "by")
    return series(name, lambda x, rng: x * (1 + _signed(rng, len(x), by)))


def drift(name: str = "series", *, size: float = 1.0) -> Perturbation:
    """Add a linear drift that ends at ``size`` standard deviations.

    The line starts at 0 at the first sample and goes up or down.
    """
    check_positive(size, "size")

    def change(x: Floats, rng: Rng) -> Floats:
        ramp = np.linspace(0.0, 1.0, x.shape[1])[:, None]
        added: Floats = ramp * rng.choice([-size, size], (len(x), 1, 1)) * _spread(x)
        return x + added

    return series(name, change)


def spike(name: str = "series", *, size: float = 5.0, count: int = 1) -> Perturbation:
    """Add ``count`` spikes of ± ``size`` standard deviations to each series."""
    check_positive(size, "size")
    check_positive(count, "count")

    def change(x: Floats, rng: Rng) -> Floats:
        here = _some(rng, len(x), x.shape[1], count)
        added: Floats = here * rng.choice([-size, size], (len(x), 1, 1)) * _spread(x)
        return x + added

    return series(name, change)


def stuck(name: str = "series", *, share: float = 0.2) -> Perturbation:
    """Repeat one value over a random window, like a frozen sensor.

    The window is a ``share`` of each series, at least two samples.
    """
    check_share(share, "part of the samples")

    def change(x: Floats, rng: Rng) -> Floats:
        time = np.arange(x.shape[1])
        start, stop = _window(rng, x, share)
        source = np.where((time >= start) & (time < stop), start, time)  # (rows, time)
        return np.take_along_axis(x, source[:, :, None], axis=1)

    return series(name, change)


def dropout(name: str = "series", *, share: float = 0.1, fill: Fill = "hold") -> Perturbation:
    """Lose a random ``share`` of the samples, at least one.

    Lost samples are replaced as in :func:`gap`.
    """
    check_share(share, "part of the samples")
    return series(
        name,
        lambda x, rng: _filled(x, _some(rng, len(x), x.shape[1], max(1, round(share * x.shape[1]))), fill),
    )


def gap(name: str = "series", *, share: float = 0.2, fill: Fill = "nan") -> Perturbation:
    """Lose a random window of ``share`` of each series.

    Parameters
    ----------
    share
        Share of the samples, in (0, 1]; at least two samples.
    fill
        Replacement of lost samples: the last value before (``hold``), ``zero``, or ``nan`` (for integers:
        null in a list, else 0).
    """
    check_share(share, "part of the samples")

    def change(x: Floats, rng: Rng) -> Floats:
        time = np.arange(x.shape[1])
        start, stop = _window(rng, x, share)
        return _filled(x, ((time >= start) & (time < stop))[:, :, None], fill)

    return series(name, change)


def _filled(x: Floats, lost: NDArray[np.bool_], fill: Fill) -> Floats:
    """Series with lost samples replaced, shape (rows, time, channels); ``lost`` has shape (rows, time, 1)."""
    if fill != "hold":
        return np.where(lost, 0.0 if fill == "zero" else np.nan, x)
    time = np.arange(x.shape[1])[:, None]
    last = np.maximum.accumulate(np.where(lost, -1, time), axis=1)  # -1: nothing came before
    held = np.take_along_axis(x, np.maximum(last, 0), axis=1)
    return np.where(lost & (last < 0), 0.0, held)


def _some(rng: Rng, rows: int, samples: int, count: int) -> NDArray[np.bool_]:
    """Mask of ``count`` random samples per row, shape (rows, samples, 1)."""
    order = rng.random((rows, samples)).argsort(axis=1)
    found: NDArray[np.bool_] = (order.argsort(axis=1) < count)[:, :, None]
    return found


def _window(rng: Rng, x: Floats, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random start and end of a window of each series, shape (rows, 1)."""
    size = min(x.shape[1], max(2, round(share * x.shape[1])))
    start = rng.integers(x.shape[1] - size + 1, size=(len(x), 1))
    return start, start + size


def _spread(x: Floats) -> Floats:
    """Standard deviation of each series and channel, shape (rows, 1, channels); 0 without values."""
    known = np.isfinite(x)
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    mean = np.where(known, x, 0.0).sum(axis=1, keepdims=True) / count
    square = np.where(known, (np.where(known, x, 0.0) - mean) ** 2, 0.0)
    found: Floats = np.sqrt(square.sum(axis=1, keepdims=True) / count)
    return found


def _signed(rng: Rng, rows: int, by: float) -> Floats:
    steps: Floats = by * rng.uniform(0.5, 1.0, rows) * rng.choice([-1.0, 1.0], rows)
    return steps[:, None, None]
