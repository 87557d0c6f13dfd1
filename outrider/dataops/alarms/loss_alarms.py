"""Alarms about the loss of a version, for incidents of kind ``performance``.

A stream is the loss on all records or a slice, in the order of labels, compared with its own past
(:func:`outrider.assertions.detection.loss_rise`) and with the version before.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.detection import (
    LossBlocks,
    known_mix,
    loss_rise,
    onset_interval,
    onset_shares,
    rise_bound,
    select_alarms,
)
from outrider.assertions.detection.rises import largest_ratio
from outrider.assertions.statistics.wilson import wilson_interval

from .minute_counts import ALL
from .rate_alarms import OWN_ENOUGH, AlarmRule, Cause, FlaggedShare
from .version_losses import LABEL, BlockLosses

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
LOSS = "loss"
_PROVEN = 0.99
RARE = 5.0
"""Times ``loss_points``: classes below this share of labels are rare, because the loss of all records
hardly shows theirs."""
_LOST = (3, 5, 7, 10, 14, 20, 28, 40, 56, 80, 160, 320)
"""Numbers of lost labels for which the page says whether they would alarm."""
_TURNS = 4
"""Assumed repetitions of the present labels."""
_LEAST_AGAIN = 50
"""Observations since an alarm before the loss may count as recovered."""


@dataclass(frozen=True, slots=True)
class LossAlarm:
    """Proof of a stream's risen loss, with the blocks of the onset; block 0 means that the version
    before was better."""

    slice: str
    evidence: float
    block: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LossHistory:
    """Losses of the judged version, and of the one before up to the judged one's first label."""

    own: BlockLosses
    former: BlockLosses | None = None

    def sides(self, part: str, block: int) -> tuple[FlaggedShare, FlaggedShare]:
        """Loss before a block and since; before the first block, the version before."""
        since = self.own.of(part)
        if block == 0 and self.former is not None:
            before = _whole(self.former, part)
            return _share(before, slice(None)), _share(since, slice(None))
        return _share(since, slice(0, block)), _share(since, slice(block, None))


def loss_alarms(history: LossHistory, rule: AlarmRule, *, standing: Set[str]) -> list[LossAlarm]:
    """Streams whose loss has risen, the most evident first.

    Slices in ``standing`` have an open incident and need no other, nor do all records with one.
    """
    streams, share = watched_losses(history.own, rule)
    evidence = np.full(len(streams), -np.inf)
    for at in _likely(history, streams, rule):
        if streams[at] not in standing and not (streams[at] == ALL and standing):
            evidence[at] = _evidence(history, streams[at], rule)
    chosen = np.flatnonzero(select_alarms(evidence, alpha=_alpha(rule), share=share)).tolist()
    alarms = [_alarm(history, streams[at], float(evidence[at])) for at in chosen]
    found = []
    for alarm in alarms:
        before, now = history.sides(alarm.slice, alarm.block)
        if now.share - before.share >= rule.loss_points:
            found.append(alarm)
    return sorted(found, key=lambda one: -one.evidence)


def _alpha(rule: AlarmRule) -> float:
    """Alpha less what the dispersion may add, see :func:`outrider.assertions.detection.loss_rise`."""
    return rule.alpha / (1.0 + rule.alpha)


def watched_losses(own: BlockLosses, rule: AlarmRule) -> tuple[list[str], Floats]:
    """Streams of a version (slices, rare classes) and shares of alpha."""
    kinds = [kind for kind in (own.slices, own.rare(RARE * rule.loss_points)) if kind]
    shares = [0.5 / len(kinds) / len(kind) for kind in kinds for _ in kind]
    return [ALL, *(part for kind in kinds for part in kind)], np.array([1.0 - sum(shares), *shares])


