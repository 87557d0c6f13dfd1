"""Suites as data: versioned JSON without code.

``load_suite`` reads them like Python suites; the fields are those of :class:`WrittenSuite`.
"""

from .adding import add_case, update
from .checklist import read_checklist
from .exporting import export, failed_cases
from .reading import SUFFIX, candidates_of, parse, read_written, runnable
from .written import CaseSource, WrittenCase, WrittenSuite, WrittenTest, to_bytes, write

__all__ = [
    "SUFFIX",
    "CaseSource",
    "WrittenCase",
    "WrittenSuite",
    "WrittenTest",
    "add_case",
    "candidates_of",
    "export",
    "failed_cases",
    "parse",
    "read_checklist",
    "read_written",
    "runnable",
    "to_bytes",
    "update",
    "write",
]
