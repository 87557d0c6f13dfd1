"""Rolling comparison of the champion with all other versions, on the latest labelled rows that neither was
trained on. An entity's hour is one observation; an exact one-sided sign test over these hours, adjusted
over all versions (Holm) and over the ``LOOKS`` at a row. The error is measured in docs/gate.md."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.loss_bounds import FloatOrNull
from outrider.behavioral_tests.statistics import holm

from .entity_hours import EntityHours

LOOKS = 4
"""A version is compared from ``rows / LOOKS`` rows on, and again after as many new ones, so each row is
looked at so often."""
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VersionLosses:
    version: str
    champion: Floats
    own: Floats
    """Infinite where the version's answer cannot be judged."""
    entity: Integers
    """Numbers of entities; 0 where a row names none."""
    hour: Integers


@dataclass(frozen=True, slots=True)
class VersionStanding:
    """Losses of a version beside those of the champion, on the latest labelled rows."""

    version: str
    rows: int
    hours: int = 0
    """Hours of entities: the observations."""
    better: int = 0
    worse: int = 0
    """Hours in which the version loses less (``better``), and more."""
    champion_loss: FloatOrNull = 0.0
    loss: FloatOrNull = 0.0
    p: float = 1.0
    """Adjusted over all compared versions and looks; 1.0 where not compared."""
    is_compared: bool = False
    """False with too few rows."""
    is_better: bool = False

    @property
    def gain(self) -> float:
        return self.champion_loss - self.loss


@dataclass(frozen=True, slots=True)
class RollingEvidence:
    """Standings of all versions on the latest labelled rows."""

    rows: int
    """Latest rows that are asked for."""
    p: float
    champion: str = ""
    standings: Sequence[VersionStanding] = ()
    winner: str | None = None
    """Version of the greatest gain among those shown to be better."""
    left_out: Sequence[str] = ()
    """Sentences on versions and rows that could not be compared."""
    judged: str = ""

    def of(self, version: str) -> VersionStanding:
        return next((one for one in self.standings if one.version == version), VersionStanding(version, 0))

    @property
    def compared(self) -> int:
        return sum(one.is_compared for one in self.standings)

    def sentence(self, version: str) -> str:
        found = self.of(version)
        where = f"latest labelled rows that neither was trained on: {found.rows} of {self.rows}"
        if not found.is_compared:
            return f"{where}; version {version} is compared from {least_rows(self.rows)} on"
        word = "shown to be better" if found.is_better else "not shown to be better"
        versions = f"{self.compared} {'version' if self.compared == 1 else 'versions'}"
        test = f"p = {found.p:.2g} over {versions}, below {self.p:g} is needed"
        return (
            f"{where}; version {version} loses {found.loss:.4g}, champion {self.champion} "
            f"{found.champion_loss:.4g}; of {found.hours} hours of entities {found.better} are better with "
            f"it and {found.worse} worse ({test}): {word}"
        )


def least_rows(rows: int) -> int:
    return max(-(-rows // LOOKS), 2)


def compare_versions(
    others: Sequence[VersionLosses],
    *,
    rows: int,
    p: float,
    champion: str = "",
    left_out: Sequence[str] = (),
) -> RollingEvidence:
    """Compare versions with the champion, each on its own rows.

    Parameters
    ----------
    others
        Rows in order of time, of which the latest ``rows`` count.
    rows
        Most rows of a comparison; a version with less than a quarter of them is not compared.
    p
        Below which a version is shown to be better.

    Examples
    --------
    >>> n = np.arange(400)
    >>> old, new = (n % 5 == 0).astype(float), (n % 10 == 0).astype(float)
    >>> found = compare_versions([VersionLosses("2", old, new, n + 1, n), VersionLosses("3", old, old, n, n)],
    ...                          rows=400, p=0.01)
    >>> found.winner, [(one.better, one.worse, one.is_better) for one in found.standings]
    ('2', [(40, 0, True), (0, 0, False)])
    """
    seen = [_standing(one, rows) for one in others]
    compared = [at for at, (one, _) in enumerate(seen) if one.is_compared]
    adjusted = dict(zip(compared, holm([seen[at][1] for at in compared]), strict=True))
    standings = [_decided(one, adjusted.get(at, 1.0), p) for at, (one, _) in enumerate(seen)]
    winners = sorted(
        (one for one in standings if one.is_better), key=lambda one: (-one.gain, one.p, one.version)
    )
    winner = winners[0].version if winners else None
    return RollingEvidence(rows, p, champion, standings, winner, left_out)


def _standing(found: VersionLosses, rows: int) -> tuple[VersionStanding, float]:
    from scipy.stats import binom

    known = np.flatnonzero(np.isfinite(found.champion) & ~np.isnan(found.own))[-rows:]
    own, champion = found.own[known], found.champion[known]
    if len(known) < least_rows(rows):
        return VersionStanding(found.version, len(known)), 1.0
    hours = EntityHours.of(found.entity[known], found.hour[known], np.minimum(own, 1e300) - champion).value
    better, worse = int((hours < 0).sum()), int((hours > 0).sum())
    means = float(champion.mean()), float(own.mean())
    p = float(binom.sf(better - 1, better + worse, 0.5))
    return VersionStanding(found.version, len(known), len(hours), better, worse, *means, is_compared=True), p


def _decided(found: VersionStanding, adjusted: float, p: float) -> VersionStanding:
    shared = min(1.0, LOOKS * adjusted)
    return replace(found, p=shared, is_better=shared < p and found.gain > 0)
