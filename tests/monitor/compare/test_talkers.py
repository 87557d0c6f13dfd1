"""Sampled texts: an equal talker is never called different, a planted fault is named by its measure."""

import json
import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.assertions.comparison.agreement import EVERYTHING
from outrider.monitor.compare.answers import Answers
from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.run import ComparisonRun, drive
from tests.soak import rounds

ENGLISH = (
    "the of and to in is that it was for on are with as his they be at one have this from or had by word but "
    "what some we can out other were all there when up use your how said an each she which do their time"
)
GERMAN = (
    "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus "
    "er hat dass sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder"
)
REFUSAL = "I'm sorry, but I can't assist with that request."


class Talker:
    """Sampled talker: random words and lengths, refusals, calls of a tool, and one fault."""

    def __init__(self, name: str, seed: int, fault: str = "") -> None:
        self.name = name
        self.retries = 0
        self.borrowed: Counter[str] = Counter()
        self._random, self._fault = np.random.default_rng(seed), fault

    def ask(self, questions: Batch, /) -> Answers:
        said = [self._answer(int(x)) for x in questions.column("attrs.x")]
        texts, calls = (list(each) for each in zip(*said, strict=True))
        columns = {"id": questions.keys, "outputs.text": texts}
        if self._fault != "no column":
            columns["outputs.tool_calls"] = calls
        return Answers.recorded(Batch.from_columns(columns, model="m", rows=questions.rows))

    def close(self) -> None:
        """Nothing is held."""

    def _answer(self, x: int) -> tuple[str, str]:
        refuses = self._random.random() < 0.05 or (self._fault == "refusal" and x % 12 == 0)
        if refuses:
            return REFUSAL, "[]"
        words = int(self._random.integers(8, 40)) * (2 if self._fault == "length" else 1)
        known = GERMAN if self._fault == "language" else ENGLISH
        text = " ".join(self._random.choice(known.split(), words))
        if self._fault == "structure":
            text = json.dumps({"answer": text})
        if x % 10 != 3 or self._random.random() < 0.3:
            return text, "[]"
        tool = "lookup" if self._fault == "tools" else "find"
        given = {"query": x + 1 if self._fault == "arguments" else x}
        return text, json.dumps([{"name": tool, "arguments": given}])


def traffic(rows: int) -> Iterator[Batch]:
    for start in range(0, rows, 500):
        x = np.arange(start, min(start + 500, rows))
        columns = {"id": x.astype(str), "inputs.request": ['{"messages":[]}'] * len(x), "attrs.x": x}
        yield Batch.from_columns(columns, model="m", rows=len(x))


def compared(fault: str, seed: int, rows: int) -> ComparisonRun:
    """Looks after each block, until decided."""
    talkers = Talker("production", 2 * seed), [Talker("candidate", 2 * seed + 1, fault)]
    run = ComparisonRun(*talkers, ComparePlan(seed=seed))
    drive(run, traffic(rows), Until(), stop=threading.Event(), tell=lambda _: None)
    run.close()
    return run


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
@pytest.mark.parametrize("fault", ["refusal", "length", "language", "structure", "tools", "arguments"])
def test_a_planted_difference_is_found_and_named(fault: str) -> None:
    result = compared(fault, 3, 10_000).results[0]
    assert result.conclusion.word == "different"
    assert fault in result.conclusion.sentence


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_an_equal_talker_is_not_called_different() -> None:
    runs = rounds(50, part=50)
    words = Counter(compared("", 100 + at, 2000).results[0].conclusion.word for at in range(runs))
    assert words["different"] + words["worse"] + words["better"] <= (1 if runs == 50 else 0)


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_a_side_without_calls_of_tools_calls_none() -> None:
    found = compared("no column", 3, 500).results[0].comparison.tallies["tools", EVERYTHING]
    assert 0.03 < found.differs.rate < 0.12
    assert found.challenger_noise.rate == 0.0
