"""The library says of every assertion what it finds and costs; the page is made from that."""

import importlib
import re
from pathlib import Path

import pytest

from outrider.assertions import library
from outrider.assertions.catalogue import SECTIONS, CatalogueEntry, entries, markdown, sections_of

PAGE = Path(__file__).parents[2] / "docs" / "assertion-catalogue.md"


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_a_docstring_says_what_is_found_what_it_costs_and_what_was_measured(entry: CatalogueEntry) -> None:
    assert [heading for heading in (*SECTIONS, "Examples") if not entry.sections.get(heading)] == []
    assert entry.summary.endswith(".")
    assert re.search(r"\d [µm]s per ", " ".join(entry.sections["Cost"].split()))


def test_every_assertion_can_be_imported_from_the_library() -> None:
    """By its own name, or as a name of a family that is imported: ``library.text.length``."""
    families = {entry.family for entry in entries()}
    modules = [importlib.import_module(f"{library.__name__}.{family}") for family in families]
    offered = {name for module in modules for name in getattr(module, "__all__", ())} | set(library.__all__)
    assert [entry.name for entry in entries() if entry.name not in offered] == []
    assert sorted(library.__all__) == library.__all__
    assert {"confidence", "physics", "schema", "ranking", "time_series"} <= families


def test_the_page_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), "run `outrider assertions catalogue`"


def test_sections_are_told_apart_by_their_underlines() -> None:
    text = "Sum.\n\nMore.\n\nFinds\n-----\nThis\nand that.\n\nCost\n----\nNone."
    assert sections_of(text) == {"": "Sum.\n\nMore.", "Finds": "This\nand that.", "Cost": "None."}
