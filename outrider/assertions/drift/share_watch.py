"""Sequential test of window shares against a reference."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.detection import ShiftDetector, select_alarms
from outrider.assertions.detection.dispersion import FEWEST_WINDOWS, Dispersion

from .shares import ColumnShare
from .windows import FEWEST

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_BINARY = np.array([0.0, 1.0])
_RICHEST = 1e30
"""Cap of the stored wealth of a bet, which is kept in single precision."""
_NO_NEWS = 0.5
"""Fraction of the minimum difference that bets treat as no change."""


@dataclass(frozen=True, slots=True)
class WatchRule:
    """Error bound of a watch.

    Probability ``alpha`` of any false alarm over all streams within ``horizon`` windows.
    """

    alpha: float
    horizon: int


@dataclass(frozen=True, slots=True)
class ShareStreams:
    """Watched streams: shares of columns, over all records or slices.

    Attributes
    ----------
    least
        Minimum difference that counts as drift, shape (streams,).
    group
        ``column``, the index of the column and slice, but below 0 for shares of missing, unseen and gone
        values; both have shape (streams,).
    weight
        Relative share of alpha, before streams that cannot be judged are left out, shape (streams,).
    """

    least: Floats
    group: NDArray[np.int64]
    column: NDArray[np.int64]
    weight: Floats

    @classmethod
    def of(cls, shares: Sequence[ColumnShare], *, slices: int = 0) -> "ShareStreams":
        """Streams of all records, then of each slice.

        Half of alpha is for all records, half for the slices.
        """
        parts = slices + 1
        places = {name: at for at, name in enumerate(dict.fromkeys(share.column for share in shares))}
        own = np.array([places[share.column] for share in shares], dtype=np.int64)
        column = np.concatenate([own + len(places) * part for part in range(parts)])
        is_shape = np.tile([share.is_of_shape for share in shares], parts)
        weight = np.repeat([1.0, *[1.0 / slices] * slices] if slices else [1.0], len(shares))
        least = np.tile([share.least for share in shares], parts)
        return cls(least, np.where(is_shape, column, -1), column, weight)


class ShareWatch:
    """Sequential test of shares against a reference, updated window by window.

    **Null**: shares of windows scatter around the mean of their reference as the reference's windows do, with
    an additional shift of at most half of ``least``; the mean is estimated from the reference's windows.
    **Guarantee**: any stream alarms within ``horizon`` windows with a probability of at most alpha
    (:class:`Dispersion` says when this is exact). Streams whose reference has fewer than 20 windows or 30
    effective observations are not judged.

    Parameters
    ----------
    hits, seen
        Hits and observations of the reference's windows in order of time, shape (streams, windows).
    mean
        Hits and observations of another reference, (streams,) each, used for the mean; scaled to effective
        observations like those of the windows. Streams without observations there keep the windows' mean.

    References
    ----------
    Shin, Ramdas and Rinaldo, "E-detectors", NEJSDS 2024; Wang and Ramdas, "False discovery rate control with
    e-values", JRSS B 2022.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> seen = np.full((1, 24), 500.0)
    >>> streams = ShareStreams(np.array([0.05]), np.array([0]), np.array([0]), np.ones(1))
    >>> watch = ShareWatch(
    ...     rng.binomial(500, 0.2, (1, 24)).astype(float), seen, streams, WatchRule(0.01, 168)
    ... )
    >>> [bool(watch.look(np.array([hits]), np.array([500.0]))[0]) for hits in (104.0, 96.0, 160.0, 164.0)]
    [False, False, False, True]
    """

    def __init__(
        self,
        hits: Floats,
        seen: Floats,
        streams: ShareStreams,
        rule: WatchRule,
        *,
        mean: tuple[Floats, Floats] | None = None,
    ) -> None:
        needed = float(np.log(max(len(hits), 1) / rule.alpha) + np.log(rule.horizon))
        self.dispersion = Dispersion.of(hits, seen, needed=needed, group=streams.group, column=streams.column)
        own = [side.sum(axis=1) for side in self.dispersion.effective(hits, seen)]
        if mean is not None:
            is_known = mean[1] > 0
            own = [
                np.where(is_known, side / self.dispersion.ratio, old)
                for side, old in zip(mean, own, strict=True)
            ]
        self._begin(np.stack(own), streams, rule)

    def _begin(self, reference: Floats, streams: ShareStreams, rule: WatchRule) -> None:
        self.rule, self.streams, self.windows = rule, streams, 0
        self.reference = reference
        """Effective hits and observations of the reference, shape (2, streams)."""
        self.judged = (self.dispersion.windows >= FEWEST_WINDOWS) & (reference[1] >= FEWEST)
        hits, seen = reference[:, self.judged]
        weight = streams.weight[self.judged]
        self._share = weight / max(float(weight.sum()), 1e-300)
        self._detector = None
        if self.judged.any():
            self._detector = ShiftDetector(
                np.stack([seen - hits, hits], axis=-1)[:, None, :],
                _BINARY,
                horizon=rule.horizon,
                strength=1.0 - float(np.log(rule.alpha * self._share.min())),
                floor=_NO_NEWS * streams.least[self.judged],
            )

    def look(self, hits: Floats, seen: Floats, *, standing: Bools | None = None) -> Bools:
        """Streams that alarm after one more window, shape (streams,).

        Parameters
        ----------
        hits, seen
            Hits and observations of the window, shape (streams,); a stream without observations stays
            unchanged.
        standing
            Streams that have already alarmed and must not alarm again, shape (streams,).
        """
        found = np.zeros(len(self.judged), dtype=np.bool_)
        if self._detector is None:
            return found
        if self.windows >= self.rule.horizon:
            self._detector.restart()
            self.windows = 0
        self.windows += 1
        won, own = (side[self.judged] for side in self.dispersion.effective(hits, seen))
        evidence = self._detector.update(np.stack([own - won, won], axis=-1))
        if standing is not None:
            evidence = np.where(standing[self.judged], -np.inf, evidence)
        found[self.judged] = select_alarms(evidence, alpha=self.rule.alpha, share=self._share)
        return found

    def has_risen(self) -> Bools:
        """Mask of streams whose evidence is for an increase, shape (streams,)."""
        found = np.zeros(len(self.judged), dtype=np.bool_)
        if self._detector is not None:
            found[self.judged] = self._detector.sides() == "up"
        return found

    def restart(self, streams: Bools) -> None:
        """Restart the test of the streams of a mask, shape (streams,)."""
        if self._detector is not None:
            self._detector.restart(streams[self.judged])

    def to_bytes(self) -> bytes:
        """State as bytes, without ``streams`` and ``rule``."""
        known = np.stack(
            [*self.reference, self.dispersion.ratio, self.dispersion.most, self.dispersion.windows]
        )
        fortunes = np.zeros(0) if self._detector is None else np.minimum(self._detector.fortunes, _RICHEST)
        head = json.dumps([self.windows, len(self.judged)]).encode()
        parts = [
            len(head).to_bytes(4, "little"),
            head,
            known.tobytes(),
            fortunes.astype(np.float32).tobytes(),
        ]
        return zlib.compress(b"".join(parts), 4)

    @classmethod
    def from_bytes(cls, payload: bytes, streams: ShareStreams, rule: WatchRule) -> Self:
        """Watch from the state of :meth:`to_bytes`."""
        held = zlib.decompress(payload)
        size = int.from_bytes(held[:4], "little")
        windows, count = json.loads(held[4 : 4 + size])
        end = 4 + size + 5 * 8 * count
        known = np.frombuffer(held[4 + size : end]).reshape(5, count)
        found = cls.__new__(cls)
        found.dispersion = Dispersion(known[2], known[3], known[4].astype(np.int64))
        found._begin(known[:2], streams, rule)
        found.windows = windows
        if found._detector is not None:
            found._detector.fortunes = np.frombuffer(held[end:], dtype=np.float32).astype(np.float64)
        return found
