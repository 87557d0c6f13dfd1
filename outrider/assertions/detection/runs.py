"""Runs of one entity: one observation each."""

import numpy as np
from numpy.typing import NDArray


def first_of_runs(
    entity: NDArray[np.generic], *, known: NDArray[np.generic] | None = None
) -> NDArray[np.bool_]:
    """Select one record per entity that the block before did not hold.

    Records of an entity repeat each other: a hundred frames of one scene are one observation. Chosen before
    they are seen, the first of each stand for all, so that observations stay independent given those before.

    Parameters
    ----------
    entity
        Shape (n,).
    known
        Entities of the block before, whose runs go on, shape (m,).

    Returns
    -------
    ndarray
        Shape (n,).

    Examples
    --------
    >>> first_of_runs(np.array([7, 7, 8, 7, 9]), known=np.array([8])).tolist()
    [True, False, False, False, True]
    """
    _, first = np.unique(entity, return_index=True)
    found = np.zeros(len(entity), dtype=np.bool_)
    found[first] = True
    return found if known is None else found & ~np.isin(entity, known)
