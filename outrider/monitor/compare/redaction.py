"""Columns left out or hashed before anything is kept or sent."""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa
from msgspec import json

from outrider.assertions import Batch
from outrider.assertions.columns import plain
from outrider.errors import ConfigError
from outrider.monitor.intake.protocols.chat_columns import canonical

from .questions import REQUEST, Members, raw

_INSIDE = f"{REQUEST}."


class Redaction:
    """Columns to drop and to hash, also paths inside requests.

    ``inputs.request.user`` is a member of the request; in lists a path goes into every element. Hashes are
    keyed by a salt that is drawn anew and never kept: equal values are equal within one run only.

    Raises
    ------
    ConfigError
        If all of the request, or a column that is not one of records, is named.
    """

    def __init__(
        self, drop: Iterable[str] = (), hash: Iterable[str] = (), *, salt: bytes | None = None
    ) -> None:
        self.drop, self.hash = frozenset(drop), frozenset(hash)
        self._salt = salt or secrets.token_bytes(32)
        self.found: set[str] = set()
        """Names that were met in the traffic."""
        for option, names in (("--drop", self.drop), ("--hash", self.hash)):
            for name in sorted(names):
                _check(option, name)

    @property
    def names(self) -> frozenset[str]:
        """All columns and paths."""
        return self.drop | self.hash

    def members(self, request: Members) -> bool:
        """Redact a request in place; False where nothing was to be done."""
        is_changed = False
        for name in sorted(self.names):
            if not name.startswith(_INSIDE):
                continue
            first, *rest = name.removeprefix(_INSIDE).split(".")
            if first not in request:
                continue
            value, is_found = self._walk(
                {first: json.decode(request[first])}, [first, *rest], name in self.drop
            )
            if not is_found:
                continue
            self.found.add(name)
            is_changed = True
            if first in value:
                request[first] = raw(value[first])
            else:
                del request[first]
        return is_changed

    def batch(self, batch: Batch) -> Batch:
        """Batch without the columns to drop, and with hashes in the others."""
        here = [name for name in batch.names if name in self.names and not name.startswith(_INSIDE)]
        if not here:
            return batch
        self.found.update(here)
        columns: dict[str, Any] = {name: batch.arrow(name) for name in batch.names if name not in self.drop}
        for name in here:
            if name in columns:
                columns[name] = self._column(columns[name], name)
        return Batch.from_columns(columns, model=batch.model, rows=batch.rows)

    def text(self, value: Any) -> str:
        """Hash of a value, as 16 hex digits."""
        content = value if isinstance(value, str) else canonical(value)
        return hmac.new(self._salt, content.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:16]

    def _column(self, column: pa.Array, name: str) -> pa.Array:
        if pa.types.is_nested(column.type) or isinstance(column.type, pa.ExtensionType):
            values = plain(column, name)
            return pa.array([None if v is None else self.text(v) for v in values], pa.string())
        coded = column.dictionary_encode()
        hashed = pa.array([self.text(value) for value in plain(coded.dictionary, name)], pa.string())
        return hashed.take(coded.indices)

    def _walk(self, value: Any, path: Collection[str], drops: bool) -> tuple[Any, bool]:
        """Value with what a path leads to redacted, and whether it led anywhere."""
        if isinstance(value, list):
            pairs = [self._walk(each, path, drops) for each in value]
            return [each for each, _ in pairs], any(is_found for _, is_found in pairs)
        first, *rest = path
        if not isinstance(value, dict) or first not in value:
            return value, False
        if rest:
            inner, is_found = self._walk(value[first], rest, drops)
            return value | {first: inner}, is_found
        if drops:
            return {name: each for name, each in value.items() if name != first}, True
        return value | {first: self.text(value[first])}, True


def _check(option: str, name: str) -> None:
    part, _, rest = name.partition(".")
    if name == REQUEST:
        raise ConfigError(f"{option} {name}: the request is the question; name what in it: {REQUEST}.user")
    if not (name in ("id", "entity") or (rest and part in ("inputs", "outputs", "attrs"))):
        raise ConfigError(f"{option}: id, entity, inputs.…, outputs.… or attrs.… expected, got {name!r}")
