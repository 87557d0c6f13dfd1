"""Client of one engine process, in the worker.

Two threads read and write frames, so neither side waits for the other; all methods are called by the worker's
thread.
"""

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source

from .asks import AGAIN, LATE, Ask, AskAnswer, Name, again_of
from .events import Ended, EngineEvent, Parted, VersionLoad
from .frames import Header
from .launch import Launch, StartedEngine
from .work_board import WorkBoard

log = logging.getLogger("outrider.worker")
START_DEADLINE_S = 120.0
LOAD_DEADLINE_S = 300.0
"""For one version."""
STARTS = 3
"""Processes that end before their first message until the versions are given up."""
PAUSES_S = (0.0, 0.5, 2.0, 5.0)
STABLE_S = 30.0
AFTER_END = "its process ended while it was asked in another batch shape"
ALONE_TIMES = 2.0
"""Of the deadline, for a version of a service that is asked alone: it may be retired for it."""
SLOW_TIMES, MOST_TIMES = 4.0, 10.0
"""Of the slowest pass that a version has ended, and of the deadline at most: a slow version is no hang."""
GONE_S, GONE_LOAD_S = 2.0, 10.0
"""For work of a version, or its loading, that is no longer wanted."""
SHOTS = 3
"""Such ends without an answer between them, before asks are tried version by version."""


@dataclass(frozen=True, slots=True)
class Making:
    """Source of a version to load, and records to try first."""

    source: Source
    weights: Path | None = None
    sample: Batch | None = None


@dataclass(slots=True)
class Open:
    ask: Ask
    left: set[str]
    since: float


