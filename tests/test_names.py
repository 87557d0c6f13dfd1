"""One public name, one meaning: class names of the product that stand in several modules."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "outrider"
USER_PROJECTS = (PACKAGE / "templates", PACKAGE / "demo" / "project")  # copied out, a user's own code
DELIBERATE = {
    "Job": "of the client `outrider.train`, which never meets the table of jobs",
    "Weights": "of `ungrounded` and of `refusal`: the name is part of their revisions, which must not move",
}
"""Names that several classes share, and why."""


def shared_names() -> dict[str, list[str]]:
    """Public class names that stand in more than one module, with these modules."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if not any(path.is_relative_to(folder) for folder in USER_PROJECTS):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(path.relative_to(PACKAGE).as_posix())
    return {name: paths for name, paths in found.items() if len(paths) > 1}


@pytest.mark.costly("reads every file of the package")
def test_a_public_class_name_stands_in_one_module() -> None:
    shared = shared_names()
    assert {name: paths for name, paths in shared.items() if name not in DELIBERATE} == {}
    assert DELIBERATE.keys() - shared.keys() == set()  # a name that is free again leaves the table
