"""Text of a syntax tree: equal for equal code, on every Python, and another for other code."""

import hashlib
import inspect
from types import ModuleType

import pytest

from outrider.assertions import assertion
from outrider.assertions.consistency import consistency, scene, tracker
from outrider.assertions.texts import syntax
from outrider.assertions.texts.syntax import syntax_text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = (1)  # one"),
        ("def f(a):\n    return a", 'def f(a):\n    "Doc."\n    # why\n    return a'),
        ("class A:\n    pass", "class A:\n    'Doc.'"),
        ("class A:\n    x = 1", "class A:\n    x = 1\n    'of x'"),
        ("    x = 'a'", 'x = "a"'),
        ("x = f'a{y}' 'b'", "x = f'a{y}b'"),
    ],
)
def test_syntax_text_is_the_same_for_the_same_code(one: str, other: str) -> None:
    assert syntax_text(one) == syntax_text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = 'a'", "x = b'a'"),
        ("f('a', 'b')", "f('ab')"),
        ("def f(a, b=1): ...", "def f(a, *, b=1): ..."),
        ("x = -y", "x = +y"),
        ("x = f'{y}'", "x = f'{y!r}'"),
        ("x = [a, [b]]", "x = [[a], b]"),
        ("def f():\n    return 'Doc.'", "def f():\n    'Doc.'"),
    ],
)
def test_syntax_text_is_another_for_other_code(one: str, other: str) -> None:
    assert syntax_text(one) != syntax_text(other)


def test_syntax_text_is_that_of_every_supported_python() -> None:
    """The digest was the same on Python 3.11, 3.12 and 3.13; f-strings are cut differently by 3.12."""
    told = (
        "def f(a, /, b: int = 1_000, *, c=None, **k) -> str:\n"
        "    return f'a{a!r:>{b}}b' f'{c=}' + rf'\\d{k}' if a else u'x\\u00e9'\n"
        "match x:\n    case [1, *r] | {'a': y, **z} if r:\n        del y\n"
        "try:\n    g()\nexcept* ValueError as e:\n    raise\n"
    )
    digest = hashlib.blake2b(syntax_text(told).encode(), digest_size=6).hexdigest()
    assert digest == "6841992e9160"


@pytest.mark.parametrize("module", [assertion, consistency, scene, syntax, tracker], ids=lambda m: m.__name__)
def test_syntax_text_reads_real_files(module: ModuleType) -> None:
    source = inspect.getsource(inspect.getmodule(module) or module)
    assert syntax_text(source) == syntax_text(f"# A comment.\n{source}\n# Another one.\n")
