"""Sample of live records, by test and record id, independent of time."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def sample_rows(
    test: str,
    ids: Sequence[str] | NDArray[np.object_],
    *,
    rate: float | NDArray[np.float64],
    seed: int = 0,
) -> NDArray[np.bool_]:
    """Mask of a test's sample: ``hash(seed, test, id) < rate``.

    The result for a record depends only on these three, so a replay, another block size or another process
    selects the same records. Samples of different tests are independent.

    Parameters
    ----------
    ids
        Record ids, shape (n,).
    rate
        Share of records to select, in [0, 1]; or one rate per record, shape (n,).

    Returns
    -------
    ndarray of bool
        Shape (n,).

    Examples
    --------
    >>> sample_rows("test_shift", ["a", "b", "c"], rate=1.0)
    array([ True,  True,  True])
    """
    import pandas as pd

    rates = np.broadcast_to(np.asarray(rate, dtype=np.float64), (len(ids),))
    if not ((rates >= 0.0) & (rates <= 1.0)).all():
        raise ValueError(f"rate must lie in [0, 1], got {rate}; it is the share of records asked about")
    key = hashlib.blake2b(f"{seed}\0{test}".encode(), digest_size=8).hexdigest()  # SipHash wants 16 bytes
    hashes = pd.util.hash_array(np.asarray(ids, dtype=object), hash_key=key, categorize=False)
    # 2 ** 64 itself is no 64-bit number
    limits = (np.minimum(rates, 0.5) * 2.0**64).astype(np.uint64)
    limits += (np.maximum(rates - 0.5, 0.0) * 2.0**64).astype(np.uint64)
    sampled: NDArray[np.bool_] = (hashes < limits) | (rates == 1.0)
    return sampled


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Random generator seeded by ``seed`` and ``names``.

    Examples
    --------
    >>> int(generator(0, "test_shift", 7).integers(100)) == int(generator(0, "test_shift", 7).integers(100))
    True
    """
    text = "\0".join(str(part) for part in (seed, *names))
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest()))
