"""HyperLogLog: estimated number of distinct values, mergeable by maximum."""

import numpy as np
from numpy.typing import NDArray

BITS = 10
REGISTERS = 1 << BITS
"""Number of registers; the standard error is 1.04 / sqrt(REGISTERS) = 3.3 %."""
_RANKS = 32
_UPPER = int(np.little_endian)
"""Index of the upper 32-bit half of a 64-bit number."""
_CHUNK = 8192
"""Number of values per pass: temporary arrays stay in the CPU cache."""
Ints = NDArray[np.int64]
Registers = NDArray[np.uint8]


def registers_of(hashes: NDArray[np.uint64]) -> Registers:
    """HyperLogLog registers of hashed values, shape (REGISTERS,).

    Independent of order and repetition; registers of two parts are merged by their maximum.

    References
    ----------
    Flajolet et al., "HyperLogLog", AofA 2007.
    """
    keys = np.empty(len(hashes), dtype=np.int64)
    for start in range(0, len(hashes), _CHUNK):
        _keys(hashes[start : start + _CHUNK], keys[start : start + _CHUNK])
    return _highest(keys)


def registers_of_numbers(values: NDArray[np.int64] | NDArray[np.float64]) -> Registers:
    """Registers of numbers in full precision. Ids above 2**24 stay distinct."""
    keys = np.empty(len(values), dtype=np.int64)
    for start in range(0, len(values), _CHUNK):
        here = values[start : start + _CHUNK]
        exact = here + 0.0 if here.dtype == np.float64 else here.copy()  # -0.0 is 0.0
        hashes = exact.view(np.uint64)
        hashes += np.uint64(0x9E3779B97F4A7C15)
        _mix(hashes)
        _keys(hashes, keys[start : start + _CHUNK])
    return _highest(keys)


def _mix(values: NDArray[np.uint64]) -> None:
    """Finalise hashes in place, like :func:`~outrider.assertions.batch.columns.mix`."""
    shifted = np.empty_like(values)
    for bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        np.right_shift(values, np.uint64(bits), out=shifted)
        values ^= shifted
        if factor > 1:
            values *= np.uint64(factor)


def _keys(hashes: NDArray[np.uint64], keys: Ints) -> None:
    """Write keys in place: register of each hash in the upper bits, leading zeros plus one in the lower."""
    upper = hashes.view(np.uint32)[_UPPER::2].copy()
    rest = upper << np.uint32(BITS)
    rest >>= np.uint32(BITS)  # 22 bits, which a float holds exactly
    exponent = rest.view(np.int32).astype(np.float32).view(np.int32)
    exponent >>= 23
    np.maximum(exponent, 126, out=exponent)  # of a half: no bit is set
    upper >>= np.uint32(32 - BITS)
    upper <<= np.uint32(5)
    upper += np.uint32(149)
    np.subtract(upper.view(np.int32), exponent, out=keys)


def _highest(keys: Ints) -> Registers:
    """Highest rank of each register."""
    found = np.zeros(REGISTERS, dtype=np.uint8)
    there = np.zeros(REGISTERS * _RANKS, dtype=np.bool_)
    there[keys] = True
    seen = np.flatnonzero(there)
    found[seen >> 5] = seen & (_RANKS - 1)  # in order: the highest of each register is the last
    return found


def distinct(registers: Registers) -> float:
    """Estimated number of distinct values.

    References
    ----------
    Flajolet et al., "HyperLogLog", AofA 2007, figure 3: linear counting if registers are empty.

    Examples
    --------
    >>> import numpy as np
    >>> found = distinct(registers_of_numbers(np.arange(100, dtype=np.int64).repeat(3)))
    >>> 80 < found < 120
    True
    """
    empty = int((registers == 0).sum())
    raw = (
        0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS**2 / float(np.exp2(-registers.astype(np.float64)).sum())
    )
    if raw <= 2.5 * REGISTERS and empty:
        return float(REGISTERS * np.log(REGISTERS / empty))
    return float(raw)
