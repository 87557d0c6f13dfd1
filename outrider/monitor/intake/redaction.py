"""Redaction of all that intake writes: blocks, waiting sides and calls, log."""

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from outrider.dataops.redaction.columns import ColumnRedactor, ColumnRules
from outrider.dataops.redaction.kinds import Kind
from outrider.dataops.redaction.texts import TextRedactor

from .pending_blocks import PendingHalf


class IntakeRedaction:
    def __init__(
        self,
        rules: Mapping[str, ColumnRules],
        key: bytes,
        counted: Callable[[str, Counter[Kind]], object] = lambda *_: None,
    ) -> None:
        self._key = key
        self._redactors = {model: ColumnRedactor(own, key) for model, own in rules.items() if own}
        self._counted = counted
        self._all = frozenset().union(*(own.all_kinds() for own in rules.values())) - {"value"}

    def table(self, model: str, table: pa.RecordBatch) -> pa.RecordBatch:
        redactor = self._redactors.get(model)
        if redactor is None:
            return table
        found, counts = redactor.table(table)
        if counts:
            self._counted(model, counts)
        return found

    def half(self, half: PendingHalf) -> PendingHalf:
        block = half.block
        if block.model not in self._redactors:
            return half
        made = self.table(block.model, block.table)
        return replace(half, block=msgspec.structs.replace(block, content=made, shape=None))

    def fields(self, model: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Values by column, or by part, with placeholders; without a model by the rules of all."""
        known = [self._redactors[model]] if model in self._redactors else []
        redactors = known if model is not None else list(self._redactors.values())
        made = dict(fields)
        for name, value in fields.items():
            kinds = frozenset().union(*(_kinds(redactor.rules, name) for redactor in redactors))
            if kinds:
                is_phone = any(redactor.rules.is_phone(name) for redactor in redactors)
                made[name] = TextRedactor(self._key).value(value, kinds, is_phone_number=is_phone)
        return made

    def text(self, text: str) -> str:
        """Text without values of any kind that a model redacts."""
        return TextRedactor(self._key).text(text, self._all) if self._all else text

    def guard(self, handlers: Iterable[logging.Handler]) -> None:
        """Redact lines of these handlers: a reason may quote a value."""
        if self._all:
            for handler in handlers:
                handler.addFilter(self._guarded)

    def _guarded(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        if record.exc_info:
            said = f"{said}\n{''.join(traceback.format_exception(*record.exc_info)).rstrip()}"
        plain = self.text(said)
        if plain != said:
            record.msg, record.args, record.exc_info, record.exc_text = plain, (), None, None
        return True


def _kinds(rules: ColumnRules, name: str) -> frozenset[Kind]:
    """Kinds of a column, or of all columns of a part."""
    return rules.all_kinds(name) if name.endswith(".") else rules.kinds(name)
