"""Error messages for invalid settings, with key, expectation and value."""

import difflib
from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel, ValidationError

Location = tuple[int | str, ...]


def explain(error: ValidationError, root: type[BaseModel]) -> Iterator[tuple[Location, str]]:
    """Location and message of each error; for an unknown key, with the nearest known one."""
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"]) or "(file)"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(problem["loc"][-1]), _known_keys(problem["loc"], root), n=1)
            message = "unknown key" + (
                f"; did you mean {near[0]!r}?" if near else "; see docs/configuration.md"
            )
        elif problem["type"] not in ("missing", "value_error"):
            message += f", got {problem['input']!r}"
        yield problem["loc"], f"{key}: {message}"


def _known_keys(location: Location, root: type[BaseModel]) -> list[str]:
    """Keys of the section that contains ``location``."""
    section = root
    for part in location[:-1]:
        if isinstance(part, str) and part in section.model_fields:
            kinds = [section.model_fields[part].annotation, *get_args(section.model_fields[part].annotation)]
            found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
            section = found[0] if found else section
    return sorted(set(section.model_fields) - {"base"})
