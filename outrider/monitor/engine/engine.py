"""Engine: a trunk group's versions on one device, in best batches.

Single-threaded, without timers or futures: a free device takes what is queued, up to the measured best batch.
Waiting for more never pays, because queues fill while a pass runs.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outrider.assertions import Batch
from outrider.dataops.model_kinds.loading import as_predictor, is_runner, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError

from .adapters.adapters import base_in_memory
from .asks import Ask, AskAnswer, Name, again_of
from .batching import AskPiece, Key
from .collect import Collect, Encoded, answers_of
from .device import CpuDevice, Device
from .executor import Executor, LoadedVersion
from .faults import Fault, fault_of
from .feeds import BatchFeed, Feed, Passing, TensorFeed
from .lane import EncodedAsk, Lane, LaneCounts, OnWork
from .on_device import OPTION, checks_of, watched
from .plan import Known, executors_of

NOT_LOADED = "not_loaded"
Plan = Callable[[Mapping[Name, LoadedVersion], Known], list[Executor]]
OnPass = Callable[[Sequence[Name], int], None]
"""Called with the versions and rows of every pass before it begins."""


@dataclass(frozen=True, slots=True)
class LaneStats:
    names: tuple[Name, ...]
    counts: LaneCounts


@dataclass(slots=True)
class _Open:
    lane: Lane
    members: tuple[LoadedVersion, ...]
    executor: Executor | None
    is_leaving: bool = False


class Engine:
    """Engine that loads versions and answers asks pass by pass.

    Parameters
    ----------
    device
        Where passes run; the processor by default.
    batch_rows
        Rows of a pass; None to measure what is best for each executor and length.

    Examples
    --------
    >>> import numpy as np
    >>> from outrider.monitor.engine.asks import Ask
    >>> from outrider.monitor.engine.executor import LoadedVersion
    >>> engine = Engine()
    >>> double = lambda batch: {"value": 2 * batch.column("inputs.x")}
    >>> engine.add(LoadedVersion(("m", "1"), Source("function", "double"), double))
    >>> engine.submit(Ask(1, "m", ("1",), Batch.from_columns({"inputs.x": np.arange(3.0)}, model="m")))
    >>> [answer.outputs["value"].tolist() for answer in engine.step()]
    [[0.0, 2.0, 4.0]]
    """

    def __init__(
        self,
        device: Device | None = None,
        *,
        batch_rows: int | None = None,
        on_pass: OnPass = lambda _names, _rows: None,
        on_work: OnWork = lambda _names: None,
        plan: Plan = executors_of,
    ) -> None:
        self.device = device or CpuDevice()
        self._batch_rows = batch_rows
        self._on_pass, self._on_work = on_pass, on_work
        self._executors_of = plan
        self._loaded: dict[Name, LoadedVersion] = {}
        self._lanes: list[_Open] = []
        self._of: dict[Name, Lane] = {}
        self._flights: deque[tuple[_Open, Passing, float]] = deque()
        self._collects: dict[int, Collect] = {}
        self._done: list[AskAnswer] = []
        self._arrivals = 0

    # ---- versions --------------------------------------------------------------------------------------

    @property
    def names(self) -> list[Name]:
        return list(self._loaded)

    def load(self, name: Name, source: Source, *, weights: Path | bytes | None, folder: Path) -> None:
        """Load a version; a former one of its name answers earlier asks.

        ConfigError where it cannot be loaded.
        """
        self.add(self.prepare(name, source, weights=weights, folder=folder))

    def prepare(
        self, name: Name, source: Source, *, weights: Path | bytes | None, folder: Path
    ) -> LoadedVersion:
        """Prepare a version for loading, in any thread: the long part."""
        base = base_in_memory(source, weights, list(self._loaded.values()))
        model = load_model(source, folder=folder, weights=weights, device=self.device.device, base=base)
        checks = checks_of(source, folder)
        if checks and not is_runner(model):
            raise ConfigError(f"{OPTION} is for models of tensors; one of kind {source.kind} has none here")
        return LoadedVersion(name, source, model, weights if isinstance(weights, Path) else None, checks)

    def add(self, loaded: LoadedVersion) -> None:
        model = loaded.model
        if is_runner(model):
            loaded = replace(loaded, model=self.device.adopt(model))
        self._loaded[loaded.name] = loaded
        self._plan()

    def unload(self, name: Name) -> None:
        if self._loaded.pop(name, None) is not None:
            self._plan()

    def warm_up(self, name: Name, sample: Batch) -> None:
        """Warm a version up on a sample for batch size, storing nothing; raises whatever the model raises."""
        lane = self._of[name]
        self._on_work([name])
        collect = Collect(-1, name, name[1], sample.rows, lane.feed.reader)
        (fed,) = lane.feed.encode([sample], name)
        if fed.encoded is None:
            raise RuntimeError(fed.failure)
        collect.begin(fed.encoded, list(fed.poison))
        self._land_all()
        for key, start, stop in fed.ranges:
            piece = AskPiece(fed.encoded, (collect,), start, stop, (0, 0), key)
            if lane.needs_measure(key):
                lane.measure(key, piece)
            for _, _, raw in lane.feed.run([piece]).land():
                if isinstance(raw, str):
                    raise RuntimeError(raw)
                collect.put(start, stop, raw)
        answer = collect.answer()
        if answer.failure:
            raise RuntimeError(answer.failure)
        self._warm_together(lane, name, fed.encoded, fed.ranges)

    def _warm_together(
        self, lane: Lane, name: Name, encoded: Encoded, ranges: Sequence[tuple[Key, int, int]]
    ) -> None:
        """Let versions of one trunk find out how they answer together; a model that raises does so
        in its pass."""
        if lane.feed.is_mixed or len(lane.feed.names) < 2:
            return
        rows = len(encoded.order)
        self._on_work(lane.feed.names)
        every = tuple(Collect(-1, one, name[1], rows, lane.feed.reader) for one in lane.feed.names)
        for key, start, stop in ranges[:1]:
            try:
                lane.feed.run([AskPiece(encoded, every, start, stop, (0, 0), key)]).land()
            except Exception as error:
                if fault_of(error) is Fault.DEVICE:
                    raise

    def _plan(self) -> None:
        """Decide again which versions run together; changed lanes finish their asks, then go."""
        kept: list[_Open] = []
        for planned in self._executors_of(self._loaded, self._known):
            executor = watched(planned, self._loaded)
            members = tuple(self._loaded[name] for name in executor.names)
            same = self._same(members)
            kept.append(same or _Open(self._lane(TensorFeed(executor, self.device)), members, executor))
        for loaded in self._loaded.values():
            if not is_runner(loaded.model):
                same = self._same((loaded,))
                feed = BatchFeed(loaded.name, as_predictor(loaded.model))
                kept.append(same or _Open(self._lane(feed), (loaded,), None))
        for opened in self._lanes:
            if all(opened is not other for other in kept):
                opened.is_leaving = True
                kept.append(opened)
        self._lanes = kept
        self._of = {
            name: opened.lane for opened in kept if not opened.is_leaving for name in opened.lane.feed.names
        }
        self._let_go()

    def _lane(self, feed: Feed) -> Lane:
        return Lane(feed, self._batch_rows, on_work=self._on_work)

    def _known(self, names: Sequence[Name]) -> Executor | None:
        same = self._same(tuple(self._loaded[name] for name in names))
        return None if same is None else same.executor

    def _same(self, members: tuple[LoadedVersion, ...]) -> _Open | None:
        for opened in self._lanes:
            if not opened.is_leaving and [*map(id, opened.members)] == [*map(id, members)]:
                return opened
        return None

    def _let_go(self) -> None:
        flying = [opened for opened, _, _ in self._flights]
        for opened in [o for o in self._lanes if o.is_leaving and o.lane.rank is None and o not in flying]:
            self._lanes.remove(opened)
            if opened.executor is not None:
                self.device.forget(opened.executor)

    # ---- asks ------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._collects) + len(self._done)

    @property
    def waiting_rows(self) -> int:
        """Waiting records, counted once per version."""
        return sum(collect.left for collect in self._collects.values())

    def submit(self, ask: Ask) -> None:
        """Queue records; versions not loaded answer in the next step."""
        self._arrivals += 1
        rank = (int(ask.priority), self._arrivals)
        wanted: dict[int, tuple[Lane, list[Collect]]] = {}
        for version in ask.versions:
            lane = self._of.get((ask.model, version))
            if lane is None or not ask.batch.rows:
                why = f"{NOT_LOADED}: {ask.model} {version}" if lane is None else "no records"
                names = (version, again_of(version)) if ask.again else (version,)
                self._done += [AskAnswer(ask.number, name, None, failure=why) for name in names]
                continue
            collect = self._collect(ask, version, lane)
            wanted.setdefault(id(lane), (lane, []))[1].append(collect)
        for lane, collects in wanted.values():
            fed_apart = [[one] for one in collects] if lane.feed.is_mixed else [collects]
            for together in fed_apart:
                lane.put(EncodedAsk(ask.batch, tuple(together), rank, ask.again))

    def _collect(self, ask: Ask, version: str, lane: Lane) -> Collect:
        name, reader = (ask.model, version), lane.feed.reader
        second = Collect(ask.number, name, again_of(version), len(ask.again), reader) if ask.again else None
        collect = Collect(ask.number, name, version, ask.batch.rows, reader, second)
        for one in (collect, second):
            if one is not None:
                self._collects[id(one)] = one
        return collect

    def cancel(self, number: int) -> None:
        for key, collect in list(self._collects.items()):
            if collect.number == number:
                collect.give_up("cancelled")
                del self._collects[key]
        self._done = [answer for answer in self._done if answer.number != number]

    @property
    def pause_s(self) -> float:
        return self.device.pause_s()

    def step(self) -> list[AskAnswer]:
        """Run one pass; returns the completed answers. Raises where the device itself is broken."""
        launched = self._launch()
        if self._flights and self.device.depth > 1:
            for opened in self._lanes:
                self._end(opened.lane.encode_ahead())  # while the device computes
        if self._flights and (len(self._flights) >= self.device.depth or not launched):
            self._land()
        if any(opened.is_leaving for opened in self._lanes):
            self._let_go()
        done, self._done = self._done, []
        return done

    def _launch(self) -> bool:
        """Begin a pass of the next lane; returns whether there is one."""
        if self.device.pause_s() > 0:
            return False
        opened = self._turn()
        if opened is None:
            return False
        lane = opened.lane
        self._end(lane.encode_ahead())
        key = lane.choose()
        if key is not None and lane.needs_measure(key):
            self._land_all()
            lane.measure(key)
        pieces = lane.take(key)
        if not pieces:
            return False
        names = _names_of(pieces)
        self._on_work(names)
        self._on_pass(names, sum(piece.rows * piece.repeats for piece in pieces))
        clock = self._clock(opened)
        began = clock()
        passing = lane.feed.run(pieces)
        self._flights.append((opened, passing, clock() - began))
        return True

    def _turn(self) -> _Open | None:
        ranked = [(rank, at) for at, o in enumerate(self._lanes) if (rank := o.lane.rank) is not None]
        return self._lanes[min(ranked)[1]] if ranked else None

    def _land_all(self) -> None:
        while self._flights:
            self._land()

    def _land(self) -> None:
        opened, passing, seconds = self._flights.popleft()
        lane = opened.lane
        self._on_work(_names_of(passing.pieces))
        clock = self._clock(opened)
        began = clock()
        try:
            found = passing.land()
        except Exception as error:
            fault = fault_of(error)
            if fault is Fault.DEVICE:
                raise
            blame = lane.out_of_memory if fault is Fault.MEMORY else lane.raised
            self._end(blame(passing.pieces, error))
        else:
            self._end(lane.landed(found, passing.pieces, seconds + clock() - began))

    def _clock(self, opened: _Open) -> Callable[[], float]:
        return time.perf_counter if opened.executor is None else lambda: self.device.busy_s

    def _end(self, collects: Sequence[Collect]) -> None:
        both = [one for collect in collects for one in (collect, collect.again) if one is not None]
        over = [one for one in both if one.is_over and self._collects.pop(id(one), None) is not None]
        for name in dict.fromkeys(one.name for one in over):
            self._on_work([name])
            self._done += answers_of([one for one in over if one.name == name])

    def forwards(self, names: Sequence[Name]) -> int:
        lane = self._of.get(names[0])
        return len(names) if lane is None else lane.feed.forwards(len(names))

    def best_rows(self, name: Name) -> dict[int, int]:
        paces = self._of[name].paces
        return {width: pace.best for (_, width), pace in paces.items() if pace is not None}

    @property
    def stats(self) -> list[LaneStats]:
        return [LaneStats(opened.lane.feed.names, opened.lane.counts) for opened in self._lanes]


def _names_of(pieces: Sequence[AskPiece]) -> list[Name]:
    return list({collect.name: None for piece in pieces for collect in piece.collects})
