"""Insertion of proposals into the source text of an assertion file."""

import ast
from collections.abc import Sequence

from outrider.assertions import library
from outrider.errors import ConfigError

from .proposal import MARK, Proposal


def merged(text: str, proposals: Sequence[Proposal]) -> str:
    """Source of an assertion file with proposals added or updated.

    Raises
    ------
    ConfigError
        If the text is not valid Python, or a name is already used by a hand-written assertion.

    Examples
    --------
    >>> age = Proposal("range", "age", "bounds", {"column": "inputs.age", "low": 0}, 99, 99, 0, "at least 0")
    >>> once = merged("", [age])
    >>> merged(once, [age]) == once
    True
    """
    for proposal in proposals:
        text = _with_assignment(text, proposal)
    return _with_imports(text, sorted({proposal.factory for proposal in proposals})) if proposals else text


def _with_assignment(text: str, proposal: Proposal) -> str:
    wanted = proposal.to_python()
    tree = _parsed(text)
    lines = text.splitlines()
    for node in tree.body:
        bound = {getattr(node, "name", None)}
        if isinstance(node, ast.Assign):
            bound |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name for alias in node.names}
        if proposal.name not in bound:
            continue
        start = node.lineno - 2  # the comment above
        if not isinstance(node, ast.Assign) or start < 0 or not lines[start].startswith(MARK):
            raise ConfigError(
                f"{proposal.name} on line {node.lineno} was not learned: rename it, or the proposal"
            )
        lines[start : node.end_lineno] = wanted.splitlines()
        return "\n".join(lines) + "\n"
    return f"{text.rstrip()}\n\n{wanted}\n".lstrip("\n")


def _with_imports(text: str, factories: Sequence[str]) -> str:
    tree = _parsed(text)
    module = library.__name__
    lines = text.splitlines()
    have: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == module:
            have |= {alias.name for alias in node.names if alias.asname is None}
    missing = sorted(set(factories) - have)
    if not missing:
        return text
    for node in tree.body:
        plain = isinstance(node, ast.ImportFrom) and node.module == module
        if plain and all(alias.asname is None for alias in node.names):  # type: ignore[attr-defined]
            names = sorted({alias.name for alias in node.names} | set(missing))  # type: ignore[attr-defined]
            lines[node.lineno - 1 : node.end_lineno] = _import(module, names)
            return "\n".join(lines) + "\n"
    return "\n".join(_inserted(lines, tree, _import(module, missing))) + "\n"


def _import(module: str, names: Sequence[str]) -> list[str]:
    line = f"from {module} import {', '.join(names)}"
    return (
        [line] if len(line) <= 100 else [f"from {module} import (", *(f"    {name}," for name in names), ")"]
    )


def _inserted(lines: list[str], tree: ast.Module, wanted: list[str]) -> list[str]:
    """Source lines with ``wanted`` inserted after the docstring and the existing imports."""
    place = 0
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        place = node.end_lineno or 0
    gap = [""] if place < len(lines) and lines[place].strip() else []
    lead = [""] if place and not isinstance(tree.body[0], ast.Import | ast.ImportFrom) else []
    return [*lines[:place], *lead, *wanted, *gap, *lines[place:]]


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"Python expected in the assertion file: {error}") from error
