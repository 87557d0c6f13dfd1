"""Versions of one model in the stream: wanted, loaded, champion of the next unit, or disabled with a
reason."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.monitor.engine.asks import SILENT, AskAnswer
from outrider.monitor.engine.groups import EngineGroups

log = logging.getLogger("outrider.shadow")
FAILED_UNITS_UNTIL_OUT = 3
ENDED_UNTIL_OUT = 3
ENDED_WITHIN_S = 3600.0
"""Period in which a champion that ends or holds up its process this often is no longer asked."""
ENDED_UNTIL_RETIRED = 2
"""Ends after which a challenger is retired."""


@dataclass(slots=True)
class WantedVersion:
    is_loaded: bool = False
    failed_units: int = 0
    ended: deque[float] = field(default_factory=deque)
    """Times at which it held up or ended its process."""


class ShadowVersions:
    """Versions of one model beside production.

    Versions load while others answer; a champion takes over between two units, once it is loaded or known
    not to load. ``owing`` versions have not answered their last unit; ``to_retire`` are challengers that
    ended a process twice.
    """

    def __init__(self, model: str, engines: EngineGroups, *, clock: Callable[[], float]) -> None:
        self._model = model
        self._engines = engines
        self._clock = clock
        self._wanted: dict[str, WantedVersion] = {}
        self._next: str | None = None
        self._challengers: list[str] = []
        self.champion: str | None = None
        self.failures: dict[str, str] = {}
        self.owing: dict[str, str] = {}
        self.to_retire: dict[str, str] = {}

    @property
    def versions(self) -> list[str]:
        return sorted(self._wanted.keys() - self.failures.keys())

    @property
    def challengers(self) -> list[str]:
        return [version for version in self._challengers if version not in self.failures]

    @property
    def is_ready(self) -> bool:
        """True where the next unit's version is known; at first the champion has to load."""
        return self.champion is not None or self._next is None

    @property
    def is_whole(self) -> bool:
        """True where every wanted version answers or never will."""
        return self.is_ready and all(self.is_settled(version) for version in (self._next, *self._wanted))

    def keep(self, champion: str | None, challengers: list[str]) -> None:
        """Load missing versions and drop unwanted ones; a champion stays until replaced."""
        self._next, self._challengers = champion, challengers
        wanted = {version for version in (champion, self.champion, *challengers) if version is not None}
        for version in self._wanted.keys() - wanted:
            del self._wanted[version]
            self.failures.pop(version, None)
            self.owing.pop(version, None)
            self._engines.unload((self._model, version))
        for version in sorted(wanted - self._wanted.keys()):
            self._wanted[version] = WantedVersion()
            self._engines.load((self._model, version))

    def loaded(self, version: str, failure: str, *, is_end: bool = False) -> None:
        """Note a version as loaded, or failed; a challenger whose load ended its process is loaded
        once more."""
        standing = self._wanted.get(version)
        if standing is None:
            return
        standing.is_loaded = not failure
        if failure and is_end and self._is_challenger(version):
            self._engines.unload((self._model, version))
            self.ended(version, failure)
            if version not in self.failures:
                self._engines.load((self._model, version))
            return
        if failure:
            log.error("version %s of %s cannot be loaded: %s", version, self._model, failure)
            self.failures[version] = failure
            self._engines.unload((self._model, version))  # a process without any version ends

    def swap_champion(self) -> bool:
        """Swap the champion from the next unit on if the wanted one can answer; returns changes."""
        if self._next == self.champion or not self.is_settled(self._next):
            return False
        self.champion = self._next
        return True

    def is_settled(self, version: str | None) -> bool:
        """True for a version that can be asked, or never will be."""
        standing = self._wanted.get(version or "")
        return standing is None or standing.is_loaded or version in self.failures

    def is_asked(self, version: str | None) -> bool:
        standing = self._wanted.get(version or "")
        return standing is not None and standing.is_loaded and version not in self.failures

    def answered(self, version: str, answer: AskAnswer) -> None:
        """Count a unit's answer; disable a version after several failures.

        An owed answer is no failure and is asked again.
        """
        standing = self._wanted.get(version)
        if standing is None or version in self.failures:
            return
        if answer.outputs is not None:
            standing.failed_units = 0
            self.owing.pop(version, None)
            return
        if answer.is_owed:
            log.warning(
                "version %s of %s has not answered a unit, and is asked again: %s",
                version, self._model, answer.failure,
            )  # fmt: skip
            self.owing.setdefault(version, answer.failure.removeprefix(f"{SILENT}: "))
            return
        self.owing.pop(version, None)
        standing.failed_units += 1
        log.warning("version %s of %s answers a unit with nothing: %s", version, self._model, answer.failure)
        if standing.failed_units >= FAILED_UNITS_UNTIL_OUT:
            self._leave_out(version, answer.failure)

    def ended(self, version: str, reason: str, *, is_alone: bool = True) -> None:
        """Note a version that held up or ended a process; a challenger is blamed for work under
        way even where ``is_alone`` is false."""
        standing, is_challenger = self._wanted.get(version), self._is_challenger(version)
        if standing is None or version in self.failures or not (is_alone or is_challenger):
            return
        now = self._clock()
        standing.ended.append(now)
        while standing.ended[0] < now - ENDED_WITHIN_S:
            standing.ended.popleft()
        if is_challenger and len(standing.ended) >= ENDED_UNTIL_RETIRED:
            self.to_retire[version] = reason
            self._leave_out(version, reason)
        elif len(standing.ended) >= ENDED_UNTIL_OUT:
            self._leave_out(version, reason)

    def _is_challenger(self, version: str) -> bool:
        return version in self._challengers and version not in (self.champion, self._next)

    def _leave_out(self, version: str, reason: str) -> None:
        log.error("version %s of %s is disabled: %s", version, self._model, reason)
        self.failures[version] = reason
        self.owing.pop(version, None)
        self._engines.unload((self._model, version))
