"""Client of servers that take V2 tensors or V1 instances."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from outrider.assertions import Batch
from outrider.behavioral_tests.asking.records import RecordForm
from outrider.behavioral_tests.asking.server import Fate, ModelServer, in_threads, object_of
from outrider.errors import ConfigError

from .answers import Answers, GatheredAnswers
from .known_answers import is_cache_hit
from .questions import REQUEST

ALONE, BLOCK = 32, 64
"""Questions of a batch sent one by one to measure latency, and questions per request for the others."""


@dataclass(frozen=True, slots=True)
class _Block:
    rows: Sequence[int]
    batch: Batch


class RecordsAsker:
    """Client of a V2 or V1 server that sends the inputs of records."""

    def __init__(self, name: str, server: ModelServer, form: RecordForm, *, parallel: int = 4) -> None:
        self.name = name
        self.borrowed: Counter[str] = Counter()
        self._server, self._form, self._parallel = server, form, parallel

    @property
    def retries(self) -> int:
        return self._server.retries

    def ask(self, questions: Batch, /) -> Answers:
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

    def close(self) -> None: ...

    def _ask(self, block: _Block, into: GatheredAnswers) -> None:
        """Send a block; if it is refused or fails as a whole, send its questions one by one."""
        try:
            body = msgspec.json.encode(self._form.encode(block.batch))
        except (ValueError, TypeError, KeyError) as error:
            self._apart(block, into, "unasked", str(error))
            return
        found = self._server.post(body, questions=len(block.rows))
        if found.fate in ("refused", "failed") and found.status:
            self._apart(block, into, found.fate, found.why)
            return
        if found.fate != "answered":
            into.missing(block.rows, found.fate, found.why)
            return
        try:
            outputs = self._form.decode([object_of(found.body)], [block.batch.rows])
        except (ValueError, TypeError, KeyError) as error:
            into.missing(block.rows, "unreadable", str(error)[:200])
            return
        into.answered(block.rows, outputs, latency_s=found.latency_s, is_cached=is_cache_hit(found.headers))

    def _apart(self, block: _Block, into: GatheredAnswers, fate: Fate, why: str) -> None:
        if len(block.rows) == 1:
            into.missing(block.rows, fate, why)
            return
        for at, row in enumerate(block.rows):
            self._ask(_Block([row], block.batch.slice(at, 1)), into)


def only_inputs(questions: Batch) -> Batch:
    kept = [n for n in questions.names if not n.startswith(("outputs.", "label."))]
    if len(kept) == len(questions.names):
        return questions
    return Batch.from_arrow(questions.to_arrow().select(kept), model=questions.model)
