"""Plugins that all tests share."""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

# Before numpy or torch come in. With as many OpenMP threads as cores in each worker they wait for each other
# spinning: fitting on the census took 257 s beside other work, and takes 14 s with one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A loaded machine is slow, not wrong: no test fails for the time it takes.
settings.register_profile("outrider", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outrider")

_ANYWHERE = frozenset(
    f"test_{name}.py"
    for name in (
        "backup",
        "earlier_release",
        "expiry",
        "latency",
        "mirrors",
        "notebooks",
        "payloads",
        "reload",
        "traces",
    )
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Whole services one after another on one worker, everything else file by file on the others.

    Those of ``_ANYWHERE`` may run beside: they wait for what happens, not for a time.

    ``--dist loadgroup`` of xdist 3.8 groups nothing under pytest 9.2 (it sets an attribute that is gone), so
    the groups are made here.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ServicesTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist publishes no types
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            folder, _, name = path.rpartition("/")
            return "services" if folder == "tests/end_to_end" and name not in _ANYWHERE else path

    return ServicesTogether(config, log)
