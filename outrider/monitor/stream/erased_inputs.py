from typing import Any

from sqlalchemy import Engine

from outrider.assertions import Assertion, Batch
from outrider.dataops.erasure.contexts import places_of, read_contexts
from outrider.dataops.journal.journal import Journal
from outrider.dataops.journal.stored_rows import has_row, read_rows

from .units import context_s

FlagSubject = tuple[str, str]


class ErasedInputs:
    """Test for flags that lost an input to an erasure. A record may have been in another's
    window where both have the same entity and were received within the window's span."""

    def __init__(self, engine: Engine, journal: Journal, model: str) -> None:
        self._engine, self._journal, self._model = engine, journal, model
        self._blocks: dict[int, tuple[Batch, int] | None] = {}

    def among(self, judge: Assertion, flags: set[FlagSubject]) -> set[FlagSubject]:
        if judge.window is None or not flags:
            return set()
        by, span_us = judge.window.by, context_s(judge.window) * 1e6
        with self._engine.connect() as connection:
            contexts = read_contexts(connection, self._model, by)
            places = places_of(connection, self._model, {record for record, _ in flags}) if contexts else {}
        gone: dict[Any, list[int]] = {}
        for seq, like_seq, like_row in contexts:
            if (block := self._block(seq)) is not None:
                gone.setdefault(self._value(like_seq, like_row, by), []).append(block[1])
        touched = set()
        for record, (seq, row) in places.items():
            block, value = self._block(seq), self._value(seq, row, by)
            times = gone.get(value, []) + gone.get(None, [])  # whose fellow has expired: of anybody
            if block is not None and any(abs(block[1] - at_us) <= span_us for at_us in times):
                touched.add(record)
        return {flag for flag in flags if flag[0] in touched}

    def _value(self, seq: int, row: int, by: str) -> Any:
        block = self._block(seq)
        if block is None or not has_row(block[0], row) or not block[0].has(by):
            return None
        return block[0].arrow(by)[row].as_py()

    def _block(self, seq: int) -> tuple[Batch, int] | None:
        """Records of a block, and its receipt; None where it has expired."""
        if seq not in self._blocks:
            try:
                block = self._journal.get(seq)
                self._blocks[seq] = read_rows(block.payload), block.received_us
            except KeyError:
                self._blocks[seq] = None
        return self._blocks[seq]
