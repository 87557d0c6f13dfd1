"""The house (ARCHITECTURE.md): imports point down, absolute across folders and relative inside one."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "outrider"
FLOORS = {
    "addresses": 0,
    "errors": 0,
    "parts": 0,
    "http_client": 0,
    "user_code": 0,
    "assertions": 1,
    "data_files": 1,
    "behavioral_tests": 2,
    "dataops": 3,
    "monitor": 4,
    "dashboards": 5,
    "connection": 6,
    "dataset_reference": 6,
    "model_reference": 6,
    "commands": 6,
    "demo": 6,
    "cli": 6,
    "pytest_fixtures": 6,
    "pytest_items": 6,
    "pytest_plugin": 6,
    "train": 6,
    "__main__": 6,
    "__init__": 6,  # lazy names only, see test_doors_of_light_packages_hold_a_docstring_or_lazy_names
}
FOLDERS = ("assertions", "behavioral_tests", "dataops", "monitor", "dashboards")
USER_PROJECTS = (PACKAGE / "templates", PACKAGE / "demo" / "project")  # copied out, run as a user's own code
HEAVY = {"torch", "great_expectations", "transformers", "peft", "sklearn"}
CLIENT = "outrider.monitor.client"


@dataclass(frozen=True)
class Import:
    path: Path
    line: int
    module: str
    """Absolute name."""
    relative: bool
    lazy: bool
    """Inside a function or ``if TYPE_CHECKING``."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.module}"


def module_name(path: Path) -> list[str]:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


def imports_of(path: Path) -> Iterator[Import]:
    package = list(path.relative_to(ROOT).parts[:-1])
    for node, lazy in _import_nodes(ast.parse(path.read_text(encoding="utf-8")), False):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, False, lazy)
        else:
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # ``from outrider import dataops`` and ``from . import wire`` name modules too.
                full = f"{module}.{alias.name}"
                is_module = (ROOT / full.replace(".", "/")).is_dir() or _file(full).is_file()
                yield Import(path, node.lineno, full if is_module else module, node.level > 0, lazy)


def _import_nodes(outer: ast.AST, lazy: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Expressions import nothing: only statements are looked into."""
    lazy = lazy or isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.If)
    for node in ast.iter_child_nodes(outer):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, lazy
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _import_nodes(node, lazy)


def _file(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


SOURCES = sorted(p for p in PACKAGE.rglob("*.py") if not any(p.is_relative_to(u) for u in USER_PROJECTS))


@cache
def imports() -> list[Import]:
    return [found for path in SOURCES for found in imports_of(path)]


def part(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def owner(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def test_every_part_of_the_package_has_a_floor() -> None:
    assert {owner(path) for path in SOURCES} - {"__init__"} <= set(FLOORS)


@pytest.mark.costly("reads every file of the package")
def test_imports_point_down() -> None:
    wrong = [
        f"{found} (floor {FLOORS[part(found.module)]} from floor {FLOORS[owner(found.path)]})"
        for found in imports()
        if found.module.startswith("outrider.") and FLOORS[part(found.module)] > FLOORS[owner(found.path)]
    ]
    assert wrong == []


def test_imports_are_absolute_across_folders_and_relative_inside() -> None:
    wrong = []
    for found in imports():
        if not found.module.startswith("outrider.") or owner(found.path) not in FOLDERS:
            continue
        folder = ".".join(found.path.relative_to(ROOT).parts[:-1])
        inside = found.module.startswith(f"{folder}.")
        if found.relative != inside:
            wrong.append(f"{found}: {'relative' if inside else 'absolute'} expected")
    assert wrong == []


def cycles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Sets of modules that reach each other by imports."""
    while ends := {name for name, targets in graph.items() if not targets & graph.keys()}:
        graph = {name: targets for name, targets in graph.items() if name not in ends}
    reached: dict[str, set[str]] = {}
    for name in graph:
        todo, seen = list(graph[name]), set[str]()
        while todo:
            if (target := todo.pop()) in graph and target not in seen:
                seen.add(target)
                todo.extend(graph[target])
        reached[name] = seen
    return {
        frozenset(other for other in seen if name in reached[other])
        for name, seen in reached.items()
        if name in seen
    }


def test_cycles_are_found_and_what_leads_to_one_is_not_in_it() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"f", "os"}, "f": {"e"}}
    assert cycles(graph) == {frozenset("bc"), frozenset("ef")}


def test_no_module_imports_one_that_imports_it() -> None:
    """Not for types alone, nor inside a function either: such modules are one concept, or lack a third."""
    graph = {".".join(module_name(path)): set[str]() for path in SOURCES}
    for found in imports():
        name = ".".join(module_name(found.path))
        if found.module in graph and found.module != name:
            graph[name].add(found.module)
    assert cycles(graph) == set()


def test_no_folder_is_imported_by_its_bare_name() -> None:
    assert [str(found) for found in imports() if found.module.split(".")[0] in FOLDERS] == []


@pytest.mark.parametrize("folder", ["", "dataops", "monitor", "dashboards"])
def test_doors_of_light_packages_hold_a_docstring_or_lazy_names(folder: str) -> None:
    body = ast.parse((PACKAGE / folder / "__init__.py").read_text(encoding="utf-8")).body
    allowed = {"__getattr__", "__dir__"}
    rest = [
        node
        for node in body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (isinstance(node, ast.FunctionDef) and node.name in allowed)
        and not isinstance(node, ast.Assign | ast.AnnAssign)
        and ast.unparse(node) != "from typing import TYPE_CHECKING"
        and not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    assert rest == []


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    """Those that take seconds are never imported by importing a package, and by few files at the top."""
    top = [found for found in imports() if found.module.split(".")[0] in HEAVY and not found.lazy]
    assert {found.module.split(".")[0] for found in top} <= {"torch"}
    assert [str(found) for found in top if found.path.name == "__init__.py"] == []


def test_assertions_and_behavioral_tests_need_neither_network_nor_torch() -> None:
    banned = {"torch", "socket", "http", "httpx", "urllib", "sqlite3", "sqlmodel", "sqlalchemy", "time"}
    lower = [found for found in imports() if owner(found.path) == "assertions"]
    assert [str(found) for found in lower if found.module.split(".")[0] in banned] == []


def test_processes_of_the_demo_know_a_url_and_a_key_only() -> None:
    todo, seen = ["service", "driver", "labeller"], set[str]()
    wrong = []
    while todo:
        name = todo.pop()
        if name in seen or not (PACKAGE / "demo" / f"{name}.py").is_file():
            continue
        seen.add(name)
        for found in imports():
            if found.path != PACKAGE / "demo" / f"{name}.py" or not found.module.startswith("outrider"):
                continue
            if part(found.module) == "demo":
                todo.append(found.module.split(".")[2])
            elif found.module != CLIENT:
                wrong.append(str(found))
    assert wrong == []
    assert [str(f) for f in imports() if owner(f.path) == "demo" and part(f.module) == "dataops"] == []


def test_links_at_the_top_lead_into_the_package() -> None:
    for folder in FOLDERS:
        link = ROOT / folder
        # A checkout without link support has a small file in its place.
        target = link.readlink().as_posix() if link.is_symlink() else link.read_text(encoding="utf-8")
        assert target == f"outrider/{folder}"
