"""Every figure of README and docs is that of a result file which a benchmark wrote."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.results import RESULTS, ROOT, pages, with_tables

LINK = re.compile(r"\[([^\[\]]+)\]\(((?:\.\./)*benchmarks/results/([\w.]+)\.json) \"([^\"]+)\"\)")
NUMBER = re.compile(r"[-\u2212]?\d[\d,]*(?:\.\d+)?|\.\d+")


def quotes() -> Iterator[tuple[str, str, str, str]]:
    for page in pages():
        for text, target, file, name in LINK.findall(page.read_text(encoding="utf-8")):
            where = str(page.relative_to(ROOT))
            assert (page.parent / target).resolve() == RESULTS / f"{file}.json", f"{where}: {target}"
            yield where, text, file, name


def figures(file: str) -> dict[str, dict[str, Any]]:
    held = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
    return {figure["name"].removeprefix(f"{file}."): figure for figure in held["figures"]}


def shows(number: str, known: float) -> bool:
    plain = number.replace(",", "").replace("\u2212", "-")
    decimals = len(plain.partition(".")[2])
    # four significant digits are kept: a value between two roundings may be shown as either
    return any(abs(float(plain) - known * scale) <= 0.5001 * 10.0**-decimals for scale in (1, 100))


def fault(text: str, figure: dict[str, Any]) -> str | None:
    """What a quote says that its figure does not."""
    numbers = NUMBER.findall(text)
    if not numbers:
        return "shows no number"
    if not any(shows(numbers[0], figure[key]) for key in ("value", "ratio") if key in figure):
        return f"{numbers[0]} is neither the value nor the ratio of {figure}"
    known = [figure[key] for key in ("value", "ratio", "n", "low", "high") if figure.get(key) is not None]
    wrong = [number for number in numbers[1:] if not any(shows(number, value) for value in known)]
    return f"{', '.join(wrong)}: not among {known}" if wrong else None


@pytest.mark.parametrize(("page", "text", "file", "name"), list(quotes()))
def test_quoted_figure_is_that_of_its_result_file(page: str, text: str, file: str, name: str) -> None:
    known = figures(file)
    assert name in known, f"{page}: {file}.json has no figure {name!r}: {', '.join(known)}"
    assert fault(text, known[name]) is None, f"{page}: [{text}] {fault(text, known[name])}"


def test_tables_of_the_docs_are_those_of_the_result_files() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in pages()}
    stale = [str(page.relative_to(ROOT)) for page, text in texts.items() if with_tables(text) != text]
    assert stale == [], "run python -m benchmarks.results --docs"


def test_result_files_say_how_they_were_made() -> None:
    for path in sorted(RESULTS.glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        assert held["command"].startswith(f"python -m benchmarks.{path.stem}"), path.name
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", held["date"]), path.name
        assert held["machine"], path.name
        assert held["figures"] or held["tables"], path.name
        names = [figure["name"] for figure in held["figures"]]
        assert len(names) == len(set(names)), path.name


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("76 % of 34 (60 to 87)", True),
        ("0.765", True),
        ("77 % of 34 (60 to 87)", False),
        ("76 % of 35", False),
        ("76 % (50 to 87)", False),
        ("most", False),
    ],
)
def test_quote_with_another_number_is_found(text: str, is_right: bool) -> None:
    figure = {"value": 0.7647, "ratio": 1.09, "n": 34, "low": 0.6, "high": 0.8732}
    assert (fault(text, figure) is None) == is_right
