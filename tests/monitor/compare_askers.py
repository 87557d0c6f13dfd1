"""Systems that answer in this process, with noise and faults of one's own."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from outrider.assertions import Batch
from outrider.monitor.compare.answers import Answers

CLASSES = 7


class Sampled:
    """Classifier that answers ``x % 7``, but wrongly on a fixed share of inputs and at random on another.

    Parameters
    ----------
    wrong
        Share of inputs that it always answers otherwise.
    noise
        Share of questions that it answers by chance.
    silent
        Share of questions that it leaves unanswered.
    """

    def __init__(
        self, name: str, *, wrong: float = 0.0, noise: float = 0.0, silent: float = 0.0, seed: int = 0
    ) -> None:
        self.name = name
        self.asked: list[str] = []
        self.is_closed = False
        self.retries = 0
        self.borrowed: Counter[str] = Counter()
        self.is_cached = False
        self._wrong, self._noise, self._silent = wrong, noise, silent
        self._random = np.random.default_rng(seed)

    def ask(self, questions: Batch, /) -> Answers:
        rows, x = questions.rows, questions.column("inputs.x")
        self.asked += questions.keys.tolist()
        is_wrong = (x * 2654435761 % 1000) < 1000 * self._wrong
        label = np.where(is_wrong, x + 1, x) % CLASSES
        by_chance = self._random.random(rows) < self._noise
        label = np.where(by_chance, self._random.integers(0, CLASSES, rows), label)
        is_silent = self._random.random(rows) < self._silent
        said = [None if no else f"class {one}" for one, no in zip(label, is_silent, strict=True)]
        return Answers(
            Batch.from_columns({"id": questions.keys, "outputs.label": said}, model="m", rows=rows),
            np.where(is_silent, "late", "answered").astype(object),
            np.where(is_silent, "no answer within 1 s", "").astype(object),
            np.full(rows, 0.01),
            np.full((rows, 2), [10, 2]),
            np.full(rows, self.is_cached),
        )

    def close(self) -> None:
        self.is_closed = True


def traffic(rows: int = 20_000, block: int = 1000) -> Iterator[Batch]:
    """Questions with a column ``x`` that counts, and a country."""
    for start in range(0, rows, block):
        x = np.arange(start, min(start + block, rows))
        country = np.where(x % 20 == 0, "IS", "DE").astype(object)
        columns = {"id": x.astype(str), "inputs.x": x, "attrs.country": country}
        yield Batch.from_columns(columns, model="m", rows=len(x))
