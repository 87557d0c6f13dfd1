"""Suites as Great Expectations' JSON files, handled without importing the library."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from outrider.errors import ConfigError, nearest

Expected: TypeAlias = dict[str, Any]
SEVERITIES = ("critical", "warning", "info")
"""Of Great Expectations: the first blocks, the others annotate."""
ABOUT_NAMES = ("expect_column_to_exist", "expect_table_columns_to_match")
"""Expectations that may name absent columns."""
_NAMED = ("column", "column_A", "column_B", "column_list", "column_set")
_KEPT = ("meta", "notes", "description")


def read_suite(given: str | Sequence[Mapping[str, Any]], folder: Path) -> list[Expected]:
    if not isinstance(given, str):
        return [_expected(item, f"expectations[{number}]") for number, item in enumerate(given)]
    path = (folder / given).resolve()
    try:
        content = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; a suite's JSON file expected") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    items = content.get("expectations") if isinstance(content, dict) else None
    if not isinstance(items, list):
        raise ConfigError(
            f"{path}: an object with a list 'expectations' expected, as Great Expectations writes it"
        )
    return [_expected(item, f"{path}: expectations[{number}]") for number, item in enumerate(items)]


def _expected(item: Any, place: str) -> Expected:
    # Before 1.0 the file called it expectation_type.
    kind = (item.get("type") or item.get("expectation_type")) if isinstance(item, Mapping) else None
    if not isinstance(kind, str):
        raise ConfigError(f"{place}: a table with type and kwargs expected, got {item!r:.80}")
    kwargs, severity = item.get("kwargs") or {}, item.get("severity") or SEVERITIES[0]
    if not isinstance(kwargs, Mapping):
        raise ConfigError(f"{place}.kwargs: a table expected, got {kwargs!r:.80}")
    for name, value in kwargs.items():
        if isinstance(value, Mapping) and "$PARAMETER" in value:
            raise ConfigError(
                f"{place}.kwargs.{name}: a value expected, got the parameter {value['$PARAMETER']!r}: suites "
                "are run without parameters; write the value itself"
            )
    if severity not in SEVERITIES:
        raise ConfigError(f"{place}.severity: one of {', '.join(SEVERITIES)} expected, got {severity!r}")
    more = {key: item[key] for key in _KEPT if item.get(key)}
    plain = json.loads(json.dumps(dict(kwargs), default=_time_text))
    return {"type": kind, "kwargs": plain, "severity": severity} | more


def _time_text(value: Any) -> str:
    """UTC if it names no zone."""
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    return str(value)


def native(name: str, suite: Sequence[Expected], meta: Mapping[str, Any]) -> dict[str, Any]:
    written = {"great_expectations_version": version("great-expectations")} | dict(meta)
    expectations = [{"meta": {}, **item} for item in suite]
    return {"name": name, "id": None, "expectations": expectations, "meta": written, "notes": None}


def columns_of(item: Mapping[str, Any]) -> list[str]:
    kwargs = item["kwargs"]
    found: list[str] = []
    for key in _NAMED:
        value = kwargs.get(key, ())
        found += [value] if isinstance(value, str) else [name for name in value if isinstance(name, str)]
    return found


def resolved(suite: Iterable[Expected], names: Iterable[str], target: str) -> list[Expected]:
    """Suite with full column names, ``inputs.age`` for ``age``."""
    known = set(names)
    known |= {name.rpartition(".")[0] for name in known if name.endswith((".min", ".max", ".mean"))}

    def full(name: str) -> str:
        if name in known:
            return name
        if name == target and f"label.{name}" in known:
            return f"label.{name}"
        return f"inputs.{name}" if f"inputs.{name}" in known else name

    return [item | {"kwargs": _renamed(item["kwargs"], full)} for item in suite]


def _renamed(kwargs: Mapping[str, Any], full: Callable[[str], str]) -> dict[str, Any]:
    renamed = dict(kwargs)
    for key in _NAMED:
        value = kwargs.get(key)
        if isinstance(value, str):
            renamed[key] = full(value)
        elif isinstance(value, list | tuple):
            renamed[key] = [full(name) if isinstance(name, str) else name for name in value]
    if isinstance(kwargs.get("row_condition"), Mapping):
        renamed["row_condition"] = _condition(kwargs["row_condition"], full)
    return renamed


def _condition(node: Any, full: Callable[[str], str]) -> Any:
    if isinstance(node, list):
        return [_condition(item, full) for item in node]
    if not isinstance(node, Mapping):
        return node
    changed = {key: _condition(value, full) for key, value in node.items()}
    column = changed.get("column")
    if isinstance(column, dict) and isinstance(column.get("name"), str):
        changed["column"] = column | {"name": full(column["name"])}
    return changed


def unknown_types(suite: Sequence[Expected], more: Iterable[str] = ()) -> Iterator[str]:
    known = core_types() | set(more)
    for number, item in enumerate(suite):
        if item["type"] not in known:
            yield f"[{number}].type: no expectation {item['type']!r}{nearest(item['type'], known)}"


def unknown_columns(suite: Sequence[Expected], names: Iterable[str]) -> Iterator[str]:
    known = set(names)
    for number, item in enumerate(suite):
        if item["type"].startswith(ABOUT_NAMES):
            continue
        for name in columns_of(item):
            if name not in known:
                yield f"[{number}] {item['type']}: no column {name!r}{nearest(name, known)}"


@cache
def core_types() -> frozenset[str]:
    """Expectations of the installed library, by names of files alone."""
    spec = find_spec("great_expectations")
    folders = (spec and spec.submodule_search_locations) or ()
    files = (path for folder in folders for path in Path(folder, "expectations", "core").glob("expect_*.py"))
    return frozenset(path.stem for path in files)
