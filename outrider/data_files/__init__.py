"""The one reader of files of rows.

Endings, column names, types, and the account of columns and rows left out.
"""

from .json_values import LABEL_TASK, is_label_task, json_list, json_reason, read_json_texts, read_json_values
from .left_out import LeftOut
from .opening import CSV, ENDINGS, JSON, TABLES, ending_of, known_ending
from .reading import TablePart, one_table, read_parts, read_table
from .table_options import TableOptions

__all__ = [
    "CSV",
    "ENDINGS",
    "JSON",
    "LABEL_TASK",
    "TABLES",
    "LeftOut",
    "TableOptions",
    "TablePart",
    "ending_of",
    "is_label_task",
    "json_list",
    "json_reason",
    "known_ending",
    "one_table",
    "read_json_texts",
    "read_json_values",
    "read_parts",
    "read_table",
]
