"""The one reader of files of rows.

Endings, column names, types, and the account of columns and rows left out.
"""

from .arrow_texts import NOT_UTF8, readable_column
from .json_values import (
    LABEL_TASK,
    flat_parts,
    is_label_task,
    json_reason,
    json_rows,
    read_json_texts,
    read_json_values,
)
from .left_out import LeftOut
from .opening import TableOptions, ending_of, is_json, known_ending
from .reading import one_table, read_parts, read_table

__all__ = [
    "LABEL_TASK",
    "NOT_UTF8",
    "LeftOut",
    "TableOptions",
    "ending_of",
    "flat_parts",
    "is_json",
    "is_label_task",
    "json_reason",
    "json_rows",
    "known_ending",
    "one_table",
    "read_json_texts",
    "read_json_values",
    "read_parts",
    "read_table",
    "readable_column",
]
