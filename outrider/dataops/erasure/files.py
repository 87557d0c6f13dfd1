"""Files and suites that hold or quote erased records."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from outrider.behavioral_tests.suite_file import SUFFIX, WrittenCase, WrittenSuite, read_written, update
from outrider.dataops.comparisons import FOLDER as COMPARISONS
from outrider.dataops.loaders.arrow_cache import FOLDER as ARROW
from outrider.dataops.loaders.arrow_cache import unused
from outrider.dataops.whole_file import write_whole
from outrider.errors import ConfigError

from .target import Found
from .texts import Quotations

REPORT, PAIRS = "report.json", "pairs.jsonl"
"""Files of ``outrider compare --keep`` next to a configuration, and the report's pages."""
PAGES = ("report.md", "report.html")
OPENED, UNKNOWN_REFUSED = "opened_versions", "refused_of_unknown"
NOBODYS = frozenset({OPENED, UNKNOWN_REFUSED})
"""Counts without an owner, removed at every erasure."""
LEFTOVERS = (".part-", ".tmp")
"""Begins of names of files left by a killed process."""


def erase_files(
    folder: Path, elsewhere: Sequence[Path], found: Found, quoted: Quotations, *, dry_run: bool = False
) -> Counter[str]:
    """Remove cases, pairs, proposals and counts of erased records; returns numbers."""
    counts: Counter[str] = Counter()
    for path in elsewhere:
        if path.name.endswith(SUFFIX):
            counts["cases"] += _clean_suite(path, found, quoted, dry_run=dry_run)
        else:
            counts["compared_pairs"] += _clean_project(path, quoted, dry_run=dry_run)
    for path in sorted((folder / COMPARISONS).glob("*.json")):
        counts["compared_pairs"] += _clean_comparison(path, quoted, dry_run=dry_run)
    for path in sorted((folder / "proposals").glob("*.json")):
        if quoted.cleaned(path.read_text(encoding="utf-8")) is not None:
            counts["proposals"] += 1
            if not dry_run:
                path.unlink()  # `outrider assertions learn` makes them anew
    # Copies of versions that somebody opened: whoever opens one again makes it anew.
    for path in unused(folder / ARROW, older_than_s=float("-inf")):
        counts[OPENED] += 1
        if not dry_run:
            path.unlink(missing_ok=True)
    counts += _clean_refusals(folder / "run" / "refused.json", quoted, dry_run=dry_run)
    return counts


def _clean_refusals(path: Path, quoted: Quotations, *, dry_run: bool) -> Counter[str]:
    """Remove the examples of refused records, whose owner is unknown."""
    if not dry_run:
        path.with_name(f"{path.name}.part").unlink(missing_ok=True)
    try:
        kinds = json.loads(path.read_text(encoding="utf-8"))
        named = [kind for kind in kinds if kind["example"] is not None]
    except FileNotFoundError:
        return Counter()
    except (ValueError, TypeError, KeyError):  # damaged: the service would begin anew, too
        if not dry_run:
            path.unlink()
        return Counter()
    own = sum(quoted.is_in({"id": kind["example"]}) for kind in named)
    if named and not dry_run:
        clean = [quoted.cleaned_value(kind | {"example": None}) for kind in kinds]
        write_whole(path, json.dumps(clean, ensure_ascii=False))
    return Counter({"refused": own, UNKNOWN_REFUSED: len(named) - own})


def erase_payloads(folder: Path, digests: set[str], *, dry_run: bool = False) -> int:
    gone = 0
    for digest in sorted(digests):
        for path in (folder / "objects" / digest[:2] / digest, folder / "payloads" / digest):
            if path.exists():
                gone += 1
                if not dry_run:
                    path.unlink()
    if not dry_run:
        for path in _leftovers(folder):
            path.unlink(missing_ok=True)
    return gone


def _leftovers(folder: Path) -> Iterator[Path]:
    names = ("", "objects", "payloads", COMPARISONS, "proposals", "erasures")
    for place in (folder / name for name in names):
        if place.is_dir():
            yield from (
                path for path in place.iterdir() if path.name.startswith(LEFTOVERS) and path.is_file()
            )


def _clean_suite(path: Path, found: Found, quoted: Quotations, *, dry_run: bool) -> int:
    gone = 0

    def goes(case: WrittenCase) -> bool:
        source = case.source
        if source is not None and source.record_id in found.ids.get(source.model, ()):
            return True
        return quoted.is_in([case.inputs, case.attrs])

    def change(suite: WrittenSuite) -> WrittenSuite:
        nonlocal gone
        from msgspec.structs import replace

        tests = []
        for test in suite.tests:
            left = [case for case in test.cases if not goes(case)]
            gone += len(test.cases) - len(left)
            if left or not test.cases:
                tests.append(replace(test, cases=left))
        return replace(suite, tests=tests)

    if not path.is_file():
        return 0
    try:
        if dry_run:
            change(read_written(path))
        else:
            update(path, change)
    except ConfigError:
        return 0  # no suite of cases
    return gone


def _clean_project(path: Path, quoted: Quotations, *, dry_run: bool) -> int:
    if not path.is_file():
        return 0
    if path.name == REPORT:
        if not dry_run and quoted.cleaned(path.read_text(encoding="utf-8")) is not None:
            for page in PAGES:  # first: once the report is clean nobody could tell
                path.with_name(page).unlink(missing_ok=True)
        return _clean_comparison(path, quoted, dry_run=dry_run)
    lines = path.read_text(encoding="utf-8").splitlines()
    left = [line for line in lines if quoted.cleaned(line) is None]
    if len(left) < len(lines) and not dry_run:
        write_whole(path, "".join(f"{line}\n" for line in left), mode=path.stat().st_mode & 0o777)
    return 0  # the report has them too


def _clean_comparison(path: Path, quoted: Quotations, *, dry_run: bool) -> int:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        candidates = kept.get("report", kept)["candidates"]
    except (ValueError, KeyError, TypeError):
        return 0
    gone = 0
    for candidate in candidates:
        for name in ("examples", "to_label"):
            pairs: list[Any] = candidate.get(name, [])
            left = [pair for pair in pairs if not quoted.is_in(pair)]
            gone += len(pairs) - len(left)
            candidate[name] = left
    clean = quoted.cleaned_value(kept)
    if (gone or clean != kept) and not dry_run:
        write_whole(path, json.dumps(clean, ensure_ascii=False), mode=path.stat().st_mode & 0o777)
    return gone
