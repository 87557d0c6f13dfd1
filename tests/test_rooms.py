"""Rooms of ``monitor``, its ``views`` and ``dataops``: each imports what its door says, and no more."""

import ast
import re
from itertools import chain
from pathlib import Path

import pytest

from tests.test_import_order import PACKAGE, ROOT, imports

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
FLOORS = ("dataops", "monitor", "monitor/views")
ROOMS = sorted(
    path for floor in FLOORS for path in (PACKAGE / floor).iterdir() if (path / "__init__.py").is_file()
)
TABLES = (
    "access_tables", "columns", "erasure_tables", "improvement_tables", "layout", "rows", "series_tables",
    "tables",
)  # fmt: skip
SQL = ("sqlalchemy.", "sqlmodel.", *(f"outrider.dataops.state.{file}." for file in TABLES))
MAY_PASS = (
    "sqlalchemy.Connection.",
    "sqlalchemy.Engine.",
    "sqlalchemy.exc.",
    "outrider.dataops.state.rows.Row.",
)
EVERY, NONE = "every room", "no other room"


def floor_of(room: Path) -> str:
    return room.parent.relative_to(PACKAGE).as_posix()


def door(room: Path) -> str:
    return ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""


def may_import(room: Path) -> set[str]:
    found = re.search(r"^May import (.+)\.$", door(room), re.MULTILINE)
    assert found, f"{room.relative_to(PACKAGE)}: its door says what it may import"
    if found[1] == NONE:
        return set()
    beside = {path.name for path in ROOMS if path.parent == room.parent}
    named = beside if found[1] == EVERY else set(found[1].split(", "))
    there = beside | {path.stem for path in room.parent.glob("*.py")}
    assert named <= there, f"{room.relative_to(PACKAGE)}: there is no room {named - there}"
    return named


def imported_by(room: Path) -> dict[str, str]:
    """Other rooms and single files of the same floor, each with one import as an example."""
    floor = f"outrider.{floor_of(room).replace('/', '.')}."
    return {
        name: str(found)
        for found in imports()
        if found.path.is_relative_to(room)
        and found.path != room / "__main__.py"  # the way in: `python -m` of a process
        and found.module.startswith(floor)
        and (name := found.module.removeprefix(floor).partition(".")[0]) != room.name
    }


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_room_imports_what_its_door_says(room: Path) -> None:
    found, allowed = imported_by(room), may_import(room)
    assert [example for name, example in found.items() if name not in allowed] == []


def test_rooms_form_no_cycle() -> None:
    for floor in FLOORS:
        rest = {room.name: may_import(room) for room in ROOMS if floor_of(room) == floor}
        while rest:
            free = [name for name, needs in rest.items() if not needs & rest.keys() - {name}]
            assert free, f"{floor}: {sorted(rest)} may import each other in a circle"
            for name in free:
                del rest[name]


def knows_sql(path: Path) -> bool:
    """Whether a file may build statements: the store, and the readers of views."""
    return any(
        path.is_relative_to(PACKAGE / room) for room in ("dataops", "monitor/queries", "monitor/views")
    )


def sql_in(source: str) -> list[str]:
    """Names a module imports to build statements; an ``Engine`` or ``Connection`` may be passed on."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if f"{name}.".startswith(SQL) and not f"{name}.".startswith(MAY_PASS)]


def test_sql_stands_in_the_store_and_in_the_read_models() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if not knows_sql(path)]
    assert len(files) > 300
    found = {str(path.relative_to(ROOT)): sql_in(path.read_text(encoding="utf-8")) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from sqlalchemy import Engine, select", "sqlalchemy.select"),
        ("def late():\n    from sqlmodel import Session", "sqlmodel.Session"),
        ("import sqlalchemy as sa", "sqlalchemy"),
        ("from sqlalchemy.dialects.sqlite import insert", "sqlalchemy.dialects.sqlite.insert"),
        ("from outrider.dataops.state.tables import Flag", "outrider.dataops.state.tables.Flag"),
        ("from outrider.dataops.state import tables", "outrider.dataops.state.tables"),
        (
            "from outrider.dataops.state.improvement_tables import Job",
            "outrider.dataops.state.improvement_tables.Job",
        ),
        ("from outrider.dataops.state.rows import insert_rows", "outrider.dataops.state.rows.insert_rows"),
    ],
)
def test_sql_import_is_found(line: str, name: str) -> None:
    assert sql_in(line) == [name]
    assert sql_in("from sqlalchemy import Connection, Engine\nfrom sqlalchemy.exc import DatabaseError") == []


def picture() -> str:
    """Rooms of each floor, those above that import what lies below."""
    lines = []
    for floor in reversed(FLOORS):
        needs = {room.name: may_import(room) for room in ROOMS if floor_of(room) == floor}
        levels: list[list[str]] = []
        while left := needs.keys() - set(chain.from_iterable(levels)):
            levels.append(sorted(name for name in left if not needs[name] & (left - {name})))
        lines += [f"{floor}/"] + ["    " + "   ".join(level) for level in reversed(levels)]
    return "\n".join(["```", *lines, "```"])


def with_picture(page: str) -> str:
    head, begin, rest = page.partition("<!-- rooms -->\n")
    _, end, tail = rest.partition("<!-- /rooms -->")
    return f"{head}{begin}{picture()}\n{end}{tail}"


def test_architecture_shows_the_rooms_and_files_that_there_are() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert with_picture(page) == page, "run python -m tests.test_rooms"
    assert len(page.splitlines()) <= 80
    named = re.findall(r"`((?:tests|benchmarks|outrider|monitor|dataops|assertions|docs)/[\w/.]+)`", page)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


if __name__ == "__main__":
    ARCHITECTURE.write_text(with_picture(ARCHITECTURE.read_text(encoding="utf-8")), encoding="utf-8")
