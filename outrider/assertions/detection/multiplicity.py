"""False alarm control over many streams: the e-BH procedure."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def select_alarms(evidence: Floats, *, alpha: float, share: Floats | None = None) -> NDArray[np.bool_]:
    """Select the streams that alarm, with one error ``alpha`` for all.

    **Guarantee**, under any dependence of the streams: while nothing has changed in any stream, one is ever
    selected with a probability of at most alpha (a selection bounds the mean of the evidence from below,
    which is an e-process too); after changes, at most a share alpha of the streams selected at a time has not
    changed, on average. Streams may join later if each brings the evidence of its own horizon.

    Parameters
    ----------
    evidence
        Logarithm of each stream's e-value, shape (streams,).
    alpha
        In (0, 1).
    share
        Share of alpha that each stream may spend, shape (streams,), with a sum of at most 1; None for equal
        shares.

    Returns
    -------
    ndarray
        Shape (streams,).

    Raises
    ------
    ValueError
        If shapes differ, alpha is out of range, or the shares sum to more than 1.

    References
    ----------
    Wang and Ramdas, "False discovery rate control with e-values", JRSS B 2022, section 4.

    Examples
    --------
    >>> select_alarms(np.log([900.0, 250.0, 3.0, 0.1]), alpha=0.01).tolist()
    [True, True, False, False]
    >>> select_alarms(np.log([250.0, 3.0, 0.1, 0.1]), alpha=0.01).tolist()
    [False, False, False, False]
    """
    streams = len(evidence)
    own = np.full(streams, 1.0 / max(streams, 1)) if share is None else share
    if own.shape != evidence.shape or not 0.0 < alpha < 1.0 or own.sum() > 1.0 + 1e-9:
        raise ValueError(
            f"one share of alpha per stream with a sum of at most 1 and an alpha in (0, 1) expected, got "
            f"{own.shape} for {evidence.shape} streams, a sum of {own.sum():g} and alpha {alpha}"
        )
    with np.errstate(divide="ignore"):
        weighted = evidence + np.log(own)
    order = np.argsort(-weighted, kind="stable")
    is_large = weighted[order] + np.log(np.arange(1, streams + 1)) >= -np.log(alpha)
    selected = np.zeros(streams, dtype=np.bool_)
    if is_large.any():
        selected[order[: int(np.flatnonzero(is_large)[-1]) + 1]] = True
    return selected
