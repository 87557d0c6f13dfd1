"""The garbage collector of a process that parses bodies."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def settle_garbage() -> None:
    """Spare the garbage collector all imports.

    Under load it went through them again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let no collection run while a body is parsed.

    All of the many values that a parser makes are in use. The thread that began a pause ends it for all.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