def lost_until_alarm(own: BlockLosses, part: str, rule: AlarmRule) -> int | None:
    """Number of further lost labels that would alarm; None for none."""
    streams, shares = watched_losses(own, rule)
    needed = -math.log(_alpha(rule) * float(shares[streams.index(part)]))
    known = own.of(part)
    came, usual = np.tile(known.seen.sum(axis=1), _TURNS), int(np.argmax(known.seen.sum(axis=0)))
    turns = np.arange(1 + _TURNS)[:, None]
    begun_us, day, numbers = (
        (side - side[0] + turns * length).ravel()
        for side, length in (
            (own.begun_us, own.ended_us[-1] - own.begun_us[0] + 1),
            (own.day, own.day[-1] - own.day[0]),
            (own.number, own.number[-1] - own.number[0] + 1),
        )
    )
    share = onset_shares(begun_us / 1e6, numbers, horizon_s=rule.horizon_s)
    total = np.cumsum(came)
    for labels in _LOST:
        count = int(np.searchsorted(total, labels)) + 1
        if count > len(came):
            return None
        more = np.zeros((count, len(known.weight)))
        more[:, usual] = np.diff(np.minimum(total[:count], labels), prepend=0.0)
        blocks = LossBlocks(
            np.concatenate([known.lost, more]), np.concatenate([known.seen, more]), known.weight
        )
        size = len(blocks.seen)
        if loss_rise(blocks, share[:size], needed=needed, day=day[:size]) >= needed:
            return labels
    return None


def loss_causes(history: LossHistory, alarm: LossAlarm, rule: AlarmRule) -> list[Cause]:
    """Slices that explain an alarm, ranked; all records first where no slice alone explains it."""
    if alarm.slice.startswith(LABEL) and alarm.slice not in history.own.parts:
        return [_cause(history, alarm.slice, alarm.block)]
    parts = history.own.slices
    least = -math.log(rule.alpha) + math.log(max(1, len(parts)))
    whole = history.sides(ALL, alarm.block)
    ranked = sorted((_cause(history, part, alarm.block) for part in parts), key=lambda one: -one.weight)
    told = [one for one in ranked if one.weight >= least]
    if told and _ratio(*_without(whole, told[0])) < least:
        return told
    return [Cause(LOSS, ALL, *whole, _ratio(*whole)), *told]


def why_recovered(
    losses: BlockLosses, part: str, before: float, now: float, *, most: float, since_us: int
) -> str:
    """Reason that a loss has recovered, or empty: the newest observations are proven below the
    alarm's, nearer to the loss before, and may be that (``most`` at most)."""
    if not losses.knows(part):
        return ""
    lost, seen = losses.where(losses.begun_us >= since_us).of(part).effective
    held, hits = np.cumsum(seen[::-1]), np.cumsum(lost[::-1])
    size = float(_LEAST_AGAIN)
    while len(held) and size <= held[-1]:
        at = int(np.searchsorted(held, size))
        share = float(hits[at] / held[at])
        low, high = wilson_interval(float(hits[at]), float(held[at]), confidence=_PROVEN)
        angles = [math.asin(math.sqrt(min(1.0, each))) for each in (before, share, now)]
        if high < now and angles[1] <= (angles[0] + angles[2]) / 2.0 and low <= most:
            return f"the loss is what it was before, in the newest {held[at]:.0f} labelled observations"
        size *= 2.0
    return ""


def _likely(history: LossHistory, streams: Sequence[str], rule: AlarmRule) -> list[int]:
    """Streams that may alarm by a cheap bound."""
    if history.former is not None:
        return list(range(len(streams)))
    own = history.own
    sides = [own.of(part).effective for part in streams]
    lost, seen = (np.stack([side[at] for side in sides]) for at in (0, 1))
    bound = rise_bound(lost, seen, _shares(history, rule))
    return np.flatnonzero(bound >= -math.log(rule.alpha)).tolist()


def _shares(history: LossHistory, rule: AlarmRule) -> Floats:
    """Shares of the onsets; half is for the first one where there is a version before."""
    own = history.own
    begun_s = (own.begun_us - own.begun_us[0]) / 1e6
    share = onset_shares(begun_s, own.number - own.number[0], horizon_s=rule.horizon_s)
    return share if history.former is None else share / 2.0


