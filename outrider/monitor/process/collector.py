"""The garbage collector of a process that parses bodies."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def settle_garbage() -> None:
    """Exempt all imports from garbage collection, which under load rescans them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection while a body is parsed, whose values are all in use; the thread that
    began a pause ends it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
