"""An engine in a process of its own: what it is asked is answered once, whatever the models do."""

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from safetensors.torch import save

from outrider.assertions import Batch
from outrider.dataops.model_kinds.source import Source
from outrider.monitor.engine.asks import Ask, AskAnswer, again_of
from outrider.monitor.engine.client import EngineClient, Making
from outrider.monitor.engine.events import Ended, EngineEvent, Parted, VersionLoad
from outrider.monitor.engine.launch import Launch
from tests.forked import LightPopen
from tests.soak import PATIENCE_S

DEADLINE_S = 2.0
MODELS = """
import os
import time

import numpy as np


def good(batch):
    x = batch.column("inputs.x")
    who = ["good" if v < 5 else None for v in x.tolist()]
    return {"value": x * 2, "who": who, "pair": np.stack([x, -x], 1)}


def twin(batch):
    return {"value": batch.column("inputs.x") * 3}


def hangs(batch):
    while (batch.column("inputs.x") == 13).any():
        time.sleep(0.05)
    return twin(batch)


def dies(batch):
    if (batch.column("inputs.x") == 13).any():
        os._exit(3)
    return twin(batch)


def slow(batch):
    time.sleep(60)


def takes_its_time(batch):
    time.sleep(0.4)
    return twin(batch)


def no_memory(batch):
    raise MemoryError("a terabyte")


def lags(batch):
    time.sleep(2.8)
    return twin(batch)


KEPT = []


def big(batch):
    for _ in range(40):  # never much at once
        KEPT.append(np.ones(2_500_000))
        time.sleep(0.06)  # 100 MB, to the limit beyond the bound, take longer than between two looks
    time.sleep(60)


def asks(batch):
    np.ones(250_000_000)
    return twin(batch)


def nan(batch):
    return {"value": batch.column("inputs.x") * np.nan}


def forges(batch):
    import socket
    import sys

    from outrider.monitor.process import wire

    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    wire.send(socket.socket(fileno=os.dup(fd)), {"op": "answer", "number": 1})
    return twin(batch)


def short(batch):
    return {"value": [1.0, 2.0, 3.0]}
"""
BROKEN = "import os\nos._exit(7)\n\n\ndef model(batch):\n    return {}\n"
PATIENT = "import time\ntime.sleep(2)\n\n\ndef model(batch):\n    return {}\n"
BROKEN_LATE = BROKEN.replace("os._exit", "import time\ntime.sleep(0.5)\nos._exit")
NET = """
import time

import torch


def build():
    time.sleep(0.5)
    return torch.nn.Linear(1, 2)
"""


def rows(*values: float) -> Batch:
    return Batch.from_columns({"inputs.x": np.array(values)}, model="m")


def making(name: str) -> Making:
    return Making(Source("function", f"models.py:{name}"))


def net(folder: Path) -> Making:
    content = save({"weight": torch.ones(2, 1), "bias": torch.zeros(2)})
    weights = folder / hashlib.sha256(content).hexdigest()
    weights.write_bytes(content)
    return Making(Source("torch", "net.py:build", inputs=("x",), classes=("a", "b")), weights)