def _evidence(history: LossHistory, part: str, rule: AlarmRule) -> float:
    own, needed = history.own, -math.log(rule.alpha)
    blocks, share = own.of(part), _shares(history, rule)
    evidence = _held(own, part, blocks, share, needed)
    if history.former is not None:
        former = _whole(history.former, part)
        both = _joined(former, blocks)
        start = np.zeros(len(both.lost))
        start[len(former.lost)] = 0.5
        day = np.maximum.accumulate(np.concatenate([history.former.day, own.day]))
        joined = loss_rise(both, start, needed=needed, day=day)
        if part == ALL and own.slices and joined >= needed:
            joined = min(joined, _same_mix(history, both, start, needed, day))
        evidence = float(np.logaddexp(evidence, joined))
    return evidence


def _held(own: BlockLosses, part: str, blocks: LossBlocks, share: Floats, needed: float) -> float:
    """Evidence against the past; of all records also with the mix of slices fixed."""
    evidence = loss_rise(blocks, share, needed=needed, day=own.day)
    if part == ALL and own.slices and evidence >= needed:
        known = known_mix(*own.effective(own.slices))
        evidence = min(evidence, loss_rise(blocks, share, needed=needed, known=known, day=own.day))
    return evidence


def _same_mix(history: LossHistory, both: LossBlocks, share: Floats, needed: float, day: Integers) -> float:
    """Evidence against the version before, in this version's mix of slices."""
    assert history.former is not None
    rows = [
        _joined(_whole(history.former, part), history.own.of(part)).effective for part in history.own.slices
    ]
    known = known_mix(*(np.stack([row[at] for row in rows]) for at in (0, 1)))
    return loss_rise(both, share, needed=needed, known=known, day=day)


def _whole(losses: BlockLosses, part: str) -> LossBlocks:
    """Blocks of a slice, empty where the version had none of it."""
    if losses.knows(part):
        return losses.of(part)
    nothing = np.zeros_like(losses.seen[0])
    return LossBlocks(nothing, nothing, losses.weight)


def _joined(former: LossBlocks, own: LossBlocks) -> LossBlocks:
    weight = np.unique(np.concatenate([former.weight, own.weight]))
    sides = []
    for name in ("lost", "seen"):
        rows = []
        for blocks in (former, own):
            given: Floats = getattr(blocks, name)
            wide = np.zeros((len(given), len(weight)))
            wide[:, np.searchsorted(weight, blocks.weight)] = given
            rows.append(wide)
        sides.append(np.concatenate(rows))
    return LossBlocks(sides[0], sides[1], weight)


def _alarm(history: LossHistory, part: str, evidence: float) -> LossAlarm:
    lost, seen = history.own.of(part).effective
    before = 0
    if history.former is not None:
        former = _whole(history.former, part).effective
        before = len(former[0])
        lost, seen = (np.concatenate(pair) for pair in zip(former, (lost, seen), strict=True))
    begun = int(np.flatnonzero(seen)[0])
    found = onset_interval(lost[begun:], seen[begun:])
    block, first, last = (max(0, each + begun - before) for each in (found.block, found.first, found.last))
    return LossAlarm(part, evidence, block, first, last)


def _cause(history: LossHistory, part: str, block: int) -> Cause:
    before, now = history.sides(part, block)
    if before.seen < OWN_ENOUGH and not part.startswith(LABEL):  # beside what the others show
        whole = history.sides(ALL, block)[0]
        before = whole if whole.seen else before
    return Cause(LOSS, part, before, now, _ratio(before, now))


def _without(whole: tuple[FlaggedShare, FlaggedShare], cause: Cause) -> tuple[FlaggedShare, FlaggedShare]:
    sides = zip(whole, (cause.before, cause.now), strict=True)
    rest = [(max(0, one.hits - own.hits), max(0, one.seen - own.seen)) for one, own in sides]
    return FlaggedShare(*rest[0]), FlaggedShare(*rest[1])


def _ratio(before: FlaggedShare, now: FlaggedShare) -> float:
    counts = (before.hits, before.seen, now.hits, now.seen)
    return float(largest_ratio(*(np.array(float(min(each, other))) for each, other in zip(
        counts, (before.seen, before.seen, now.seen, now.seen), strict=True))))  # fmt: skip


def _share(blocks: LossBlocks, rows: slice) -> FlaggedShare:
    lost, seen = blocks.effective
    return FlaggedShare(round(float(lost[rows].sum())), round(float(seen[rows].sum())))
