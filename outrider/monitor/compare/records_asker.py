"""Asker of V2 tensors and V1 instances."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.dataops.model_kinds.open_inference import V2Tensors
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.state.in_threads import in_threads
from outrider.errors import ConfigError

from .answers import Answers, Fate, GatheredAnswers
from .exchange import AskedServer
from .questions import REQUEST

ALONE, BLOCK = 32, 64
"""Questions of a round that are asked one by one, for their latency, and those of the other blocks."""


class RecordForm(Protocol):
    """Form in which records travel."""

    def encode(self, batch: Batch, /) -> dict[str, Any]:
        """Body for some records."""

    def decode(self, body: Mapping[str, Any], rows: int, /) -> Mapping[str, NDArray[Any]]:
        """Answers by name; ValueError for a body of another form."""


class V2Records:
    """Records as tensors of the Open Inference Protocol."""

    def __init__(self, url: str) -> None:
        self._form = V2Tensors(Source("endpoint", url, task="other"))

    def encode(self, batch: Batch, /) -> dict[str, Any]:
        """Body for some records."""
        return {"inputs": self._form.encode(batch)}

    def decode(self, body: Mapping[str, Any], rows: int, /) -> Mapping[str, NDArray[Any]]:
        """Answers by name of the tensor."""
        return self._form.decode(body, rows)


class V1Records:
    """Records as ``instances``, answered by ``predictions``."""

    def encode(self, batch: Batch, /) -> dict[str, Any]:
        """Body for some records."""
        return {"instances": [record.get("inputs", {}) for record in batch.to_records()]}

    def decode(self, body: Mapping[str, Any], rows: int, /) -> Mapping[str, NDArray[Any]]:
        """Answers by name; bare ones are the ``label``."""
        listed = body.get("predictions")
        if not isinstance(listed, list) or len(listed) != rows:
            raise ValueError(f"predictions with {rows} entries expected, got {str(body)[:120]}")
        entries = [entry if isinstance(entry, Mapping) else {"label": entry} for entry in listed]
        names = dict.fromkeys(name for entry in entries for name in entry)
        return {name: _array([entry.get(name) for entry in entries]) for name in names}


@dataclass(frozen=True, slots=True)
class _Block:
    rows: Sequence[int]
    batch: Batch


class RecordsAsker:
    """Asker of a V2 or V1 server, by inputs of records."""

    def __init__(
        self, name: str, url: str, server: AskedServer, form: RecordForm, *, parallel: int = 4
    ) -> None:
        self.name = name
        self.borrowed: Counter[str] = Counter()
        self._url, self._server, self._form, self._parallel = url, server, form, parallel

    @property
    def retries(self) -> int:
        """Questions asked a second time at the server's request."""
        return self._server.retries

    def ask(self, questions: Batch, /) -> Answers:
        """Answers to all questions.

        Raises
        ------
        ConfigError
            If the questions are requests of completions.
        """
        if questions.has(REQUEST):
            raise ConfigError(
                f"{self.name} takes records of fields, but the traffic holds completions: name an address "
                "that ends in /v1/chat/completions"
            )
        gathered = GatheredAnswers(questions)
        inputs = only_inputs(questions)
        blocks = [_Block([row], inputs.slice(row, 1)) for row in range(min(ALONE, questions.rows))]
        for start in range(ALONE, questions.rows, BLOCK):
            rows = range(start, min(start + BLOCK, questions.rows))
            blocks.append(_Block(rows, inputs.slice(start, len(rows))))
        in_threads(self._parallel, [partial(self._ask, block, gathered) for block in blocks])
        return gathered.answers()

    def close(self) -> None:
        """Leave connections to the client."""

    def _ask(self, block: _Block, into: GatheredAnswers) -> None:
        """Ask a block; its questions one by one where the block as a whole is refused."""
        try:
            body = msgspec.json.encode(self._form.encode(block.batch))
        except (ValueError, TypeError, KeyError) as error:
            self._apart(block, into, "unasked", str(error))
            return
        found = self._server.post(self._url, body, questions=len(block.rows))
        if found.fate in ("refused", "failed") and found.why.startswith("status"):
            self._apart(block, into, found.fate, found.why)
            return
        if found.fate != "answered":
            into.missing(block.rows, found.fate, found.why)
            return
        try:
            outputs = self._form.decode(_object(found.body), block.batch.rows)
        except (ValueError, TypeError, KeyError, msgspec.MsgspecError) as error:
            into.missing(block.rows, "unreadable", str(error)[:200])
            return
        into.answered(block.rows, outputs, latency_s=found.latency_s, is_cached=found.is_cached)

    def _apart(self, block: _Block, into: GatheredAnswers, fate: Fate, why: str) -> None:
        """Ask the questions of a block one by one, or note why a single one has no answer."""
        if len(block.rows) == 1:
            into.missing(block.rows, fate, why)
            return
        for at, row in enumerate(block.rows):
            self._ask(_Block([row], block.batch.slice(at, 1)), into)


def only_inputs(questions: Batch) -> Batch:
    """Questions without recorded answers and labels."""
    kept = [n for n in questions.names if not n.startswith(("outputs.", "label."))]
    if len(kept) == len(questions.names):
        return questions
    return Batch.from_arrow(questions.to_arrow().select(kept), model=questions.model)


def _object(body: bytes) -> Mapping[str, Any]:
    found = msgspec.json.decode(body)
    if not isinstance(found, Mapping):
        raise ValueError(f"a JSON object expected, got {type(found).__name__}")
    return found


def _array(values: list[Any]) -> NDArray[Any]:
    if any(isinstance(value, str) or value is None for value in values):
        return np.array(values, dtype=object)
    return np.array(values)
