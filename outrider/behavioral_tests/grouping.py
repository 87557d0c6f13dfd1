"""Group of each record, and classes of any type."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.matching import matches, spelled_like

from .expect.reading import column

SEPARATOR = ", "
Bools = NDArray[np.bool_]


def groups(batch: Batch, names: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """Sorted names of the groups, and each record's group index."""
    import pandas as pd

    if not names:
        raise ValueError("by needs at least one column, got none")
    texts: list[list[str]] = []
    mixed = np.zeros(batch.rows, dtype=np.int64)
    for name in names:
        full = column_of(batch, name)
        short = full.partition(".")[2]
        codes, values = pd.factorize(column(batch, full))  # -1 where missing
        texts.append([f"{short}={value}" for value in values.tolist()] + [f"{short}=(missing)"])
        mixed = mixed * len(texts[-1]) + np.where(codes < 0, len(values), codes)
    found, member = np.unique(mixed, return_inverse=True)
    places = np.unravel_index(found, tuple(len(each) for each in texts))
    labels = [
        SEPARATOR.join(text[at] for text, at in zip(texts, row, strict=True))
        for row in zip(*places, strict=True)
    ]
    # Values that read alike, such as 1 and 1.0, are one group.
    named, place = np.unique(np.array(labels, dtype=object), return_inverse=True)
    return named.tolist(), place[member].astype(np.intp)


def column_of(batch: Batch, name: str) -> str:
    """Full name of a grouping column: ``inputs.sex``, else ``attrs.sex``."""
    for full in (name, f"inputs.{name}", f"attrs.{name}"):
        if "." in full and batch.has(full):
            return full
    there = ", ".join(each for each in batch.names if each.startswith(("inputs.", "attrs.")))
    raise KeyError(f"no column {name!r} to group by; the records have: {there}")


def check_classes(
    predicted: NDArray[Any], truth: NDArray[Any] | None, positive: object, *, found: bool
) -> None:
    """Raise TypeError or ValueError for a class that no record has.

    A misspelt class would make every gap 0.0.
    """
    seen = dict.fromkeys(predicted[:1000].tolist())
    real = {} if truth is None else dict.fromkeys(truth[present(truth)][:1000].tolist())
    if (
        seen
        and real
        and {type(a) is str for a in seen}.isdisjoint(type(b) is str for b in real)
        and spelled_like(list(real), list(seen)) == list(real)
    ):
        raise TypeError(
            f"predictions like {next(iter(seen))!r} and labels like {next(iter(real))!r}: "
            "they could never be equal"
        )
    if found or not len(predicted) or (truth is not None and equals(truth, positive).any()):
        return
    raise ValueError(
        f"positive={positive!r} is neither predicted nor a label of any record; "
        f"there are {list(seen | real)[:10]}"
    )


def present(values: NDArray[Any]) -> Bools:
    """Mask of the values that are not missing."""
    import pandas as pd

    return ~np.asarray(pd.isna(values), dtype=np.bool_)


def equals(values: NDArray[Any], wanted: Any) -> Bools:
    """Mask of the values equal to ``wanted``. ``wanted`` is one value, or one per row."""
    if not isinstance(wanted, np.ndarray):
        wanted = [wanted] * len(values)
    return matches(values, wanted)
