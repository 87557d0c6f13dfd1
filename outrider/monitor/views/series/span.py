"""Range and step of series, and the range to compare with."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.times import utc_text
from outrider.dataops.ledger.cube import Cube
from outrider.dataops.ledger.minutes import DAY_US, HOUR_US, MINUTE_US

Versus = Literal["previous", "day", "week"]
MOST_POINTS = 300
STEPS_US = tuple(
    minutes * MINUTE_US
    for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080, 43_200)
)
MOST_STEP_US = 366 * DAY_US
DEFAULT_US = DAY_US
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BACK_US = {"day": DAY_US, "week": 7 * DAY_US}


@dataclass(frozen=True, slots=True)
class SeriesSpan:
    """Time from ``since_us`` to before ``until_us``, in steps.

    Both are whole steps since the epoch.
    """

    since_us: int
    until_us: int
    step_us: int

    @property
    def steps(self) -> int:
        """Number of steps, at least one."""
        return (self.until_us - self.since_us) // self.step_us

    @property
    def starts_us(self) -> list[int]:
        """Start of each step."""
        return list(range(self.since_us, self.until_us, self.step_us))

    def places(self, times_us: Sequence[int]) -> NDArray[np.intp]:
        """Step of each time, which lies in the range."""
        return (np.asarray(times_us, dtype=np.int64) - self.since_us) // self.step_us

    def before(self, versus: Versus) -> "SeriesSpan":
        """Earlier range of the same length and step, to compare with.

        Raises
        ------
        ValueError
            If the ranges overlap, or begin in the middle of a step.
        """
        length = self.until_us - self.since_us
        back = _BACK_US.get(versus, length)
        if length > back:
            raise ValueError(
                f"versus: a range of at most a {versus} expected for versus={versus}, got "
                f"{length / 1e6:g} s; versus=previous compares with as long a time before"
            )
        if back % self.step_us:
            raise ValueError(f"versus: a step that divides a {versus} expected, got {self.step_us / 1e6:g} s")
        return replace(self, since_us=self.since_us - back, until_us=self.until_us - back)


def span_of(
    *,
    since_us: int | None,
    until_us: int | None,
    step_us: int | None,
    now_us: int,
    first_us: int | None,
    ages: Sequence[Cube],
) -> SeriesSpan:
    """Range and step as asked for, or fitting.

    Parameters
    ----------
    since_us
        Default a day before the end, but not before the first counts.
    step_us
        Default the shortest that gives at most ``MOST_POINTS`` points.
    first_us
        Minute of the model's first counts; None without any.
    ages
        Of the tables that are read: old counts stand by the hour or the day, and no step cuts these.

    Raises
    ------
    ValueError
        If the range is empty, or the step is finer than the counts or gives too many points.
    """
    until = now_us if until_us is None else until_us
    since = max(until - DEFAULT_US, min(first_us or 0, until - HOUR_US)) if since_us is None else since_us
    if not since < until:
        raise ValueError(
            f"until: a time behind since expected, {utc_text(since)} to {utc_text(until)} is empty"
        )
    finest = max((one.resolution_us(since_us=since, now_us=now_us) for one in ages), default=MINUTE_US)
    if step_us is None:
        fitting = (one for one in STEPS_US if one >= finest and _points(since, until, one) <= MOST_POINTS)
        step = next(fitting, 0)
        if not step:
            raise ValueError(
                f"since: at most {MOST_POINTS} steps of {STEPS_US[-1] // DAY_US} days expected, got "
                f"{utc_text(since)} to {utc_text(until)}"
            )
    else:
        step = _checked(step_us, finest, since, until)
    start = since // step * step
    return SeriesSpan(start, max(-(-until // step) * step, start + step), step)


def _checked(step_us: int, finest_us: int, since_us: int, until_us: int) -> int:
    if step_us <= 0 or step_us % MINUTE_US:
        raise ValueError(f"step: whole minutes expected, got {step_us / 1e6:g} s")
    if step_us > MOST_STEP_US:
        raise ValueError(f"step: at most {MOST_STEP_US // DAY_US} days expected, got {step_us / DAY_US:g}")
    if step_us < finest_us or step_us % finest_us:
        raise ValueError(
            f"step: counts from {utc_text(since_us)} on are kept by {finest_us // 1_000_000} s; "
            f"a multiple of that expected, got {step_us / 1e6:g} s"
        )
    if _points(since_us, until_us, step_us) > MOST_POINTS:
        least = math.ceil((until_us - since_us) / MOST_POINTS / 1e6)
        raise ValueError(
            f"step: at most {MOST_POINTS} points expected, {step_us / 1e6:g} s make more of this range; "
            f"at least {least} s"
        )
    return step_us


def _points(since_us: int, until_us: int, step_us: int) -> int:
    return -(-until_us // step_us) - since_us // step_us


def step_us(text: str) -> int:
    """Microseconds of a step such as ``5m``, ``1h`` or ``300``.

    Raises
    ------
    ValueError
        If the text is no such step.

    Examples
    --------
    >>> step_us("5m"), step_us("1d"), step_us("300")
    (300000000, 86400000000, 300000000)
    """
    found = re.fullmatch(r"(\d{1,9})([smhdw]?)", text)
    if found is None:
        raise ValueError(f"step: a time such as 5m, 1h or 1d expected, got {text!r}")
    return int(found[1]) * _UNITS_S[found[2] or "s"] * 1_000_000
