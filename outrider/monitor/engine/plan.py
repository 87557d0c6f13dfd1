"""Who runs together: from the versions in memory to the executors that run them."""

from collections.abc import Callable, Mapping, Sequence

from outrider.dataops.model_kinds.loading import is_runner

from .asks import Name
from .executor import Alone, Executor, Loaded

Known = Callable[[Sequence[Name]], Executor | None]
"""Executor that runs exactly these versions, as they are loaded now, since an earlier plan."""


def executors_of(loaded: Mapping[Name, Loaded], known: Known = lambda _names: None) -> list[Executor]:
    """Executors of all versions that are run tensor by tensor, each in one of them.

    Parameters
    ----------
    known
        Where an executor of the same versions is there already it is taken again: it is warm, and what
        waits at it goes on waiting there.
    """
    executors: list[Executor] = []
    for name, version in loaded.items():
        model = version.model
        if is_runner(model):
            alone: Executor = Alone(name, model)
            executors.append(known([name]) or alone)
    return executors
