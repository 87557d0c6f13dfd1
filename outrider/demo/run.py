"""``outrider demo``: run and show the loop, and report its success."""

import json as json_format
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from .children import Children
from .display import Display
from .figures import RunFacts, criteria
from .files import Plan, environment, free_port, prepare_folder
from .loop import PORT, Loop
from .report import as_json, show, show_control


def run(*, folder: Path, seed: int, once: bool, control: bool, json: bool, began: float) -> int:
    """Run the demo; return 0 when the loop closed, else 1.

    Parameters
    ----------
    once
        End when the loop has closed; else traffic goes on until Ctrl-C.
    control
        Run a second loop that labels at random, and compare.
    began
        Time of the command, on the monotonic clock.

    Raises
    ------
    OutriderError
        If the folder cannot be used, a process dies, or a stage takes too long.
    """
    plan = Plan(folder.resolve(), seed)
    prepare_folder(plan.folder)
    width = None if sys.stdout.isatty() else 110
    err, out = Console(stderr=True, width=width), Console(stderr=json, width=width)
    with _terminated_as_interrupted(), Children(plan.folder, environment(plan.folder)) as children:
        loop, facts = _turn(plan, children, err, began=began)
        show(out, facts)
        result = as_json(facts) | {"seed": seed, "folder": str(plan.folder)}
        if control:
            random = _control(Plan(plan.folder / "control", seed, is_control=True), err)
            show_control(out, facts, random)
            result["control"] = as_json(random)
        if json:
            sys.stdout.write(json_format.dumps(result, indent=2) + "\n")
            sys.stdout.flush()
        if not once:
            _stay(loop, children, err)
    return 0 if all(criterion.passed for criterion in criteria(facts)) else 1


def _turn(plan: Plan, children: Children, err: Console, *, began: float) -> tuple[Loop, RunFacts]:
    title = "Outrider demo, random labels" if plan.is_control else "Outrider demo"
    with Display(err, began=began, title=title) as display:
        loop = Loop(plan, children, began=began, tick=display)
        loop.start(free_port(PORT))
        facts = loop.run()
    total = round(time.monotonic() - began, 2)
    return loop, replace(facts, seconds={**loop.state.seconds, "in all": total})


def _control(plan: Plan, err: Console) -> RunFacts:
    plan.folder.mkdir()
    with Children(plan.folder, environment(plan.folder)) as children:
        return _turn(plan, children, err, began=time.monotonic())[1]


def _stay(loop: Loop, children: Children, err: Console) -> None:
    """Keep traffic flowing until Ctrl-C."""
    from outrider.commands.api import connect
    from outrider.commands.login import one_time_link

    page, until = one_time_link(connect(loop.plan.folder / "outrider.toml"))
    err.print(
        f"\nTraffic goes on. The page, by a link that works once, until {until[11:16]} UTC:\n{page}\n"
        f"The project is in {loop.plan.folder}. Ctrl-C ends everything.",
        highlight=False,
        soft_wrap=True,
    )
    loop.driver.say("flow")
    try:
        while True:
            children.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        err.print("ending", highlight=False)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends like Ctrl-C: every process is stopped."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
