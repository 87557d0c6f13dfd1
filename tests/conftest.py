"""Plugins that all tests share."""

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import _pytest.pytester
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from .soak import IS_SOAK, examples

pytest_plugins = ["pytester"]
collect_ignore = ["end_to_end/unhurried.py"]  # importing it for its doctests would change the service

# Before numpy or torch come in. With as many OpenMP threads as cores in each worker they wait for each other
# spinning: fitting on the census took 257 s beside other work, and takes 14 s with one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A loaded machine is slow, not wrong: no test fails for the time it takes. The same examples each time tell
# of a change, not of luck; a soak looks for others.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(100))
settings.register_profile("test", _CALM, derandomize=True)
settings.register_profile("soak", _CALM)
settings.load_profile("soak" if IS_SOAK else "test")

INSTALLED = (str(Path(__file__).parents[1]), sys.prefix, sys.base_prefix)


class _ForgetsOnlyTestFiles(_pytest.pytester.SysModulesSnapshot):
    """What a run of pytest inside a test forgets: numpy, torch and others cannot be loaded twice."""

    def __init__(self, preserve: object = None) -> None:
        super().__init__(
            lambda name: (getattr(sys.modules[name], "__file__", None) or sys.prefix).startswith(INSTALLED)
        )


_pytest.pytester.SysModulesSnapshot = _ForgetsOnlyTestFiles  # type: ignore[misc]

LONGEST = (
    "tests/end_to_end/test_demo.py",
    "tests/end_to_end/test_loop.py",
    "tests/end_to_end/test_init_projects.py",
    "tests/commands/test_init.py",
    "tests/end_to_end/test_clock_steps.py",
    "tests/deploy/test_installed.py",
    "tests/monitor/test_worker.py",
    "tests/end_to_end/test_start_and_stop.py",
    "tests/end_to_end/test_full_disk.py",
    "tests/properties/test_batch.py",
    "tests/end_to_end/test_expiry.py",
    "tests/behavioral_tests/test_sentiment_suite.py",
    "tests/assertions/consistency/test_video.py",
    "tests/assertions/test_ecg.py",
    "tests/reliability/test_durability.py",
    "tests/monitor/test_latency.py",
    "tests/monitor/test_trainer.py",
    "tests/monitor/test_host.py",
    "tests/properties/test_windows.py",
    "tests/properties/test_perturbations.py",
    "tests/end_to_end/test_reload.py",
    "tests/end_to_end/test_http_contract.py",
    "tests/monitor/test_intake.py",
    "tests/reliability/test_overload.py",
    "tests/end_to_end/test_incident_cases.py",
    "tests/end_to_end/test_kill_rounds.py",
    "tests/commands/test_check_config.py",
    "tests/end_to_end/test_payloads.py",
    "tests/monitor/test_engine_client.py",
)
"""Files that take long, longest first: they are begun first, so that the workers end together."""

TOGETHER = {
    "tests/end_to_end/test_prometheus.py": "tests/end_to_end/test_loop.py",
    "tests/deploy/test_release.py": "tests/deploy/test_installed.py",
}
"""Files that share what takes long to make, by the file beside which they run."""

MOST_CPU_S = 2.0
"""What a test may take of a processor without a mark ``costly`` that says why."""
_BEGAN = pytest.StashKey[float]()
_UNEXPLAINED: dict[str, float] = {}
"""Seconds of tests that took more and do not say why."""


class _FilesWithExamples:
    """Looks for doctests where there are any: importing a file and going through it takes its time."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(self, file_path: Path) -> Generator[None, list[Any], list[Any]]:
        found = yield
        return [
            one for one in found if not isinstance(one, DoctestModule) or b">>>" in file_path.read_bytes()
        ]


def pytest_configure(config: pytest.Config) -> None:
    """Have it for files of all folders: a hook of this file is for those below it."""
    config.pluginmanager.register(_FilesWithExamples())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect thousands of tests, which stay: looking for garbage among them takes a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest files where several workers share them."""
    if hasattr(config, "workerinput"):
        rank = {file: number for number, file in enumerate(LONGEST)}
        items.sort(key=lambda item: rank.get(_scope(item.nodeid), len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """File by file, in the order of collection."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist publishes no types
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    config.option.loadscopereorder = False
    return ByFile(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Look at the time before any fixture."""
    item.stash[_BEGAN] = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what a test without a reason for its cost took, its fixtures and processes included."""
    report = yield
    if report.when == "teardown" and item.get_closest_marker("costly") is None:
        report.cpu_s = _cpu_seconds() - item.stash[_BEGAN]  # type: ignore[attr-defined]  # xdist carries it
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what takes long without a reason; workers hand it on."""
    if (cpu_s := getattr(report, "cpu_s", 0.0)) > MOST_CPU_S:
        _UNEXPLAINED[report.nodeid] = cpu_s


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what took long and does not say why: nothing fails for it."""
    if _UNEXPLAINED:
        terminalreporter.section(f"more than {MOST_CPU_S:g} s of CPU, and no mark costly(reason)")
        for nodeid, cpu_s in sorted(_UNEXPLAINED.items(), key=lambda each: -each[1]):
            terminalreporter.line(f"{cpu_s:6.1f} s {nodeid}")


def _cpu_seconds() -> float:
    """User and system time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def _scope(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return TOGETHER.get(file, file)
