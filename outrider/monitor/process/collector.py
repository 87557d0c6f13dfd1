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
    """No collection while a body is parsed: what it makes by the hundred thousand is all in use.

    Of several threads the one that paused ends the pause, for all of them: none is endless.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
