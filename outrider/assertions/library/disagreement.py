"""Disagreement: two models or builds that answer the same record differently.

Replicas with another batch shape, precision or build differ in the last digits, so a difference matters only
above a floor that is measured on the running pair: :func:`noise_floor`.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch
from outrider.assertions.comparison.matching import matches

from .reading import Bools, Floats, arrow, graded, numbers, valid, vectors


def noise_floor(
    batches: Iterable[Batch], slot: str, column: str = "outputs.score", *, quantile: float = 0.999
) -> float:
    """Quantile of the usual difference between recorded outputs and a slot.

    The batches must be free of faults.

    Parameters
    ----------
    batches
        Ordinary traffic with the answers of both.
    slot
        Slot to compare with: the champion's own replica, a quantized build, a model retrained with another
        seed.
    column
        A number or a vector (the largest difference of a record counts).
    quantile
        Share of the records whose difference is noise by definition; 1 takes the maximum.

    Raises
    ------
    ValueError
        If no record has both answers.

    Examples
    --------
    >>> batch = Batch.from_columns({"outputs.score": [0.50, 0.70]}, model="m")
    >>> round(noise_floor([batch.with_answers({"int8": {"score": [0.51, 0.68]}})], "int8", quantile=1.0), 3)
    0.02
    """
    seen = [_difference(batch, slot, column) for batch in batches]
    both = np.concatenate([*seen, np.zeros(0)])
    both = both[np.isfinite(both)]
    if not len(both):
        raise ValueError(f"no record has {column} both recorded and from slot {slot!r}")
    return float(np.quantile(both, quantile, method="higher"))


def score_differs(
    slot: str,
    column: str = "outputs.score",
    *,
    above: float,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Score that differs from a copy's score by more than noise.

    Severity is the difference divided by the floor, so 2 is twice the noise. Records without the slot's
    answer do not fire.

    Parameters
    ----------
    above
        The floor measured by :func:`noise_floor`.

    Finds
    -----
    Broken conversions and quantised builds, stale replicas, features that one of the two did not receive.

    Cost
    ----
    0.53 µs per record in blocks of 64, 0.0075 in blocks of 10,000.

    Measured
    --------
    airline_tweets, floor 0.011 measured on earlier tweets: a healthy 8-bit copy is flagged on 15 of 4,392
    records, one broken by 2-bit weights on 4,220. It shows that a copy is broken, not which answer is wrong
    (0.23 (0.21 to 0.24) of 4,220 flagged, 0.23 of all).

    Examples
    --------
    >>> batch = Batch.from_columns({"outputs.score": [0.5, 0.9]}, model="m")
    >>> twin = batch.with_answers({"int8": {"score": [0.51, 0.6]}})
    >>> score_differs("int8", above=0.02).severities(twin).round(1)
    array([ 0., 15.])
    """
    if above <= 0:
        raise ValueError(f"above must be > 0 (measure it with noise_floor), got {above}")

    def judge(batch: Batch) -> Floats:
        difference = _difference(batch, slot, column)
        return graded(difference > above, difference / above)

    return assertion(
        name=name or f"differs_from_{slot}",
        level=level,
        description=f"{column} differs from that of {slot} by more than the noise of {above:.3g}.",
    )(judge)


def label_differs(
    slot: str,
    label: str = "outputs.label",
    *,
    score: str | None = None,
    above: float = 0.0,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Label that differs from that of another slot's model.

    Severity is 1, or with ``score`` the difference of the two scores.

    Parameters
    ----------
    score
        Count a change of label only if these scores differ by more than ``above``: a label that flips on a
        tie is noise.
    above
        The floor measured by :func:`noise_floor`.

    Finds
    -----
    Errors of one of the two: models built differently rarely make the same errors.

    Cost
    ----
    0.76 µs per record in blocks of 64, 0.022 in blocks of 10,000.

    Measured
    --------
    airline_tweets, a model of letters against one of words; the latter is wrong on 0.62 (0.58 to 0.66) of 558
    flagged, 0.23 of all.

    Examples
    --------
    >>> batch = Batch.from_columns({"outputs.label": ["cat", "dog"]}, model="m")
    >>> label_differs("2").severities(batch.with_answers({"2": {"label": ["cat", "cat"]}}))
    array([0., 1.])
    """

    def judge(batch: Batch) -> Floats:
        differs = _labels_differ(batch, slot, label)
        if score is None:
            return differs.astype(np.float64)
        apart = _difference(batch, slot, score)
        return graded(differs & (apart > above), apart)

    return assertion(
        name=name or f"label_differs_from_{slot}",
        level=level,
        description=f"{label} differs from that of {slot}.",
    )(judge)


def ensemble_disagrees(
    slots: Sequence[str],
    label: str = "outputs.label",
    *,
    share: float = 0.5,
    name: str | None = None,
    level: Level = "warning",
) -> Assertion:
    """Label that most other models contradict.

    The assertion fires if at least a ``share`` of them gives another label.

    Severity is the share of the slots with an answer that give another label.

    Finds
    -----
    Errors of the champion that a committee detects, and records that are hard for all.

    Cost
    ----
    1.2 µs per record in blocks of 64, 0.031 in blocks of 10,000.

    Measured
    --------
    airline_tweets, where a model of letters and naive Bayes both give another label; the model is wrong
    on 0.68 (0.61 to 0.75) of 186 flagged, 0.23 of all.

    References
    ----------
    Seung et al., "Query by Committee", COLT 1992.

    Examples
    --------
    >>> batch = Batch.from_columns({"outputs.label": ["cat", "dog"]}, model="m")
    >>> others = {"a": {"label": ["cat", "cat"]}, "b": {"label": ["cat", "dog"]}}
    >>> ensemble_disagrees(["a", "b"]).severities(batch.with_answers(others))
    array([0. , 0.5])
    """
    voters = tuple([slots] if isinstance(slots, str) else slots)
    if not voters:
        raise ValueError("ensemble_disagrees needs at least one slot")

    def judge(batch: Batch) -> Floats:
        against, votes = np.zeros(batch.rows), np.zeros(batch.rows)
        for slot in voters:
            answer = batch.answers(slot)
            if answer is not None:
                votes += valid(arrow(answer, label))
                against += _labels_differ(batch, slot, label)
        portion = against / np.maximum(votes, 1.0)
        return graded((portion >= share) & (against > 0), portion)

    return assertion(
        name=name or "ensemble_disagrees",
        level=level,
        description=f"At least {share:g} of {', '.join(voters)} give another label.",
    )(judge)


def _difference(batch: Batch, slot: str, column: str) -> Floats:
    """Difference of a number, or the largest of a vector, shape (rows,); NaN if one is absent."""
    answer = batch.answers(slot)
    if answer is None or not answer.has(column) or not batch.has(column):
        return np.full(batch.rows, np.nan)
    try:
        with np.errstate(invalid="ignore"):
            return np.abs(numbers(batch, column) - numbers(answer, column))
    except TypeError:
        ours, theirs = vectors(batch, column), vectors(answer, column)
    if ours.shape != theirs.shape or not ours.shape[1]:
        return np.full(batch.rows, np.nan)
    largest: Floats = np.abs(ours - theirs).max(axis=1)
    return largest


def _labels_differ(batch: Batch, slot: str, label: str) -> Bools:
    answer = batch.answers(slot)
    if answer is None or not answer.has(label) or not batch.has(label):
        return np.zeros(batch.rows, dtype=np.bool_)
    ours, theirs = arrow(batch, label), arrow(answer, label)
    known = valid(ours) & valid(theirs)
    return np.asarray(~matches(ours, theirs) & known, dtype=np.bool_)
