"""How much tests do: ``make test`` a tenth of the rounds and no promise in seconds, ``make soak`` everything.

A machine that also does other work is slow, not wrong: tests wait for what must happen, with an end far
behind it, and only a soak, which has the machine for itself, holds the service to its seconds.
"""

import os

_SOAK = os.environ.get("OUTRIDER_SOAK", "0")
IS_SOAK = _SOAK != "0"
IS_FULL = _SOAK == "full"
"""Whether the soak takes days' worth of what a few tests count (``make soak SOAK=full``)."""
PATIENCE_S = 240.0
"""Until what must happen counts as not happening."""


def rounds(full: int, *, part: int = 10) -> int:
    """So many rounds in a soak, a tenth or another part of them otherwise."""
    return full if IS_SOAK else max(1, full // part)


def at_most(share: float, runs: int) -> float:
    """A share promised as the most; of a part of the rounds, three standard errors more."""
    return share if IS_SOAK else share + 3 * (share * (1 - share) / runs) ** 0.5


def at_least(share: float, runs: int) -> float:
    """A share promised as the least."""
    return 1.0 - at_most(1.0 - share, runs)


def examples(usual: int) -> int:
    """Half as many examples of a property, ten times as many in a soak."""
    return 10 * usual if IS_SOAK else usual // 2


def promised(seconds: float) -> float:
    """Seconds that something may take: those promised in a soak, else as long as it needs."""
    return seconds if IS_SOAK else PATIENCE_S
