"""Plugin for pytest: behavioral tests as nodes, outcomes as a matrix.

Collects ``test_x = MFT(…)``, ``INV(…)`` and ``DIR(…)``.

Does nothing in runs that do not import :mod:`outrider.behavioral_tests` and have no ``*.suite.json``, and
itself imports only pytest and the standard library until such a test runs.
"""

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .pytest_fixtures import named_model, outrider_dataset, outrider_flags, outrider_model
from .pytest_items import OUTCOME, BehaviorItem, SuiteFile, behavioral_test, found_test, items_of

if TYPE_CHECKING:
    from .behavioral_tests import Outcome

__all__ = ["outrider_dataset", "outrider_flags", "outrider_model"]  # pytest finds fixtures in plugins


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; all start with ``--outrider``."""
    group = parser.getgroup("outrider", "behavioral tests")
    group.addoption(
        "--outrider-model",
        metavar="MODEL",
        help="model under test: file.py:function, module:function, a project folder or an http address",
    )
    group.addoption("--outrider-json", metavar="PATH", help="write outcomes and matrix to this JSON file")
    group.addoption("--outrider-html", metavar="PATH", help="write a report to this HTML file")
    group.addoption(
        "--outrider-publish",
        metavar="[MODEL@]VERSION",
        help="send the outcomes to the service's behavioral matrix, as of this version",
    )
    group.addoption("--outrider-seed", type=int, default=0, metavar="N", help="seed of perturbations")
    parser.addini("outrider_model", "as --outrider-model, relative to this file")


def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> Any:
    """Make one node of a module-level behavioral test."""
    if "outrider.behavioral_tests" not in sys.modules or not collector.funcnamefilter(name):
        return None
    test, marks = behavioral_test(obj)
    if test is None:
        return None
    if not isinstance(collector, pytest.Module):
        raise collector.CollectError(f"{name} stands in a class: a behavioral test stands in a module")
    return items_of(collector, name, test, marks)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SuiteFile | None:
    """Collect suites that are data."""
    if not file_path.name.endswith(".suite.json"):
        return None
    return SuiteFile.from_parent(parent, path=file_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the outcome to the report, for xdist workers too. As text, which travels from a worker."""
    report = yield
    if not isinstance(item, BehaviorItem):
        return report
    if call.when == "setup" and report.failed and call.excinfo is not None:
        from .behavioral_tests.running import failed_to_run

        vars(report)["outrider"] = json.dumps(failed_to_run(found_test(item), call.excinfo.value).to_dict())
    elif call.when == "call" and OUTCOME in item.stash:
        vars(report)["outrider"] = json.dumps(item.stash[OUTCOME].to_dict())
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the matrix and the worst examples; write ``--outrider-json`` and ``--outrider-html``."""
    outcomes = _outcomes(terminalreporter)
    targets = {kind: config.getoption(f"--outrider-{kind}") for kind in ("json", "html")}
    if not outcomes and not any(targets.values()):
        return
    from .behavioral_tests import report

    if targets["json"]:
        _write(targets["json"], json.dumps(report.to_json(outcomes), indent=2) + "\n", config)
    if targets["html"]:
        from .behavioral_tests.html_report import html_report

        _write(targets["html"], html_report(outcomes), config)
    if outcomes:
        terminalreporter.section("behavioral tests")
        for line in report.summary_lines(outcomes):
            terminalreporter.write_line(line)
        if version := config.getoption("--outrider-publish"):
            terminalreporter.write_line(_publish(outcomes, version, config))


def _write(target: str, text: str, config: pytest.Config) -> None:
    """Write a file, in a folder that may have to be made, as pytest does for its own reports."""
    path = config.invocation_params.dir / target
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _publish(outcomes: "list[Outcome]", version: str, config: pytest.Config) -> str:
    """Send the outcomes; a line that says where they stand, or why they could not be sent."""
    from .commands.publish import publish
    from .errors import OutriderError

    model, folder = named_model(config)
    try:
        where = publish(outcomes, model, target=version, source="pytest", folder=folder)
    except OutriderError as error:
        return f"not published: {error}"
    return f"published as {where}"


def _outcomes(terminalreporter: pytest.TerminalReporter) -> "list[Outcome]":
    """Outcomes of all reports, in the order in which the tests are defined."""
    found = [
        report
        for category, reports in terminalreporter.stats.items()
        for report in reports
        if category != "rerun" and "outrider" in getattr(report, "__dict__", ())
    ]
    if not found:
        return []
    from .behavioral_tests import Outcome

    found.sort(key=lambda report: (report.location[0], report.location[1] or 0, report.nodeid))
    return [Outcome.from_dict(json.loads(vars(report)["outrider"])) for report in found]
