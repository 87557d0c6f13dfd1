"""Production, its traffic and its humans know a URL and a key: their imports, and what those import."""

import ast
from pathlib import Path

import pytest

import outrider.demo

FOLDER = Path(outrider.demo.__file__).parent
ALLOWED = "outrider.monitor.client"


def imported(path: Path) -> set[str]:
    """Full names of the modules of this package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = ("outrider.demo." if node.level else "") + (node.module or "")
            found |= {module.rstrip(".")} | {f"{module.rstrip('.')}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("outrider")}


def reachable(name: str) -> set[str]:
    """What a file of the demo imports, through other files of the demo too."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        for module in imported(FOLDER / f"{waiting.pop()}.py") - seen:
            seen.add(module)
            inner = module.removeprefix("outrider.demo.")
            if (FOLDER / f"{inner}.py").exists():
                waiting.append(inner)
    return seen


@pytest.mark.parametrize("name", ["service", "driver", "labeller"])
def test_processes_of_the_demo_import_the_client_at_most(name: str) -> None:
    outside = {module for module in reachable(name) if not module.startswith("outrider.demo")}
    assert {module for module in outside if not module.startswith(ALLOWED)} == set()


def test_the_demo_itself_stays_out_of_dataops() -> None:
    modules = set().union(*(imported(path) for path in FOLDER.rglob("*.py")))
    assert not {module for module in modules if module.startswith("outrider.dataops")}