class EngineClient:
    """Engine process with its asks.

    A process that exceeds a deadline or ends is restarted; the version at work is suspected and asked
    again alone, and blamed if it ends a fresh process alone. An end caused from outside is blamed on no
    version. Time without a processor does not count against ``deadline_s`` (by model, one step of work).
    """

    def __init__(
        self,
        group: str,
        launch: Launch,
        *,
        deadline_s: Callable[[str], float],
        wake: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
        bound: Callable[[], int | None] = lambda: None,
        parts: bool = False,
    ) -> None:
        self.group = group
        self.restarts: dict[str, int] = {"deadline": 0, "died": 0, "memory": 0}
        self.stats: dict[str, float] = {}
        self.launch, self._deadline_s, self._wake, self._clock = launch, deadline_s, wake, clock
        self._bound, self._parts = bound, parts
        self._peak = 0
        self._starved_s = 0.0
        self._steps, self._step_at = 0, 0.0
        self._at_work: Sequence[Name] = ()
        """Last step of work that was seen, whose it is, and since when."""
        self._slowest: dict[Name, float] = {}
        self._together: set[Name] = set()
        """Versions whose common work was under way when a process ended."""
        self._shots = 0
        self._process: StartedEngine | None = None
        self._makings: dict[Name, Making] = {}
        self._to_load: deque[Name] = deque()
        self._later: deque[Name] = deque()
        """Loaded once they are known not to have ended the process."""
        self._loading: Name | None = None
        """Version that the process is loading, wanted or not."""
        self._known: set[Name] = set()
        self._asks: dict[int, Open] = {}
        self._apart: deque[tuple[int, str]] = deque()
        """Asks and versions that are asked alone."""
        self._alone: tuple[int, str] | None = None
        self._held: list[Ask] = []
        self._events: list[EngineEvent] = []
        self._heard_at = self._load_at = 0.0
        self._bad_starts = 0
        self._due = 0.0

    # ---- what the worker does --------------------------------------------------------------------------

    def load(self, name: Name, making: Making) -> None:
        self._makings[name] = making
        if self._alone is None and not self._apart:
            self._begin_to_load(name)
        else:  # whoever is asked alone would be blamed for what loading does
            self._later.append(name)

    def unload(self, name: Name) -> None:
        self._forget(name, f"{name[0]}@{name[1]} is disabled")
        if self._process is not None:
            self._process.send({"op": "unload", "name": name})

    def submit(self, ask: Ask) -> None:
        is_busy = self._alone is not None or bool(self._apart) or self._is_reloading
        if is_busy or self._process is None or self._is_coming(ask):
            self._held.append(ask)
            if not self._makings:
                self._release()
            return
        opened = self._asks[ask.number] = Open(ask, {*ask.answers}, self._time())
        for version in ask.versions:
            if (ask.model, version) not in self._makings:
                self._fail(opened, version, f"{ask.model}@{version} is not loaded")
        if opened.left:
            self._send_ask(ask)

    def poll(self) -> list[EngineEvent]:
        """Events of the process, which is started, restarted or killed here."""
        self._ensure()
        process = self._process
        if process is not None:
            if unreadable := self._heed(process):
                self._end("died", unreadable)
            elif process.is_gone and not process.inbox:
                self._end("died", f"its process ended: {process.child.exit_text()}")
            elif (late := self._late()) is not None:
                self._end("deadline", late)
            elif process.memory is not None and (beyond := process.memory.look()):
                self._end("memory", beyond)
        found, self._events = self._events, []
        return found

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    @property
    def peak_bytes(self) -> int:
        memory = None if self._process is None else self._process.memory
        return self._peak if memory is None else max(self._peak, memory.peak)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.child.pid

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.is_up and not (self._to_load or self._later)

    @property
    def names(self) -> list[Name]:
        return sorted(self._makings)

    @property
    def waiting_rows(self) -> int:
        return sum(one.ask.batch.rows for one in self._asks.values()) + sum(a.batch.rows for a in self._held)

    # ---- the process -----------------------------------------------------------------------------------

    def _ensure(self) -> None:
        if self._process is not None or not self._makings or self._clock() < self._due:
            return
        self._process = StartedEngine(self.launch, self._wake, self._clock, self._bound)
        self._heard_at = self._load_at = self._step_at = self._time()
        self._steps, self._at_work = 0, ()
        self._loading = None
        again, self._to_load = [*self._to_load], deque()
        known = [name for name in self._makings if name in self._known]
        for name in [*known, *(name for name in again if name not in self._known)]:
            self._begin_to_load(name, again=True)
        if not self._to_load:  # those that answered are not wanted any more
            self._ask_next()

    def _begin_to_load(self, name: Name, *, again: bool = False) -> None:
        if not self._to_load:
            self._load_at = self._time()
        self._to_load.append(name)
        if self._process is None:
            return
        making = self._makings[name]
        header = {
            "op": "load", "name": name, "source": making.source.to_json(),
            "weights": None if making.weights is None else str(making.weights),
        }  # fmt: skip
        # After a restart nothing is tried on records: one of them may be what ended the process.
        sample = None if again else making.sample
        self._process.send(header, [] if sample is None else self._process.batches.buffers(sample))

    def _send_ask(self, ask: Ask) -> None:
        if self._process is not None:
            self._process.send(*self._process.writer.ask(ask))

    def _heed(self, process: StartedEngine) -> str:
        """Process the received frames; returns why one cannot be read, which a model's code may cause."""
        try:
            while process.inbox:
                self._take(*process.inbox.popleft())
        except Exception as error:
            log.exception("a frame of the engine of %s", self.group)
            return f"its process sent what cannot be read: {type(error).__name__}: {error}"
        return ""

    def _take(self, header: Header, buffers: list[memoryview]) -> None:
        process = self._process
        assert process is not None
        self._heard_at = self._time()
        op = header["op"]
        if op == "answer":
            self._answered(process.reader.answer(header, buffers))
        elif op == "loading":
            self._loading = header["name"][0], header["name"][1]
        elif op == "loaded":
            self._loaded((header["name"][0], header["name"][1]), header["failure"])
        elif op == "stats":
            process.tell({name: value for name, value in header.items() if name not in ("op", "sizes")})
            self._sum_up(process)
        elif op == "hello":
            process.is_up, self._bad_starts = True, 0

    def _loaded(self, name: Name, failure: str) -> None:
        self._load_at, self._loading = self._time(), None
        with contextlib.suppress(ValueError):
            self._to_load.remove(name)
        if name not in self._makings:
            if self._process is not None:
                self._process.send({"op": "unload", "name": name})  # it could not be before
        else:
            if failure:
                self._give_up(name, failure)
            elif name not in self._known:
                self._known.add(name)
                self._events.append(VersionLoad(name))
        if not self._to_load and self._alone is None:
            self._ask_next()  # what was not answered before, then what came since

    def _answered(self, answer: AskAnswer) -> None:
        opened = self._asks.get(answer.number)
        if opened is None or answer.version not in opened.left:
            return
        self._events.append(answer)
        self._shots = 0
        opened.left.discard(answer.version)
        if not opened.left:
            del self._asks[answer.number]
        if self._alone == (answer.number, answer.version):
            self._alone = None
            self._ask_next()

    # ---- when it hangs or ends -------------------------------------------------------------------------

    def _time(self) -> float:
        """Clock without the time in which the process had no processor."""
        starved = None if self._process is None else self._process.starved
        return self._clock() - self._starved_s - (0.0 if starved is None else starved.seconds)

    def _late(self) -> str | None:
        """Task past its deadline, or None."""
        starved = None if self._process is None else self._process.starved
        if starved is not None:
            starved.look()
        found = self._lateness()
        if found is not None and starved is not None:
            starved.look(at_once=True)
            found = self._lateness()
        return found

    def _lateness(self) -> str | None:
        process = self._process
        assert process is not None
        now = self._time()
        self._follow_work(process.board, now)
        if not process.is_up:
            is_late = now - self._heard_at > START_DEADLINE_S
            return f"its process did not start within {START_DEADLINE_S:g} s" if is_late else None
        if self._is_held_up(now):
            return "a version that is not wanted any more holds it up"
        if self._to_load and now - self._load_at > LOAD_DEADLINE_S:
            return f"loading takes longer than {LOAD_DEADLINE_S:g} s"
        heard = max(self._heard_at, self._step_at)
        for opened in self._asks.values():
            limit = self._limit_s(opened.ask.model)
            is_asked = self._alone is None or self._alone[0] == opened.ask.number
            if is_asked and not self._is_reloading and now - max(opened.since, heard) > limit:
                return f"{LATE} {limit:g} s"
        return None

    def _follow_work(self, board: WorkBoard, now: float) -> None:
        """Note a step of work that has ended, and how long it took."""
        if (steps := board.steps) == self._steps:
            return
        for name in self._at_work:
            self._slowest[name] = max(self._slowest.get(name, 0.0), now - self._step_at)
        self._steps, self._at_work, self._step_at = steps, board.names, now

    def _limit_s(self, model: str) -> float:
        """Seconds for one step of work: more for a version asked alone, or slower before."""
        deadline = self._deadline_s(model) * (ALONE_TIMES if self._parts and self._alone is not None else 1.0)
        slowest = max((self._slowest.get(name, 0.0) for name in self._at_work), default=0.0)
        return min(max(deadline, SLOW_TIMES * slowest), max(deadline, MOST_TIMES * self._deadline_s(model)))

    def _is_held_up(self, now: float) -> bool:
        """True where work or loading of removed versions holds up the others."""
        if self._at_work and not any(name in self._makings for name in self._at_work):
            usual = max((self._slowest.get(name, 0.0) for name in self._at_work), default=0.0)
            return now - self._step_at > max(GONE_S, 2 * usual)
        is_gone = self._loading is not None and self._loading not in self._makings
        return is_gone and now - self._load_at > GONE_LOAD_S

    def _is_coming(self, ask: Ask) -> bool:
        """True where a version of an ask is loaded for the first time here."""
        return any((ask.model, version) in self._to_load for version in ask.versions)

    @property
    def _is_reloading(self) -> bool:
        """True where versions of open asks have to be loaded first."""
        return any(name in self._known for name in self._to_load)

    def _end(self, why: Literal["deadline", "died", "memory"], reason: str) -> None:
        """Kill the process, note the culprit where known, and prepare to ask again."""
        process = self._process
        assert process is not None
        self._sum_up(process)
        is_shot = why == "died" and process.is_gone and process.child.is_shot()
        names = process.board.names
        process.kill()
        self._peak, self._starved_s = self.peak_bytes, self._clock() - self._time()
        self._process = None
        self.restarts[why] += 1
        lived_s = self._clock() - process.began
        self._bad_starts = 0 if lived_s > STABLE_S else self._bad_starts + 1
        self._due = self._clock() + PAUSES_S[min(self._bad_starts, len(PAUSES_S) - 1)]
        log.warning("the engine of %s is started again: %s", self.group, reason)
        if is_shot and process.is_up:
            self._shot(reason)
        elif not process.is_up:
            self._not_started(reason)
        else:
            self._lay(names, reason)
        if is_shot and self._shots < SHOTS:
            self._ask_whole(keep=None)
        else:
            self._split()

    def _lay(self, names: Sequence[Name], reason: str) -> None:
        """Blame a version for the end of a process where it alone can have caused it; ``names``
        were at work."""
        at_work = [name for name in dict.fromkeys(names) if name in self._makings]
        if self._alone is not None:
            self._blame(*self._alone, reason)
        elif self._to_load and (self._is_reloading or not self._asks):
            loading = self._loading or self._to_load[0]
            if loading in self._makings:
                self._give_up(loading, f"loading it ended its process: {reason}", is_end=True)
        elif self._to_load:
            # Either of both may have done it: first those that answered before, then what is new.
            new = [name for name in self._to_load if name not in self._known]
            self._later += [name for name in new if name not in self._later]
            self._to_load = deque(name for name in self._to_load if name in self._known)
        elif names and len(at_work) < 2:
            suspect = at_work[0] if at_work else None
            self._ask_whole(keep=suspect)
            if suspect is not None:
                self._events.append(Ended(suspect, reason, is_alone=False))
                self._part(suspect, reason)
        else:
            self._together = {*at_work}

    def _shot(self, reason: str) -> None:
        """Handle a kill from outside: after repeated ones, what is asked alone goes without an answer."""
        self._shots += 1
        if self._alone is None:
            return
        (number, version), self._alone = self._alone, None
        if self._shots < 2 * SHOTS:
            self._apart.appendleft((number, version))
        else:
            self._fail(self._asks[number], version, reason)

    def _ask_whole(self, *, keep: Name | None) -> None:
        """Ask the open asks again as they were, except what goes to a suspect."""
        again = []
        for number, opened in list(self._asks.items()):
            self._drop_again(opened)
            apart = {version for one, version in self._apart if one == number}
            kept = {keep[1]} if keep is not None and opened.ask.model == keep[0] else set()
            versions = tuple(v for v in opened.ask.versions if v in opened.left - apart - kept)
            if versions:
                again.append(replace(opened.ask, versions=versions, again=()))
                opened.left -= {*versions}
            if not opened.left:
                self._asks.pop(number, None)
        self._held = again + self._held

    def _part(self, name: Name, reason: str) -> None:
        """Move a version out of a shared process, with its open asks."""
        if not self._parts or len(self._makings) < 2:
            return
        asks = []
        for number, opened in list(self._asks.items()):
            if opened.ask.model == name[0] and name[1] in opened.left:
                asks.append(replace(opened.ask, versions=(name[1],), again=()))
                self._drop_again(opened)
                opened.left.discard(name[1])
                if not opened.left:
                    del self._asks[number]
        held, self._held = self._held, []
        for ask in held:
            versions = tuple(v for v in ask.versions if (ask.model, v) != name)
            if len(versions) < len(ask.versions):
                asks.append(replace(ask, versions=(name[1],)))
            if versions:
                self._held.append(replace(ask, versions=versions))
        numbers = {ask.number for ask in asks}
        self._apart = deque(one for one in self._apart if not (one[1] == name[1] and one[0] in numbers))
        self._forget(name, reason)
        self._events.append(Parted(name, reason, tuple(asks)))

    def _not_started(self, reason: str) -> None:
        if self._bad_starts >= STARTS:
            for name in list(self._makings):
                self._give_up(name, reason)

    def _give_up(self, name: Name, reason: str, *, is_end: bool = False) -> None:
        self._forget(name, reason)
        self._events.append(VersionLoad(name, reason, is_end=is_end))

    def _forget(self, name: Name, reason: str) -> None:
        self._makings.pop(name, None)
        self._known.discard(name)
        for waiting in (self._to_load, self._later):
            with contextlib.suppress(ValueError):
                waiting.remove(name)
        for opened in list(self._asks.values()):
            if opened.ask.model == name[0] and name[1] in opened.left:
                self._fail(opened, name[1], reason)
        if not self._makings:
            self._release()

    def _fail(self, opened: Open, version: str, reason: str) -> None:
        ask = opened.ask
        for left in (version, again_of(version)):
            if left in opened.left:
                opened.left.discard(left)
                self._events.append(AskAnswer(ask.number, left, None, failure=reason))
        if not opened.left:
            self._asks.pop(ask.number, None)
        if self._alone == (ask.number, version):
            self._alone = None
            if self._process is not None:
                self._ask_next()

    def _blame(self, number: int, version: str, reason: str) -> None:
        """Blame a version that was asked alone."""
        opened = self._asks[number]
        name = opened.ask.model, version
        if name in self._together:  # so it was its doing before, too
            self._together.discard(name)
            self._events.append(Ended(name, reason, is_alone=False))
        self._events.append(Ended(name, reason))
        self._fail(opened, version, reason)
        self._part(name, reason)

    def _split(self) -> None:
        """Ask everything open again, version by version."""
        for number, opened in list(self._asks.items()):
            self._drop_again(opened)
            if not opened.left:
                del self._asks[number]
            waiting = {version for one, version in self._apart if one == number}
            self._apart += [(number, v) for v in opened.ask.versions if v in opened.left - waiting]

    def _drop_again(self, opened: Open) -> None:
        """Drop second answers."""
        for again in sorted(left for left in opened.left if left.startswith(AGAIN)):
            opened.left.discard(again)
            self._events.append(AskAnswer(opened.ask.number, again, None, failure=AFTER_END))

    def _ask_next(self) -> None:
        """Ask the open asks one by one, then load what is new and resume."""
        while self._apart:
            number, version = self._apart.popleft()
            opened = self._asks.get(number)
            if opened is None or version not in opened.left:
                continue
            self._alone = (number, version)
            opened.since = self._time()
            self._send_ask(replace(opened.ask, versions=(version,), again=()))
            return
        later, self._later = self._later, deque()
        for name in later:
            self._begin_to_load(name, again=True)
        self._release()

    def _release(self) -> None:
        """Ask what was held back, or fail it without a version left to ask."""
        held, self._held = self._held, []
        for ask in held:
            if self._makings:
                self.submit(ask)
                continue
            opened = Open(ask, {*ask.answers}, 0.0)
            for version in ask.versions:
                self._fail(opened, version, f"{ask.model}@{version} is not loaded")

    def _sum_up(self, process: StartedEngine) -> None:
        for name, grown in process.growth().items():
            self.stats[name] = self.stats.get(name, 0.0) + grown
        self.stats |= process.levels()
