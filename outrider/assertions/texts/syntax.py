"""Syntax of source code as text.

Equal for equal code, whatever its comments, docstrings and layout.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache

_WITHOUT_MEANING = {"ctx", "kind", "type_comment", "type_ignores"}


@lru_cache(maxsize=4096)
def syntax_text(source: str) -> str:
    """Text of the syntax tree of a source, without comments and docstrings.

    Equal on every Python from 3.11 on, unlike ``ast.dump``: empty fields are left out, as later versions add
    fields.

    Raises
    ------
    SyntaxError
        If the source is not valid Python.

    Examples
    --------
    >>> syntax_text("x = 1  # one") == syntax_text("x = (1)") != syntax_text("x = 2")
    True
    """
    if not source[:1].isspace():
        return text_of(ast.parse(source))
    (block,) = ast.parse(f"if True:\n{source}").body  # texts of several lines may be indented less
    assert isinstance(block, ast.If)
    return text_of(ast.Module(block.body, []))


def text_of(node: ast.AST) -> str:
    """Text of a syntax tree, as in :func:`syntax_text`."""
    return "".join(_parts(node))


def lambdas_at(source: str, line: int) -> str:
    """Text of the lambda functions that start in a line."""
    found = (node for node in ast.walk(_tree(source)) if isinstance(node, ast.Lambda) and node.lineno == line)
    return "".join(map(text_of, found))


@lru_cache(maxsize=8)
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _parts(value: object) -> Iterator[str]:
    if isinstance(value, ast.AST):
        yield f"{type(value).__name__}("
        for name in value._fields:
            held = _pieces(value) if isinstance(value, ast.JoinedStr) else _held(getattr(value, name, None))
            if name not in _WITHOUT_MEANING and held is not None and held != []:
                yield f"{name}="
                yield from _parts(held)
                yield ","
        yield ")"
    elif isinstance(value, list):
        yield "["
        for one in value:
            yield from _parts(one)
            yield ","
        yield "]"
    else:  # reprs of texts differ between versions of Unicode
        yield f"{type(value).__name__}:{value!a}"


def _held(value: object) -> object:
    """Field of a node without ``pass`` and text statements such as docstrings."""
    if not isinstance(value, list):
        return value
    return [one for one in value if not _does_nothing(one)]


def _does_nothing(node: object) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and _text_in(node.value) is not None)


def _pieces(node: ast.JoinedStr) -> list[ast.AST]:
    """Parts of an f-string, normalised: Python 3.12 splits its texts differently."""
    found: list[ast.AST] = []
    for piece in node.values:
        text = _text_in(piece)
        before = _text_in(found[-1]) if found else None
        if text is not None and before is not None:
            found[-1] = ast.Constant(before + text)
        elif text != "":
            found.append(piece)
    return found


def _text_in(node: ast.AST) -> str | None:
    """Text of a constant node; None for other nodes."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
