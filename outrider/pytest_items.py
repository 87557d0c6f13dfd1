"""Pytest nodes, one per behavioral test, its cases inside.

Imports only pytest and the standard library; tests are made by somebody who has imported the rest.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .assertions import Predictor
    from .behavioral_tests import Outcome
    from .behavioral_tests.suite import BehavioralTest

OUTCOME = pytest.StashKey["Outcome"]()
_LINES = pytest.StashKey[dict[str, int]]()
_REVISIONS = pytest.StashKey[dict[str, str]]()
_FIXTURES = pytest.StashKey[Any]()
FIGURES = ("suite", "revision", "kind", "capability", "cases", "failures", "rate", "low", "high", "tolerance")


class BehaviorError(AssertionError):
    """Behavioral test failed beyond its tolerance."""

    def __init__(self, outcome: "Outcome") -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class BehaviorItem(pytest.Function):
    """Behavioral test as Function node, for fixtures, marks, ``-k``."""

    behavior: "BehavioralTest"

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """File, line and name of the test."""
        assert self.parent is not None
        if _LINES not in self.parent.stash:
            self.parent.stash[_LINES] = _lines(self.path)
        return self.path, self.parent.stash[_LINES].get(self.originalname), self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Figures and worst examples in place of a traceback through Outrider."""
        if isinstance(excinfo.value, BehaviorError):
            from .behavioral_tests.report import failure_lines

            return "\n".join(failure_lines(excinfo.value.outcome))
        return pytest.Item.repr_failure(self, excinfo, style)


class SuiteFile(pytest.Module):
    """``*.suite.json`` as a Module, for fixtures of every scope."""

    def _getobj(self) -> ModuleType:
        return ModuleType(self.path.name.removesuffix(".suite.json"))

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one node per test."""
        from .behavioral_tests import load_suite
        from .errors import OutriderError

        try:
            suite = load_suite(self.path)
        except (OutriderError, ValueError) as error:
            raise self.CollectError(str(error)) from error
        self.stash[_LINES] = {}
        taken: set[str] = set()
        for number, test in enumerate(suite.tests):
            name = node_name(test.name, taken)
            self.stash[_LINES][name] = number
            yield from items_of(self, name, test, ())


def behavioral_test(value: object) -> tuple["BehavioralTest | None", list[pytest.Mark]]:
    """Test in a module's value, and its marks: ``pytest.mark.slow(MFT(…))``."""
    marks: list[pytest.Mark] = []
    while isinstance(value, pytest.MarkDecorator) and value.args:
        *rest, inner = value.args
        marks.append(getattr(pytest.mark, value.name).with_args(*rest, **value.kwargs).mark)
        value = inner
    tests: Any = sys.modules.get("outrider.behavioral_tests")
    return (value if isinstance(value, tests.MFT | tests.INV | tests.DIR) else None), marks


def items_of(
    collector: pytest.Module, name: str, test: "BehavioralTest", marks: Sequence[pytest.Mark]
) -> list[pytest.Function]:
    """Nodes of a test, one per value of parametrised fixtures."""
    # What the first test of a file needs all need: pytest looks that up slowly. Marks may add fixtures.
    shared = None if marks else collector.stash.get(_FIXTURES, None)
    function = _marked(marks) if marks else run_behavior
    item = BehaviorItem.from_parent(collector, name=name, callobj=function, fixtureinfo=shared)
    if shared is None:
        if _needs_values(item) or any(mark.name == "parametrize" for mark in marks):
            return [_known(each, test) for each in _for_each_value(collector, name, function)]
        if not marks:
            collector.stash[_FIXTURES] = item._fixtureinfo
    return [_known(item, test)]


def node_name(name: str, taken: set[str]) -> str:
    """Name for selection in pytest, one line, distinct from ``taken``.

    ``::`` and brackets would be read as parts of a node's id.
    """
    plain = " ".join(name.split()).replace("::", ":").replace("[", "(").replace("]", ")")
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain) or "_"
    number, found = 1, plain
    while found in taken:
        number += 1
        found = f"{plain} #{number}"
    taken.add(found)
    return found


def _known(item: pytest.Function, test: "BehavioralTest") -> pytest.Function:
    assert isinstance(item, BehaviorItem)
    item.behavior = test
    item.extra_keyword_matches.update((test.kind, test.capability))
    return item


def _needs_values(item: pytest.Function) -> bool:
    found = item._fixtureinfo.name2fixturedefs.values()
    return any(definition.params is not None for definitions in found for definition in definitions)


def _for_each_value(
    collector: pytest.Module, name: str, function: Callable[..., None]
) -> list[pytest.Function]:
    """Nodes as pytest makes them of a parametrised function, which it wants to find in the module."""
    module = vars(collector.obj)
    before = module.get(name)
    module[name] = function
    try:
        items = list(collector._genfunctions(name, function))
    finally:
        module[name] = before
    for item in items:
        item.__class__ = BehaviorItem
    return items


def run_behavior(outrider_model: "Predictor", request: pytest.FixtureRequest) -> None:
    """Behavioral test of a node, as a function taking fixtures."""
    item = request.node
    if item.behavior.cases is None:
        pytest.skip("has no cases of its own: it runs live, or on a dataset version")
    outcome = _run(item, outrider_model)
    item.user_properties += [(f"outrider_{name}", str(getattr(outcome, name))) for name in FIGURES]
    if outcome.status == "skipped":
        pytest.skip(outcome.message)
    if not outcome.passed:
        raise BehaviorError(outcome)


def _marked(marks: Sequence[pytest.Mark]) -> Callable[..., None]:
    def run(outrider_model: "Predictor", request: pytest.FixtureRequest) -> None:
        run_behavior(outrider_model, request)

    vars(run)["pytestmark"] = list(marks)
    return run


def _run(item: BehaviorItem, model: "Predictor") -> "Outcome":
    from .behavioral_tests.running import failed_to_run

    test = found_test(item)
    try:
        outcome = test.run(model, seed=item.config.getoption("--outrider-seed"))
    except Exception as error:
        item.stash[OUTCOME] = failed_to_run(test, error)
        raise
    item.stash[OUTCOME] = outcome
    return outcome


def found_test(item: BehaviorItem) -> "BehavioralTest":
    """The test of a node, with name, file and revision."""
    from .behavioral_tests.suite import revisions

    test, parent = item.behavior, item.parent
    assert parent is not None
    suffix = item.name.removeprefix(item.originalname)
    if isinstance(parent, SuiteFile):
        return test if not suffix else test.named(f"{test.name}{suffix}")
    if _REVISIONS not in parent.stash:
        parent.stash[_REVISIONS] = revisions(item.path)
    known = parent.stash[_REVISIONS]
    return test.named(
        f"{item.originalname}{suffix}",
        folder=item.path.parent,
        suite=item.path.stem,
        revision=known.get(item.originalname, known[""]),
    )


def _lines(path: Path) -> dict[str, int]:
    """Line (from 0) of every module-level assignment."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, UnicodeDecodeError):
        return {}
    lines: dict[str, int] = {}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        lines |= {target.id: node.lineno - 1 for target in targets if isinstance(target, ast.Name)}
    return lines
