"""Assertions from a file that the configuration names."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from outrider.errors import ConfigError
from outrider.user_code import load_file

from .assertion import Assertion, revision_of


def load_assertions(path: Path | str) -> list[Assertion]:
    """Execute a file and return its assertions, in order of definition.

    An object with several assertions (a tuple ``assertions``) is replaced by these.

    Raises
    ------
    ConfigError
        If the file is missing, raises, defines no assertion, or defines a name twice.
    """
    module = load_file(path)
    # A Checker in the file may hold assertions that the file also names.
    found = list({id(judge): judge for judge in expanded(vars(module).values())}.values())
    if not found:
        raise ConfigError(f"{path} defines no assertion; decorate a function with @assertion")
    names = [judge.name for judge in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path} defines {', '.join(twice)} more than once; names must be unique")
    # Once more, now that constants and helpers below the functions exist.
    return [
        replace(judge, revision=revision_of(judge.fn, judge.window, per_record=judge.per_record))
        for judge in found
    ]


def expanded(values: Iterable[object]) -> list[Assertion]:
    """Assertions among ``values`` and inside objects that hold several."""
    found: list[Assertion] = []
    for value in values:
        held = (value,) if isinstance(value, Assertion) else getattr(value, "assertions", ())
        if isinstance(held, tuple):
            found += [judge for judge in held if isinstance(judge, Assertion)]
    return found
