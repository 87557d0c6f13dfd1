"""Reports of real comparisons, for those that keep and show them."""

import json
import threading
from functools import cache
from typing import Any

from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.report import CompareReport
from outrider.monitor.compare.run import ComparisonRun, drive
from tests.monitor.compare_askers import Sampled, traffic

PLAN = ComparePlan(slices=("attrs.country",))


def run(plan: ComparePlan = PLAN) -> ComparisonRun:
    """Comparison of an equal candidate, and of one that is wrong on a fifth of the questions."""
    candidates = [Sampled("twin", noise=0.02, seed=2), Sampled("faulty", wrong=0.2, noise=0.02, seed=3)]
    made = ComparisonRun(Sampled("production", noise=0.02, seed=1), candidates, plan)
    drive(made, traffic(), Until(), stop=threading.Event(), tell=lambda _: None)
    made.close()
    return made


def report_of(made: ComparisonRun, plan: ComparePlan = PLAN, **more: Any) -> dict[str, Any]:
    """Report as ``--json`` prints it."""
    told = CompareReport.of(made, plan, ending="decided", funnel={"seen": 20_000}, seconds=1.0, **more)
    found: dict[str, Any] = json.loads(told.json())
    return found


@cache
def _text() -> str:
    return json.dumps(report_of(run()))


def report() -> dict[str, Any]:
    """Report of :func:`run`, a copy of one's own."""
    found: dict[str, Any] = json.loads(_text())
    return found
