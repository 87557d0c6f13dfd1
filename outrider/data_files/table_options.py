"""Options of reading a table."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options of reading a table.

    Attributes
    ----------
    delimiter
        Of CSV files; None: the one that a line ``sep=;`` names, a tab in ``.tsv``, else a comma.
    decimal
        Decimal mark of numbers in CSV files.
    text
        Columns of CSV files that are texts, whatever they look like.
    named
        Columns that the caller asks for: never taken for an index.
    times
        Whether texts that are all times become times; JSON has none, and so neither have records.
    """

    delimiter: str | None = None
    decimal: str = "."
    text: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()
    times: bool = False
