"""Assertions from a file that the configuration names."""

from dataclasses import replace
from pathlib import Path

from outrider.errors import ConfigError
from outrider.user_code import load_file

from .assertion import Assertion, revision_of


def load_assertions(path: Path | str) -> list[Assertion]:
    """Execute a file and return the assertions it defines, in order of definition.

    Raises
    ------
    ConfigError
        If the file is missing, raises, defines no assertion, or defines a name twice.
    """
    module = load_file(path)
    found = [value for value in vars(module).values() if isinstance(value, Assertion)]
    if not found:
        raise ConfigError(f"{path} defines no assertion; decorate a function with @assertion")
    names = [judge.name for judge in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path} defines {', '.join(twice)} more than once; names must be unique")
    # Once more, now that constants and helpers below the functions exist.
    return [replace(judge, revision=revision_of(judge.fn, judge.window)) for judge in found]
