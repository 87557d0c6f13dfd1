"""Changes of numbers: noise, wrong units, typing errors, values out of bounds."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, column

Numbers = NDArray[Any]


def jitter(name: str, *, noise: float | None = None, by: float = 1.0) -> Perturbation:
    """Change a number by up to ``by`` times its measurement noise. Every applicable number changes.

    Parameters
    ----------
    name
        Input field of numbers; integers move by at least 1.
    noise
        Standard deviation of the field's measurement, in its unit. None uses 1 % of its interquartile range
        within the batch; a batch without spread is then not applicable.
    by
        Maximum step in units of ``noise``; steps are uniform in ±[by / 2, by].
    """
    if by <= 0 or (noise is not None and noise <= 0):
        raise ValueError(f"by and noise must be > 0, got by={by}, noise={noise}; a step of 0 changes nothing")

    def change(values: Numbers, rng: Rng) -> Numbers:
        unit = noise if noise is not None else 0.01 * _spread(values)
        steps = rng.uniform(0.5, 1.0, len(values)) * rng.choice([-1.0, 1.0], len(values)) * by * unit
        if values.dtype.kind in "iu":
            steps = np.sign(steps) * np.maximum(1.0, np.rint(np.abs(steps))) if unit else 0.0 * steps
            return _moved(values, steps)
        moved: Numbers = values + steps
        return moved

    return _numbers(name, change)


def unit_error(name: str, *, factor: float = 1.0, offset: float = 0.0) -> Perturbation:
    """Convert a number to another unit.

    The result is ``factor * number + offset``, rounded for integers. Without an offset zero is unchanged, and
    not applicable.

    Examples
    --------
    >>> inches_for_centimetres = unit_error("height", factor=1 / 2.54)
    >>> fahrenheit_for_celsius = unit_error("temperature", factor=9 / 5, offset=32)
    >>> cents_for_euros = unit_error("price", factor=100)
    """
    if factor == 1.0 and offset == 0.0:
        raise ValueError("factor= or offset= expected: factor 1 and offset 0 change nothing")
    return _numbers(name, lambda values, _: _kept_type(values * float(factor) + offset, values))


def decimal_shift(name: str, *, places: int = 1) -> Perturbation:
    """Misplace the decimal point.

    The number becomes ``10 ** places`` times larger or smaller, at random. Integers only become larger; zero
    is not applicable.
    """
    if places < 1:
        raise ValueError(f"places must be >= 1, got {places}; it is how far the decimal point moves")
    scale = 10.0**places

    def change(values: Numbers, rng: Rng) -> Numbers:
        up = rng.random(len(values)) < 0.5
        if values.dtype.kind in "iu":
            return _kept_type(values * scale, values)
        return np.where(up, values * scale, values / scale)

    return _numbers(name, change)


def repeat_digit(name: str) -> Perturbation:
    """Type one digit before the decimal point twice.

    For example 41 becomes 441 or 411; a single 0 is not applicable.
    """

    def change(values: Numbers, rng: Rng) -> Numbers:
        size = np.abs(values.astype(np.float64))
        digits = np.zeros(len(values))
        usable = np.isfinite(size) & (size >= 1)
        digits[usable] = np.floor(np.log10(size[usable])) + 1
        digits[size >= 10.0**digits] += 1  # where the logarithm was rounded down
        place = 10.0 ** np.floor(rng.random(len(values)) * digits)
        # Digits from the place on move up by one; the digits below stay, with the place's digit repeated.
        changed = np.floor(size / place) * 10 * place + size % (10 * place)
        typed = np.where(usable, np.copysign(changed, values.astype(np.float64)), values)
        return _kept_type(typed, values)

    return _numbers(name, change)


def out_of_range(name: str, *, low: float, high: float, by: float = 0.1) -> Perturbation:
    """Replace a number by one outside its bounds.

    The new number is randomly too low or too high, by up to ``by`` times the width of the bounds, integers by
    at least 1.
    """
    if not low < high or by <= 0:
        raise ValueError(f"low < high and by > 0 expected, got low={low}, high={high}, by={by}")

    def change(values: Numbers, rng: Rng) -> Numbers:
        beyond = (high - low) * by * rng.uniform(0.5, 1.0, len(values))
        if values.dtype.kind in "iu":
            beyond = np.maximum(1.0, np.rint(beyond))
        outside = np.where(rng.random(len(values)) < 0.5, low - beyond, high + beyond)
        return _kept_type(outside, values)

    return _numbers(name, change)


def clip(name: str, *, low: float | None = None, high: float | None = None) -> Perturbation:
    """Clip a number to the bounds, like a saturated sensor. A number within the bounds is not applicable."""
    if low is None and high is None:
        raise ValueError("clip needs low= or high=")
    return _numbers(name, lambda values, _: _kept_type(np.clip(values, low, high), values))


def _numbers(name: str, change: Callable[[Numbers, Rng], Numbers]) -> Perturbation:
    def checked(values: Numbers, rng: Rng) -> Numbers:
        if values.dtype.kind not in "fiu" or values.ndim != 1:
            raise TypeError(
                f"inputs.{name}: one number per record expected, got {values.dtype} of shape {values.shape}"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            return change(values, rng).astype(values.dtype, copy=False)

    return column(name, checked)


def _kept_type(changed: Numbers, values: Numbers) -> Numbers:
    """Floats converted to the type of ``values``; the original value if an integer type cannot hold one."""
    if values.dtype.kind == "f":
        return changed
    whole = np.rint(changed.astype(np.float64))
    limits = np.iinfo(values.dtype)
    fits = (whole >= float(limits.min)) & (whole < float(limits.max)) & (whole != values.astype(np.float64))
    return np.where(fits, np.where(fits, whole, 0.0).astype(values.dtype), values)


def _moved(values: Numbers, steps: Numbers) -> Numbers:
    """Integers plus whole steps; a step that would overflow the type goes the other way."""
    limits = np.iinfo(values.dtype)
    size = np.minimum(np.abs(steps), float(limits.max) / 2).astype(values.dtype)
    up = np.where(steps > 0, values <= limits.max - size, values < limits.min + size)
    moved: Numbers = np.where(up, values + size, values - size)
    return moved


def _spread(values: Numbers) -> float:
    numbers = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    low, high = np.quantile(numbers, [0.25, 0.75]) if len(numbers) else (0.0, 0.0)
    return float(high - low)
