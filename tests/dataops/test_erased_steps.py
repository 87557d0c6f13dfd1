"""An erasure that ends at any step or statement: the old state or the new, and the next finishes it."""

import os
import shutil
import signal
import warnings
from pathlib import Path

import pytest
from sqlalchemy import event, select

from outrider.dataops.datasets.erased import delete_unneeded, erase_rows
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import open_database, write
from outrider.dataops.state.improvement_tables import ErasedObject
from outrider.dataops.state.tables import table_of

from .erased_world import GONE, MARKER, NUMBER, World, traces, world

__all__ = ["world"]


def steps_of(world: World, folder: Path) -> list[str]:
    copy = copied(world, folder)
    steps: list[str] = []
    erase_rows(copy.engine, copy.objects, [GONE], reached=steps.append)
    copy.engine.dispose()
    return steps


def copied(world: World, folder: Path) -> World:
    world.engine.dispose()
    shutil.copytree(world.folder, folder, ignore=shutil.ignore_patterns("copy-*"))
    return World(folder)


def killed_at(folder: Path, last: int) -> None:
    """Erase in a process of its own that is killed once it has reached so many steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            engine = open_database(f"sqlite:///{folder / 'state.db'}")
            left = iter(range(last - 1, -1, -1))

            def step(_: str) -> None:
                if not next(left):
                    os.kill(os.getpid(), signal.SIGKILL)

            erase_rows(engine, LocalObjects(folder / "objects"), [GONE], reached=step)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_killed_at_any_step_it_is_the_old_state_or_the_new(world: World, tmp_path: Path) -> None:
    before = world.content()
    steps = steps_of(world, tmp_path / "copy-all")
    whole = World(tmp_path / "copy-all")
    after = whole.content()
    whole.engine.dispose()
    assert {"file written", "planned", "files exchanged", "rows exchanged", "versions exchanged"} < {*steps}
    assert {"applied", "committed", "object deleted", "objects forgotten"} < {*steps}
    committed = steps.index("committed")
    for last in range(1, len(steps) + 1):
        copy = copied(world, tmp_path / f"copy-{last}")
        copy.engine.dispose()
        killed_at(copy.folder, last)
        assert copy.content() == (after if last > committed else before), steps[last - 1]
        erase_rows(copy.engine, copy.objects, [GONE])
        assert copy.content() == after
        assert traces(copy, MARKER, str(NUMBER), GONE) == [], steps[last - 1]
        copy.engine.dispose()


@pytest.mark.costly("something is killed at each of many places, and begun again")
def test_an_erasure_that_ends_at_any_statement_leaves_the_old_state(world: World, tmp_path: Path) -> None:
    before = world.content()
    ran, last, armed = 0, 0, True

    def crash(*_given: object) -> None:
        nonlocal ran
        ran += 1
        if armed and ran == last:
            raise InterruptedError

    event.listen(world.engine, "before_cursor_execute", crash)
    while True:
        last, ran, armed = last + 1, 0, True
        try:
            with write(world.engine) as connection:
                pass
            erase_rows(world.engine, world.objects, [GONE])
        except InterruptedError:
            armed = False
            with world.engine.connect() as connection:
                waits = connection.execute(select(table_of(ErasedObject))).first() is not None
            if not waits:
                assert world.content() == before
                continue
            assert delete_unneeded(world.engine, world.objects) > 0
        break
    event.remove(world.engine, "before_cursor_execute", crash)
    assert last > 30
    assert traces(world, MARKER, GONE) == []
