"""Rows by their place in the files of a dataset."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def groups_of(ends: Sequence[int], positions: Iterable[int]) -> list[int]:
    """Row groups that hold some positions, in order.

    Parameters
    ----------
    ends
        Number of rows up to the end of each group.

    Examples
    --------
    >>> groups_of([10, 20, 25], [3, 24, 9])
    [0, 2]
    """
    return sorted({int(at) for at in np.searchsorted(np.asarray(ends), list(positions), side="right")})


def rows_at(data: memoryview | bytes, positions: Sequence[int], names: Sequence[str]) -> pa.Table:
    """Some rows of a file.

    In the order of ``positions``; columns that the file does not have are left out.
    """
    file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    ends = np.cumsum(sizes)
    chosen = groups_of(ends.tolist(), positions)
    columns = [name for name in names if name in file.schema_arrow.names]
    found = defaultdict(list)
    for place, position in enumerate(positions):
        found[int(np.searchsorted(ends, position, side="right"))].append((place, position))
    tables: list[pa.Table] = []
    order: list[int] = []
    for group in chosen:  # one by one: of a group, a few rows stay
        first = int(ends[group]) - sizes[group]
        places, wanted = zip(*found[group], strict=True)
        rows = pa.array([position - first for position in wanted], pa.int64())
        tables.append(file.read_row_group(group, columns).take(rows))
        order += places
    return pa.concat_tables(tables).take(pa.array(np.argsort(order)))
