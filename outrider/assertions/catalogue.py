"""The assertion catalogue: docs/assertion-catalogue.md, generated from the docstrings of the library.

``python -m outrider.assertions.catalogue`` prints it; ``outrider assertions catalogue`` writes it.
"""

import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import library

SECTIONS = ("Finds", "Cost", "Measured")
"""Sections that each docstring of the library has, in addition to its summary and a runnable example."""
HEADER = """# Assertion catalogue

Ready to use, from `outrider.assertions.library`; how: [Writing assertions](assertions.md#library). Written by
`outrider assertions catalogue` from the docstrings: what each assertion finds, costs per record, and was
measured at on real data, by `python -m benchmarks.assertions.library` unless another is named
([results](../benchmarks/results/assertions.library.json), of
[texts](../benchmarks/results/assertions.llm.json), of [videos](../benchmarks/results/assertions.video.json)).
A precision is the share of flagged records that are wrong (or out of scope, if that is asked), followed by
the share in all records; in brackets its 95 % interval (Wilson's, as if records were independent). Costs
are CPU time of one core. Examples assume `import numpy as np`, `from outrider.assertions import Batch` and
the assertion itself.
"""
WIDTH = 140


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """Catalogue entry of one library assertion.

    Attributes
    ----------
    sections
        Text of the docstring by heading; "" holds the text before the first heading.
    """

    family: str
    name: str
    signature: str
    sections: dict[str, str]

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return self.sections[""].partition("\n")[0]


def entries() -> list[CatalogueEntry]:
    """Entries of all library assertions, sorted by family, then name."""
    return sorted(_entries(), key=lambda entry: (entry.family, entry.name))


def markdown() -> str:
    """Catalogue page in Markdown."""
    found = entries()
    parts = [HEADER]
    rows = [
        f"| [`{one.name}`](#{one.name.lower()}) | {_title(one.family)} | {_cell(one.summary)} |"
        for one in found
    ]
    parts.append("\n".join(["| assertion | family | finds |", "|---|---|---|", *rows, ""]))
    for family in dict.fromkeys(entry.family for entry in found):
        module = importlib.import_module(f"{library.__name__}.{family}")
        title = (inspect.getdoc(module) or "").partition("\n")[0]
        path = f"`outrider.assertions.library.{family}`"
        parts.append(f"## {_title(family).capitalize()}\n\n{_prose(title)}\n\n{path}\n")
        parts += (_entry(entry) for entry in found if entry.family == family)
    return "\n".join(parts)


def _entries() -> Iterator[CatalogueEntry]:
    for module in pkgutil.iter_modules(library.__path__):
        namespace = importlib.import_module(f"{library.__name__}.{module.name}")
        for name, value in vars(namespace).items():
            if (
                name.startswith("_")
                or not inspect.isfunction(value)
                or value.__module__ != namespace.__name__
            ):
                continue
            if _makes_assertions(value):
                yield CatalogueEntry(
                    module.name, name, _signature(value), sections_of(inspect.getdoc(value) or "")
                )


def _makes_assertions(function: Callable[..., Any]) -> bool:
    answer = function.__annotations__.get("return")
    text = answer if isinstance(answer, str) else getattr(answer, "__name__", "") + repr(answer)
    return any(re.search(rf"\b{kind}\b", text) for kind in ("Assertion", "Consistency"))


def _signature(function: Callable[..., Any]) -> str:
    """Signature without type annotations."""
    shown: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        default = parameter.default
        text = "…" if len(repr(default)) > 40 else repr(default)
        shown.append(parameter.name if default is parameter.empty else f"{parameter.name}={text}")
    return f"{function.__name__}({', '.join(shown)})"


def sections_of(docstring: str) -> dict[str, str]:
    """Text of a docstring by underlined heading. Key "" holds the text before the first heading."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", docstring, flags=re.MULTILINE)
    found = {"": parts[0].strip()}
    found.update({heading: text.strip("\n") for heading, text in zip(parts[1::2], parts[2::2], strict=True)})
    return found


def _entry(entry: CatalogueEntry) -> str:
    lines = [f"### {entry.name}\n", f"`{entry.signature}`\n", _prose(entry.sections[""]) + "\n"]
    lines += [
        _prose(f"**{heading}.** {entry.sections[heading]}") + "\n"
        for heading in SECTIONS
        if heading in entry.sections
    ]
    if "Parameters" in entry.sections:
        lines.append(_parameters(entry.sections["Parameters"]) + "\n")
    if "References" in entry.sections:
        lines.append(_prose(f"**Reference.** {entry.sections['References']}") + "\n")
    if "Examples" in entry.sections:
        lines.append(f"```pycon\n{entry.sections['Examples'].strip()}\n```\n")
    return "\n".join(lines)


def _parameters(text: str) -> str:
    found = re.split(r"^(\S.*)\n", text, flags=re.MULTILINE)[1:]
    pairs = zip(found[::2], found[1::2], strict=True)
    return "\n".join(
        _prose(f"- `{head}`{': ' if body.strip() else ''}{body}", indent="  ") for head, body in pairs
    )


def _prose(text: str, indent: str = "") -> str:
    """Docstring text as Markdown: roles and double backticks become code, lines are refilled."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    filled = (
        textwrap.fill(
            " ".join(paragraph.split()),
            WIDTH,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for paragraph in re.split(r"\n\s*\n", text.strip())
    )
    return "\n\n".join(filled)


def _title(family: str) -> str:
    return family.replace("_", " ")


def _cell(text: str) -> str:
    return " ".join(_prose(text).split()).replace("|", r"\|")


if __name__ == "__main__":
    sys.stdout.write(markdown())
