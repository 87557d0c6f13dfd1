"""Columns that an assertion was seen to read (see :meth:`Batch.own`)."""

from collections.abc import Iterable

from .record_columns import EVERYTHING
from .schema import PARTS

MOST_NAMED = 20
"""If more columns of one part (``inputs``, ``outputs`` …) were read, only the part is named."""


def columns_read(names: Iterable[str]) -> list[str]:
    """Sorted names of the record columns that were read, without system columns.

    ``inputs.*`` replaces more than ``MOST_NAMED`` columns of that part, ``*`` for whole records.

    Examples
    --------
    >>> columns_read(["ts", "inputs.age", "outputs.score"])
    ['inputs.age', 'outputs.score']
    >>> columns_read([*(f"inputs.x{n}" for n in range(30)), "attrs.city"])
    ['attrs.city', 'inputs.*']
    >>> columns_read(["inputs.age", "*"])
    ['*']
    """
    found = set(names)
    if EVERYTHING in found:
        return [EVERYTHING]
    kept: list[str] = []
    for part in PARTS:
        whole = f"{part}.{EVERYTHING}"
        own = [name for name in found if name.startswith(f"{part}.")]
        kept += [whole] if whole in own or len(own) > MOST_NAMED else own
    return sorted(kept)


def is_of_sender(columns: Iterable[str]) -> bool:
    """True if all columns read are inputs or attributes.

    False if no column is known: the finding then may be about the model's answers.

    Examples
    --------
    >>> is_of_sender(["attrs.city", "inputs.age"]), is_of_sender(["inputs.age", "outputs.score"])
    (True, False)
    >>> is_of_sender([]), is_of_sender(["*"])
    (False, False)
    """
    known = list(columns)
    return bool(known) and all(name.startswith(("inputs.", "attrs.")) for name in known)
