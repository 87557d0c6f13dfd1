"""Every figure of README and docs is that of a result file which a benchmark wrote."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import RESULTS, ROOT, TABLE, pages, with_tables
from outrider.assertions.catalogue import CatalogueEntry, entries

LINK = re.compile(r"\[([^\[\]]+)\]\(((?:\.\./)*benchmarks/results/([\w.]+)\.json) \"([^\"]+)\"\)")
NUMBER = re.compile(r"[-\u2212]?\d[\d,]*(?:\.\d+)?|\.\d+")
INTERVAL = re.compile(rf"({NUMBER.pattern}) ?%? to ({NUMBER.pattern})")


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
    if wrong:
        return f"{', '.join(wrong)}: not among {known}"
    ends = figure.get("low"), figure.get("high")
    for said in INTERVAL.findall(text):
        if not all(end is not None and shows(number, end) for number, end in zip(said, ends, strict=True)):
            return f"{' to '.join(said)} is not the interval {ends}"
    return None


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
        ("76 % (60 to 76)", False),
        ("most", False),
    ],
)
def test_quote_with_another_number_is_found(text: str, is_right: bool) -> None:
    figure = {"value": 0.7647, "ratio": 1.09, "n": 34, "low": 0.6, "high": 0.8732}
    assert (fault(text, figure) is None) == is_right


# ---- every page quotes the benchmark that it names ---------------------------------------------------------

NAMED = re.compile(
    r"benchmarks\.((?:assertions|behavioral|compare|improvement|live_path|loop|shadow|statistics)\.\w+)"
)


def unquoted(text: str) -> list[str]:
    """Benchmarks that a page names and does not quote."""
    named = {
        name
        for name in NAMED.findall(text)
        if (ROOT / "benchmarks" / f"{name.replace('.', '/')}.py").exists()
    }
    return sorted(
        name
        for name in named
        if f"benchmarks/results/{name}.json" not in text and f"<!-- results: {name} " not in text
    )


def test_a_page_quotes_the_results_of_every_benchmark_that_it_names() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert unquoted(text) == [], page.name
        quoted = {
            *re.findall(r"benchmarks/results/([\w.]+)\.json", text),
            *(found[1] for found in TABLE.findall(text)),
        }
        assert [name for name in quoted - {"*"} if not (RESULTS / f"{name}.json").exists()] == [], page.name


def test_every_result_file_is_that_of_a_benchmark() -> None:
    for path in RESULTS.glob("*.json"):
        assert (ROOT / "benchmarks" / f"{path.stem.replace('.', '/')}.py").exists(), path.name


def test_a_benchmark_without_its_results_is_found() -> None:
    assert unquoted("see `python -m benchmarks.shadow.path`") == ["shadow.path"]
    assert unquoted("<!-- results: shadow.path all -->, `benchmarks.shadow.path`") == []


# ---- the catalogue states what the benchmarks found --------------------------------------------------------

COUNT = re.compile(r"(?<![\w.\-\u2212])\d+(?:,\d{3})*(?:\.\d+)?(?![\w\-])")
ALSO = {
    "ungrounded": ("groundedness", "overlap"),
    "refusal": ("keywords",),
    "duplicate_boxes": ("duplicates",),
}
"""Figures of an assertion whose names do not hold its own."""


ONE = COUNT.pattern
ESTIMATE = re.compile(rf"({ONE}) ?%? [(\[]({ONE})(?: to |, )({ONE})[)\]](?: of ({ONE}))?")


def stated(entry: CatalogueEntry) -> str:
    """What is written under "Measured", and the cost where it was measured with that."""
    cost = " ".join(entry.sections["Cost"].split())
    costs = re.match(r"([\d.]+) µs per record in blocks of 64, ([\d.]+) in blocks of 10,000", cost)
    measured = re.sub(r"`[^`]*`", "", " ".join(entry.sections["Measured"].split()))
    return f"{measured} {' '.join(costs.groups()) if costs else ''}"


def known_of(entry: CatalogueEntry) -> list[dict[str, Any]]:
    """Figures that are about an assertion, in the file that its docstring names."""
    named = NAMED.search(entry.sections["Measured"])
    file = named[1] if named else "assertions.library"
    about = re.compile(rf"(?<![a-z])({'|'.join((entry.name, *ALSO.get(entry.name, ())))})(?![a-z])")
    return [figure for name, figure in figures(file).items() if about.search(name)]


def unknown(text: str, known: list[dict[str, Any]]) -> list[str]:
    """Estimates and numbers that no figure has, nor the words that it describes its data with."""
    wrong = [
        match[0] for match in ESTIMATE.finditer(text) if not any(estimates(match, each) for each in known)
    ]
    values: list[float] = []
    for figure in known:
        values += [
            figure[key] for key in ("value", "ratio", "n", "low", "high") if figure.get(key) is not None
        ]
        words = " ".join(str(figure.get(key, "")) for key in ("name", "unit", "against", "data"))
        values += [float(number.replace(",", "")) for number in COUNT.findall(words)]
    numbers = [
        number for number in COUNT.findall(ESTIMATE.sub("", text)) if number != "95"
    ]  # % of an interval
    return [*wrong, *(number for number in numbers if not any(shows(number, value) for value in values))]


def estimates(said: re.Match[str], figure: dict[str, Any]) -> bool:
    """Whether a value with its interval, and its n where that is said, are those of one figure."""
    pairs = zip(said.groups(), (figure.get(key) for key in ("value", "low", "high", "n")), strict=True)
    return all(number is None or (value is not None and shows(number, value)) for number, value in pairs)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_the_catalogue_states_what_the_benchmarks_found(entry: CatalogueEntry) -> None:
    assert unknown(stated(entry), known_of(entry)) == []


def test_a_number_that_no_figure_has_is_found() -> None:
    found = {
        "value": 0.98,
        "ratio": 50.0,
        "n": 161,
        "low": 0.95,
        "high": 0.99,
        "data": "2 % of 8,561 records",
    }
    known = [{"name": "bounds on adult_census: found"} | found]
    right = "2 % of 8,561 records: 0.98 (0.95 to 0.99) of 161 found; 50 times"
    assert unknown(right, known) == []
    for old, new, wrong in (
        ("0.98", "0.97", "0.97 (0.95 to 0.99) of 161"),
        ("0.95", "0.98", "0.98 (0.98 to 0.99) of 161"),
        ("161", "160", "0.98 (0.95 to 0.99) of 160"),
        ("8,561", "8,560", "8,560"),
        ("50 times", "51 times", "51"),
    ):
        assert unknown(right.replace(old, new), known) == [wrong]


# ---- nothing that looks measured stands without its source -------------------------------------------------

LIKE = re.compile(
    r"\b\d[\d,]*(?:\.\d+)? ?%"
    r"|\d ?%? \([-\u2212]?\.?\d[\d.,]* ?%? to [-\u2212]?\.?\d[\d.,]*"  # 0.97 (0.95 to 0.98)
    r"|\[[-\u2212]?\d*\.\d+, [-\u2212]?\d*\.\d+\]"  # [0.95, 0.98]
    r"|AUROC (?:of |about )*\d?\.\d+"
)
LEVEL = re.compile(r"interval|confidence|Bonferroni|probability", re.IGNORECASE)
DECLARED = {
    "README.md of benchmarks": {"5 %": "target", "99 %": "objective"},
    "adapters.md": {"0.1 %": "limit"},
    "compare.md": {
        "99 %": "confidence", "95 %": "quantile", "2 %": "margin", "92 %": "a production in a story",
        "8 %": "the rest of it",
    },
    "alarms.md": {"0 %": "example", "1.0 %": "example", "100.0 %": "example"},
    "agreement.md": {
        "95 %": "quantile",
        "10 %": "setting", "3 %": "setting", "5 %": "setting", "30 %": "setting", "2 %": "margin",
        "99 %": "percentile",
    },
    "assertions.md": {"70 %": "split", "30 %": "split"},
    "configuration.md": {"80 %": "limit", "95 %": "quantile"},
    "demo.md": {"5 %": "setup", "45 %": "setup", "30 %": "criterion"},
    "drift.md": {"1 %": "level", "5 %": "level"},
    "gate.md": {"5 %": "level", "2 %": "setup", "85 %": "setup", "90 %": "setup", "1 %": "criterion"},
    "gpu.md": {"10 %": "target"},
    "jobs.md": {"80 %": "limit"},
    "weak-slices.md": {"1 %": "setting", "5 %": "level"},
    "live-tests.md": {
        "5 %": "tolerance", "7.5 %": "simulated rate", "10 %": "simulated rate", "20 %": "simulated rate",
    },
    "operations.md": {"80 %": "limit"},
    "profiles.md": {"1.5 %": "bound", "0.8 %": "width of a cell", "3.3 %": "standard error of the method"},
    "precision.md": {"98.75 %": "level"},
    "perturbations.md": {"20 %": "how far numbers move", "1 %": "how far values move"},
    "selection.md": {"10 %": "default", "1 %": "limit"},
    "series.md": {"1 %": "bound"},
    "shadow-engine.md": {"2 %": "limit", "80 %": "limit"},
    "test-statistics.md": {"20 %": "tolerance"},
    "write-a-suite.md": {"95 %": "of a model in a story"},
}  # fmt: skip
"""Percentages that were declared, not measured: settings, limits, levels, how data were made."""


PROSE = [page for page in pages() if page.name != "assertion-catalogue.md"]  # which is checked above


def prose(text: str) -> str:
    """A page without what is quoted, generated, or run as code."""
    text = TABLE.sub("", text)
    text = LINK.sub("", text)
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def unsourced(text: str) -> list[str]:
    """What looks measured in a page and is neither quoted nor printed by a block of it, which tests run."""
    plain, blocks = prose(text), "".join(re.findall(r"```console.*?```", text, re.DOTALL))
    printed = {float(number) for number in re.findall(r"(\d+(?:\.\d+)?)%", blocks)}
    found = []
    for match in LIKE.finditer(plain):
        around = plain[max(0, match.start() - 80) : match.end() + 80]
        is_level = re.fullmatch(r"(9\d(\.\d+)?|2\.5) ?%", match[0]) and LEVEL.search(around)
        share = re.fullmatch(r"([\d.]+) ?%", match[0])
        if not is_level and not (share and float(share[1]) in printed):
            found.append(match[0])
    return found


@pytest.mark.parametrize("page", PROSE, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_what_looks_measured_is_quoted_from_a_result_file(page: Path) -> None:
    name = "README.md of benchmarks" if page.parent.name == "benchmarks" else page.name
    found = set(unsourced(page.read_text(encoding="utf-8")))
    declared = set(DECLARED.get(name, ()))
    assert found - declared == set(), "quote the figure from its result file, or say in DECLARED what it is"
    assert declared - found == set(), "no longer on the page"


def test_a_measured_number_without_its_source_is_found() -> None:
    quoted = '[76 % of 34 (60 to 87)](../benchmarks/results/assertions.video.json "flicker.precision")'
    assert unsourced(f"right {quoted} of the time") == []
    assert unsourced("right 76 % of the time") == ["76 %"]
    assert unsourced("saves 261 (239 to 284) labels") == ["1 (239 to 284"]
    assert unsourced("right in 0.83 [0.79, 0.86] of 386") == ["[0.79, 0.86]"]
    assert unsourced("with an AUROC of 0.95") == ["AUROC of 0.95"]
    assert unsourced("in brackets 95 % intervals") == []
    assert unsourced("58 % change\n```console\n58% failed\n```\n") == []
