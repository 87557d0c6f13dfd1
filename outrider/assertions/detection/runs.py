"""Runs of one entity, counted as one observation each."""

import numpy as np
from numpy.typing import NDArray


def first_of_runs(
    entity: NDArray[np.generic], *, known: NDArray[np.generic] | None = None
) -> NDArray[np.bool_]:
    """Select one record per entity that was absent from the previous block.

    Records of an entity repeat each other: a hundred frames of one scene are one observation. The first of
    each represents all; its choice does not depend on its content, so observations stay independent given the
    past.

    Parameters
    ----------
    entity
        Entity of each record, shape (n,).
    known
        Entities of the previous block, whose runs continue, shape (m,).

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
