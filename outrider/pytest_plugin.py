"""pytest plugin: collects ``test_x = MFT(…)``, ``INV(…)`` and ``DIR(…)`` and reports them as a matrix.

Does nothing in runs that do not import :mod:`outrider.behavioral_tests`, and itself imports only pytest and
the standard library until such a test runs.
"""

import ast
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from outrider.assertions import Predictor
    from outrider.behavioral_tests import Outcome
    from outrider.behavioral_tests.suite import BehavioralTest

_OUTCOME = pytest.StashKey["Outcome"]()
_LINES = pytest.StashKey[dict[str, int]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; all start with ``--outrider``."""
    group = parser.getgroup("outrider", "behavioral tests")
    group.addoption(
        "--outrider-model",
        metavar="MODEL",
        help="model under test: file.py:function, module:function, a project folder or an http address",
    )
    group.addoption("--outrider-json", metavar="PATH", help="write outcomes and matrix to this JSON file")
    group.addoption("--outrider-seed", type=int, default=0, metavar="N", help="seed of perturbations")
    parser.addini("outrider_model", "as --outrider-model, relative to this file")


@pytest.fixture(scope="session")
def outrider_model(pytestconfig: pytest.Config) -> "Predictor":
    """The model under test; override it in a conftest.py to test one that was built there."""
    reference: str | None = pytestconfig.getoption("--outrider-model")
    folder = pytestconfig.invocation_params.dir
    if not reference:
        reference = str(pytestconfig.getini("outrider_model"))
        folder = pytestconfig.inipath.parent if pytestconfig.inipath else pytestconfig.rootpath
    if not reference:
        pytest.fail(
            "no model to test: give --outrider-model file.py:function, set outrider_model in pytest.ini, "
            "or define a fixture outrider_model in conftest.py",
            pytrace=False,
        )
    from outrider.errors import ConfigError
    from outrider.model_reference import load_predictor

    try:
        return load_predictor(reference, folder=folder)
    except ConfigError as error:
        pytest.fail(str(error), pytrace=False)


class BehaviorError(AssertionError):
    """A behavioral test failed more often than it may."""

    def __init__(self, outcome: "Outcome") -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class BehaviorItem(pytest.Function):
    """One behavioral test as a pytest node; a Function, so that fixtures, marks and ``-k`` work as ever."""

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test is defined."""
        assert self.parent is not None
        if _LINES not in self.parent.stash:
            self.parent.stash[_LINES] = _lines(self.path)
        return self.path, self.parent.stash[_LINES].get(self.name), self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Figures and worst examples in place of a traceback through Outrider."""
        if isinstance(excinfo.value, BehaviorError):
            from outrider.behavioral_tests.report import failure_lines

            return "\n".join(failure_lines(excinfo.value.outcome))
        return pytest.Item.repr_failure(self, excinfo, style)


def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> Any:
    """Make one node of a module-level behavioral test."""
    tests = sys.modules.get("outrider.behavioral_tests")
    if tests is None or not isinstance(collector, pytest.Module) or not collector.funcnamefilter(name):
        return None
    if not isinstance(obj, tests.MFT | tests.INV | tests.DIR):
        return None
    test = obj.named(name, folder=collector.path.parent)
    item = BehaviorItem.from_parent(collector, name=name, callobj=_runner(test))
    item.extra_keyword_matches.update({test.kind, test.capability})
    return item


def _runner(test: "BehavioralTest") -> Callable[..., None]:
    """The test as a function that takes fixtures."""

    def run(outrider_model: "Predictor", request: pytest.FixtureRequest) -> None:
        if test.cases is None:
            pytest.skip("has no cases of its own: it runs live, or on a dataset version")
        outcome = test.run(outrider_model, seed=request.config.getoption("--outrider-seed"))
        request.node.stash[_OUTCOME] = outcome
        request.node.user_properties += [
            (f"outrider_{name}", str(getattr(outcome, name)))
            for name in ("kind", "capability", "cases", "failures", "rate", "low", "high", "tolerance")
        ]
        if outcome.status == "skipped":
            pytest.skip(outcome.message)
        if not outcome.passed:
            raise BehaviorError(outcome)

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the outcome to the report as text, which also travels from an xdist worker."""
    report = yield
    if call.when == "call" and isinstance(item, BehaviorItem) and _OUTCOME in item.stash:
        vars(report)["outrider"] = json.dumps(item.stash[_OUTCOME].to_dict())
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the matrix, and write ``--outrider-json``."""
    texts = [
        vars(report)["outrider"]
        for reports in terminalreporter.stats.values()
        for report in reports
        if "outrider" in getattr(report, "__dict__", ())
    ]
    path = config.getoption("--outrider-json")
    if not texts and not path:
        return
    from outrider.behavioral_tests import Outcome, report

    outcomes = sorted((Outcome.from_dict(json.loads(text)) for text in texts), key=lambda each: each.name)
    if path:
        target = config.invocation_params.dir / path
        target.write_text(json.dumps(report.to_json(outcomes), indent=2) + "\n", encoding="utf-8")
    if outcomes:
        terminalreporter.section("behavioral tests")
        for line in report.matrix_lines(outcomes):
            terminalreporter.write_line(line)


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
