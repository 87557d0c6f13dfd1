"""The examples of the page on templates run, and it names every lexicon with its columns."""

import re
from pathlib import Path

import pytest

from outrider.behavioral_tests import lexicons

PAGE = Path(__file__).parents[2] / "docs" / "templates.md"
TEXT = PAGE.read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("block", CODE, ids=range(len(CODE)))
def test_every_example_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WNSEARCHDIR", str(Path(__file__).parent / "wordnet"))
    exec(compile(block, str(PAGE), "exec"), {"__name__": "page"})


@pytest.mark.parametrize("name", lexicons.names())
def test_every_lexicon_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in TEXT or (name.endswith("_past") and f"`{name.removesuffix('_past')}`" in TEXT)


def test_the_page_says_what_lexicons_can_be_chosen_by() -> None:
    assert f"`country` ({len({row['country'] for row in lexicons.records('first_name')})})" in TEXT
    assert f"`country` ({len({row['country'] for row in lexicons.records('city')})})" in TEXT
    for name in ("country", "pronoun", "gendered_noun", "religion", "verb_positive"):
        assert all(f"`{column}`" in TEXT for column in lexicons.about(name).columns)
