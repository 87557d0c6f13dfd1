"""Plan of executors for the versions in memory."""

from collections.abc import Callable, Mapping, Sequence

from outrider.dataops.model_kinds.loading import is_runner
from outrider.dataops.model_kinds.runner import Runner

from .adapters.adapters import mixtures_of
from .asks import Name
from .executor import Alone, Executor, LoadedVersion
from .trunks.trunk import Trunk, trunks_of

Known = Callable[[Sequence[Name]], Executor | None]
"""Executor of exactly these loaded versions, from an earlier plan."""


def executors_of(loaded: Mapping[Name, LoadedVersion], known: Known = lambda _names: None) -> list[Executor]:
    """Executors for all tensor versions; a known one is reused: it is warm, and its queue stays."""
    executors: list[Executor] = [
        known(names) or Trunk({name: _runner(loaded[name]) for name in names}) for names in trunks_of(loaded)
    ]
    # A base saves a whole pass on a trunk, and only fills batches of its adapters.
    executors += mixtures_of(loaded, known, taken={name for one in executors for name in one.names})
    taken = {name for executor in executors for name in executor.names}
    for name, version in loaded.items():
        if name not in taken and is_runner(version.model):
            executors.append(known([name]) or Alone(name, version.model))
    return executors


def _runner(version: LoadedVersion) -> Runner:
    assert is_runner(version.model)
    return version.model
