"""Public summaries are short noun phrases or imperatives whose subject is named."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "outrider"
WORDS, INNER_WORDS = 12, 30
"""Most words of a summary's first sentence: of what users import, and inside `monitor` and `dataops`."""
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^a-z])")
UNNAMED = {
    *("it", "they", "that", "these", "this", "those", "nobody", "nothing"),
    *("how", "what", "when", "where", "whether", "which", "who", "whom", "whose", "why"),
}
"""First words that name no subject, or define it by a question or a negation."""
ANYWHERE = {"it", "they", "those", "nobody", "what", "whether", "who", "whom"}
QUOTED = re.compile(r"``[^`]*``|`[^`]*`|\"[^\"]*\"")
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Summary(NamedTuple):
    path: Path
    name: str
    text: str
    is_public: bool

    @property
    def is_inner(self) -> bool:
        return self.path.is_relative_to(PACKAGE / "dataops") or self.path.is_relative_to(PACKAGE / "monitor")

    @property
    def first(self) -> str:
        return re.sub(r"\W", "", self.text.split()[0]).lower()

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}: {self.name}: {self.text}"


def definitions(node: ast.AST, *, is_public: bool) -> Iterator[tuple[Definition, bool]]:
    """Definitions below a node, and if each can be reached by public names."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            is_open = is_public and (not child.name.startswith("_") or child.name.endswith("__"))
            yield child, is_open
            yield from definitions(child, is_public=is_open and isinstance(child, ast.ClassDef))
        elif not isinstance(child, ast.expr):
            yield from definitions(child, is_public=is_public)


def summaries() -> list[Summary]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, is_public in [(tree, True), *definitions(tree, is_public=True)]:
            text = ast.get_docstring(node)
            if text:
                name = "module" if isinstance(node, ast.Module) else node.name
                found.append(Summary(path, name, " ".join(text.split("\n\n")[0].split()), is_public))
    return found


def faults(summary: Summary) -> list[str]:
    words = SENTENCE.split(summary.text)[0].split()
    bare = re.findall(r"[a-z']+", QUOTED.sub("", summary.text).lower())
    most = INNER_WORDS if summary.is_inner else WORDS
    checks = {
        f"begins with {summary.first!r}": summary.first in UNNAMED,
        f"says {sorted(ANYWHERE.intersection(bare))} without a name": summary.is_public
        and not summary.is_inner
        and ANYWHERE & {*bare},
        f"has {len(words)} words, at most {most} expected": summary.is_public and len(words) > most,
        "ends without a full stop": summary.is_public and not summary.text.endswith("."),
    }
    return [fault for fault, holds in checks.items() if holds]


@pytest.mark.costly("reads every file of the package")
def test_summaries_name_their_subject_in_few_words() -> None:
    found = summaries()
    assert len(found) > 1000
    wrong = [(one, faults(one)) for one in found]
    assert [f"{one} ({', '.join(why)})" for one, why in wrong if why] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Where a model is loaded.", "begins with 'where'"),
        ("Models and what they cost.", "says ['they', 'what'] without a name"),
        ("Cost of a model", "ends without a full stop"),
        (f"Cost of {'a ' * 10}model.", "has 13 words, at most 12 expected"),
        (f"Cost of {'a ' * 10}model. In seconds.", "has 13 words, at most 12 expected"),
        ("Cost of a model. In seconds, as they are spent.", "says ['they'] without a name"),
    ],
)
def test_summary_against_a_rule_is_found(text: str, fault: str) -> None:
    assert faults(Summary(PACKAGE, "name", text, is_public=True)) == [fault]
    assert faults(Summary(PACKAGE, "name", "Cost of a model.", is_public=True)) == []