class Bench:
    """A client, and everything that it told."""

    def __init__(self, folder: Path, *, bound: int | None = None, parts: bool = False) -> None:
        (folder / "models.py").write_text(MODELS, encoding="utf-8")
        (folder / "broken.py").write_text(BROKEN, encoding="utf-8")
        (folder / "late.py").write_text(BROKEN_LATE, encoding="utf-8")
        (folder / "patient.py").write_text(PATIENT, encoding="utf-8")
        (folder / "net.py").write_text(NET, encoding="utf-8")
        self.folder = folder
        self.woken = Event()
        self.client = EngineClient(
            "m@1",
            Launch(folder, popen=LightPopen),
            deadline_s=lambda _: DEADLINE_S,
            wake=self.woken.set,
            bound=lambda: bound,
            parts=parts,
        )
        self.news: list[EngineEvent] = []
        self.asked = 0

    def ask(self, batch: Batch, *versions: str, again: tuple[int, ...] = ()) -> int:
        self.asked += 1
        self.client.submit(Ask(self.asked, "m", versions, batch, again=again))
        return self.asked

    def until(self, is_done: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_done():
            assert time.monotonic() < deadline, self.news
            self.woken.clear()
            self.news += self.client.poll()
            self.woken.wait(0.02)

    def answer(self, number: int, version: str) -> AskAnswer:
        def found() -> list[AskAnswer]:
            return [
                one
                for one in self.news
                if isinstance(one, AskAnswer) and (one.number, one.version) == (number, version)
            ]

        self.until(lambda: bool(found()))
        assert len(found()) == 1
        return found()[0]

    def values(self, number: int, version: str) -> list[float]:
        outputs = self.answer(number, version).outputs
        assert outputs is not None
        return list(outputs["value"].tolist())

    def shoot(self, times: int) -> None:
        """Kill the process from outside in the middle of work, as a kernel short of memory does."""
        for _ in range(times):
            self.until(lambda: bool((own := self.client._process) and own.board.names))
            died, pid = self.client.restarts["died"], self.client.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            self.until(self.has_died_more_than(died))

    def has_died_more_than(self, times: int) -> Callable[[], bool]:
        return lambda: self.client.restarts["died"] > times

    def load(self, **names: str) -> None:
        for version, name in names.items():
            self.client.load(("m", version), making(name))
        self.until(lambda: {one.name[1] for one in self.news if isinstance(one, VersionLoad)} >= names.keys())


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.client.stop()


def test_versions_answer_together_and_again_with_every_type_that_a_model_may_answer(bench: Bench) -> None:
    bench.load(v1="good", v2="twin")
    number = bench.ask(rows(1, 2, 7), "v1", "v2", again=(0, 2))
    outputs = bench.answer(number, "v1").outputs
    assert outputs is not None
    assert outputs["value"].tolist() == [2, 4, 14]
    assert outputs["who"].tolist() == ["good", "good", None]
    assert outputs["pair"].tolist() == [[1, -1], [2, -2], [7, -7]]
    assert bench.values(number, "v2") == [3, 6, 21]
    assert bench.values(number, again_of("v1")) == [2, 14]
    assert bench.values(number, again_of("v2")) == [3, 21]
    bench.until(lambda: bench.client.stats.get("answers", 0) >= 4)
    assert bench.client.stats["rows"] == 10
    assert bench.client.waiting_rows == 0


@pytest.mark.costly("something is killed at each of many places, and begun again")
@pytest.mark.parametrize("bad", ["hangs", "dies"])
def test_who_holds_up_or_ends_the_process_is_found_out_and_the_others_are_answered_once(
    bench: Bench, bad: str
) -> None:
    bench.load(v1="good", bad=bad)
    first = bench.client.pid
    numbers = [bench.ask(rows(n, 13), "v1", "bad") for n in range(2)]
    well = bench.ask(rows(1, 2), "bad", "v1")
    assert [bench.values(number, "v1") for number in numbers] == [[0, 26], [2, 26]]
    assert bench.values(well, "bad") == [3, 6]
    assert bench.values(well, "v1") == [2, 4]
    reason = "no answer within 2 s" if bad == "hangs" else "its process ended: exit code 3"
    assert [bench.answer(number, "bad").failure for number in numbers] == [reason] * 2
    assert [one for one in bench.news if isinstance(one, Ended)] == [
        Ended(("m", "bad"), reason, is_alone=False), *[Ended(("m", "bad"), reason)] * 2,
    ]  # fmt: skip
    assert bench.client.restarts == {
        "deadline": 3 * (bad == "hangs"), "died": 3 * (bad == "dies"), "memory": 0,
    }  # fmt: skip
    assert bench.client.pid != first
    assert sum(isinstance(one, VersionLoad) for one in bench.news) == 2  # restarts are no news


def test_what_is_asked_while_a_process_is_started_again_is_answered_behind_it(bench: Bench) -> None:
    bench.load(v1="good", bad="dies")
    bench.ask(rows(13), "bad")
    bench.until(lambda: bench.client.restarts["died"] == 1)
    assert bench.values(bench.ask(rows(4), "v1"), "v1") == [8]
    bench.client.unload(("m", "bad"))
    late = bench.ask(rows(4), "v1", "bad")
    assert bench.values(late, "v1") == [8]
    assert bench.answer(late, "bad").failure == "m@bad is not loaded"


def test_a_file_that_ends_the_process_or_does_not_exist_costs_nobody_else_anything(bench: Bench) -> None:
    bench.load(v1="good")
    bench.client.load(("m", "v2"), Making(Source("function", "broken.py:model")))
    bench.client.load(("m", "v3"), Making(Source("function", "nothing.py:model")))
    bench.until(lambda: sum(isinstance(one, VersionLoad) for one in bench.news) == 3)
    failures = {one.name[1]: one.failure for one in bench.news if isinstance(one, VersionLoad)}
    assert failures["v1"] == ""
    assert failures["v2"] == "loading it ended its process: its process ended: exit code 7"
    assert "nothing.py" in failures["v3"]
    assert bench.values(bench.ask(rows(4), "v1"), "v1") == [8]


def test_what_a_version_does_that_is_not_wanted_any_more_is_not_laid_to_the_next(bench: Bench) -> None:
    bench.load(v1="good")
    bench.client.load(("m", "v2"), Making(Source("function", "late.py:model")))
    bench.client.unload(("m", "v2"))
    bench.load(v3="twin")
    assert [one.failure for one in bench.news if isinstance(one, VersionLoad)] == ["", ""]
    assert bench.client.restarts["died"] == 1
    assert bench.values(bench.ask(rows(4), "v1", "v3"), "v3") == [12]


def test_what_is_loaded_while_one_is_asked_alone_is_not_laid_to_that_one(bench: Bench) -> None:
    bench.load(v1="takes_its_time")
    number = bench.ask(rows(13), "v1")
    bench.shoot(3)
    bench.until(lambda: bench.client._alone == (number, "v1"))
    bench.client.load(("m", "v2"), Making(Source("function", "broken.py:model")))
    assert bench.values(number, "v1") == [39]
    bench.until(lambda: sum(isinstance(one, VersionLoad) for one in bench.news) == 2)
    assert not any(isinstance(one, Ended) for one in bench.news)
    failures = {one.name[1]: one.failure for one in bench.news if isinstance(one, VersionLoad)}
    assert failures["v2"].startswith("loading it ended its process")


def test_what_waits_to_be_loaded_is_loaded_though_all_that_answered_have_gone(bench: Bench) -> None:
    bench.load(v1="slow")
    bench.ask(rows(4), "v1")
    bench.client.load(("m", "v2"), Making(Source("function", "patient.py:model")))
    bench.until(lambda: bench.client.pid is None)
    bench.client.unload(("m", "v1"))
    bench.until(lambda: VersionLoad(("m", "v2")) in bench.news)


def test_versions_of_several_kinds_answer_one_ask(bench: Bench) -> None:
    bench.load(v1="good")
    bench.client.load(("m", "v2"), net(bench.folder))
    bench.until(lambda: VersionLoad(("m", "v2")) in bench.news)
    number = bench.ask(rows(4, 5), "v2", "v1", again=(1,))
    assert bench.values(number, "v1") == [8, 10]
    assert bench.answer(number, "v2").failure == bench.answer(number, again_of("v2")).failure == ""
    assert bench.values(number, again_of("v1")) == [10]
    number = bench.ask(rows(4, 5), "v1", "v2", again=(0, 1))
    assert bench.values(number, "v1") == bench.values(number, again_of("v1")) == [8, 10]
    assert bench.answer(number, "v2").failure == ""


def test_a_version_that_goes_while_it_is_loaded_leaves_nothing_in_memory(bench: Bench) -> None:
    bench.load(v1="good")
    bench.client.load(("m", "v2"), net(bench.folder))
    bench.client.unload(("m", "v2"))
    bench.load(v3="twin")
    bench.until(lambda: bench.client.stats.get("answers", 0) >= 2)
    assert bench.values(bench.ask(rows(4), "v3"), "v3") == [12]
    bench.until(lambda: bench.client.stats["answers"] >= 4)
    assert bench.client.stats["bytes"] == 0


def test_who_forges_frames_loses_its_own_answers(bench: Bench) -> None:
    bench.load(v1="good", bad="forges")
    number = bench.ask(rows(1, 2), "bad", "v1")
    assert bench.values(number, "v1") == [2, 4]
    assert "cannot be read" in bench.answer(number, "bad").failure


def test_the_last_version_takes_its_open_asks_with_it(bench: Bench) -> None:
    bench.load(v1="slow")
    number = bench.ask(rows(1), "v1", again=(0,))
    bench.client.unload(("m", "v1"))
    assert bench.answer(number, "v1").failure == "m@v1 is disabled"
    assert bench.answer(number, again_of("v1")).outputs is None
    assert bench.client.names == []


def test_what_raises_or_answers_nonsense_fails_by_itself(bench: Bench) -> None:
    bench.load(v1="good", no_memory="no_memory", nan="nan", short="short")
    number = bench.ask(rows(1, 2), "v1", "no_memory", "nan", "short")
    assert bench.values(number, "v1") == [2, 4]
    for version, said in (("no_memory", "a terabyte"), ("nan", "finite"), ("short", "got shape (3,)")):
        assert said in bench.answer(number, version).failure
    assert bench.client.restarts == {"deadline": 0, "died": 0, "memory": 0}


def test_version_that_a_kill_from_outside_met_is_to_blame_for_nothing_and_answers(bench: Bench) -> None:
    bench.load(v1="takes_its_time", v2="twin")
    number = bench.ask(rows(1, 2), "v1", "v2")
    bench.shoot(2)
    assert bench.values(number, "v1") == bench.values(number, "v2") == [3, 6]
    assert not any(isinstance(one, Ended) for one in bench.news)


def test_version_whose_memory_exceeds_the_bound_is_to_blame_and_the_other_answers(tmp_path: Path) -> None:
    bench = Bench(tmp_path, bound=400_000_000)
    try:
        bench.load(v1="good", big="big", asks="asks")
        number = bench.ask(rows(13), "v1", "big")
        assert bench.values(number, "v1") == [26]
        assert "more than 400 MB" in bench.answer(number, "big").failure
        assert [(one.name[1], one.is_alone) for one in bench.news if isinstance(one, Ended)] == [
            ("big", False), ("big", True),
        ]  # fmt: skip
        assert bench.client.restarts["memory"] == 2
        number = bench.ask(rows(13), "v1", "asks")
        assert bench.values(number, "v1") == [26]
        assert "Unable to allocate" in bench.answer(number, "asks").failure
    finally:
        bench.client.stop()


def test_hang_of_a_version_that_has_gone_holds_nobody_up(bench: Bench) -> None:
    bench.load(v1="good", bad="hangs")
    bench.ask(rows(13), "bad")
    bench.until(lambda: bool((own := bench.client._process) and own.board.names))
    bench.client.unload(("m", "bad"))
    assert bench.values(bench.ask(rows(4), "v1"), "v1") == [8]
    assert not any(isinstance(one, Ended) for one in bench.news)


def test_suspect_leaves_a_shared_process_with_its_asks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, parts=True)
    try:
        bench.load(v1="good", bad="dies")
        numbers = [bench.ask(rows(n, 13), "v1", "bad") for n in range(2)]
        assert [bench.values(number, "v1") for number in numbers] == [[0, 26], [2, 26]]
        (parted,) = [one for one in bench.news if isinstance(one, Parted)]
        assert [(ask.number, ask.versions, ask.batch.rows) for ask in parted.asks] == [
            (number, ("bad",), 2) for number in numbers
        ]
        assert bench.client.names == [("m", "v1")]
        assert bench.client.restarts["died"] == 1
    finally:
        bench.client.stop()


def test_slow_version_that_answers_alone_is_known_as_slow_and_ends_no_process_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, parts=True)
    bench.load(v1="lags")
    for _ in range(2):
        assert bench.values(bench.ask(rows(1), "v1"), "v1") == [3]
    assert [one.is_alone for one in bench.news if isinstance(one, Ended)] == [False]
    assert bench.client.restarts["deadline"] == 1
    bench.client.stop()
