"""Which group each record belongs to, and reading classes of any type."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from outrider.assertions import Batch

from .expect.reading import column

SEPARATOR = ", "
Bools = NDArray[np.bool_]


def groups(batch: Batch, names: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """Names of the groups that occur, sorted, and the number of that of each record."""
    if not names:
        raise ValueError("by needs at least one column, got none")
    texts = []
    for name in names:
        full = column_of(batch, name)
        values = column(batch, full)
        missing = ~present(values)
        short = full.partition(".")[2]
        shown = [f"{short}={value}" for value in values.tolist()]
        texts.append(np.where(missing, f"{short}=(missing)", np.array(shown, dtype=object)))
    labels = [SEPARATOR.join(parts) for parts in zip(*texts, strict=True)]
    found, codes = np.unique(np.array(labels, dtype=object), return_inverse=True)
    return found.tolist(), codes.astype(np.intp)


def column_of(batch: Batch, name: str) -> str:
    """Full name of a column to group by: ``sex`` is ``inputs.sex``, else ``attrs.sex``.

    Raises
    ------
    KeyError
        If there is none; the message lists what there is.
    """
    for full in (name, f"inputs.{name}", f"attrs.{name}"):
        if "." in full and batch.has(full):
            return full
    there = ", ".join(each for each in batch.names if each.startswith(("inputs.", "attrs.")))
    raise KeyError(f"no column {name!r} to group by; the records have: {there}")


def check_classes(
    predicted: NDArray[Any], truth: NDArray[Any] | None, positive: object, *, found: bool
) -> None:
    """A class that nobody ever says or has is a slip of the pen: every gap would be 0.0."""
    seen = dict.fromkeys(predicted[:1000].tolist())
    real = {} if truth is None else dict.fromkeys(truth[present(truth)][:1000].tolist())
    if (
        truth is not None
        and seen
        and real
        and {type(a) is str for a in seen}.isdisjoint(type(b) is str for b in real)
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
    """Which values are not missing."""
    return ~np.asarray(pd.isna(values), dtype=np.bool_)


def equals(values: NDArray[Any], wanted: object) -> Bools:
    """Which values are ``wanted``."""
    if values.dtype != object and isinstance(wanted, int | float | np.number):
        return np.asarray(values == wanted, dtype=np.bool_)
    return np.fromiter((value == wanted for value in values.tolist()), np.bool_, len(values))
