"""Columns dropped or redacted before anything is stored or sent."""

import secrets
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, cast

import pyarrow as pa
from msgspec import json

from outrider.assertions import Batch
from outrider.assertions.batch.columns import plain
from outrider.dataops.redaction.columns import redacted_column
from outrider.dataops.redaction.kinds import Kind, kind_fault
from outrider.dataops.redaction.texts import TextRedactor
from outrider.errors import ConfigError
from outrider.monitor.intake.protocols.chat_columns import canonical

from .questions import REQUEST, Members, raw

_INSIDE = f"{REQUEST}."


class Redaction:
    """Drops or redacts columns, and members of requests (``inputs.request.user``);
    ``inputs.text=email,card`` redacts only these kinds of values."""

    def __init__(
        self, drop: Iterable[str] = (), hash: Iterable[str] = (), *, key: bytes | None = None
    ) -> None:
        self.drop = frozenset(drop)
        self.kinds = dict(map(_kinds, hash))
        self._key = key or secrets.token_bytes(32)  # equal values get equal placeholders in one run only
        self.matched: set[str] = set()
        """Configured names that occurred in the traffic."""
        for option, names in (("--drop", self.drop), ("--hash", self.kinds)):
            for name in sorted(names):
                _check(option, name)

    @property
    def names(self) -> frozenset[str]:
        return self.drop | self.kinds.keys()

    @staticmethod
    def is_inside(name: str) -> bool:
        """True for a path inside requests, such as ``inputs.request.user``."""
        return name.startswith(_INSIDE)

    def members(self, request: Members) -> bool:
        """Redact a request in place; False if no configured path matched."""
        is_changed = False
        for name in sorted(self.names):
            if not name.startswith(_INSIDE):
                continue
            first, *rest = name.removeprefix(_INSIDE).split(".")
            if first not in request:
                continue
            value, is_found = self._walk(
                {first: json.decode(request[first])}, [first, *rest], self.kinds.get(name)
            )
            if not is_found:
                continue
            self.matched.add(name)
            is_changed = True
            if first in value:
                request[first] = raw(value[first])
            else:
                del request[first]
        return is_changed

    def batch(self, batch: Batch) -> Batch:
        here = [name for name in batch.names if name in self.names and not name.startswith(_INSIDE)]
        if not here:
            return batch
        self.matched.update(here)
        columns: dict[str, Any] = {name: batch.arrow(name) for name in batch.names if name not in self.drop}
        for name in here:
            if name in columns:
                columns[name] = self.column(columns[name], name)
        return Batch.from_columns(columns, model=batch.model, rows=batch.rows)

    def table(self, table: pa.Table) -> pa.Table:
        for at, name in reversed([*enumerate(table.column_names)]):
            column = table.column(at)
            if name == REQUEST and any(each.startswith(_INSIDE) for each in self.names):
                table = table.set_column(
                    at, name, pa.array([*map(self._request, column.to_pylist())], pa.string())
                )
            if name not in self.names:
                continue
            self.matched.add(name)
            if name in self.drop:
                table = table.remove_column(at)
            else:
                table = table.set_column(at, name, self.column(column.combine_chunks(), name))
        return table

    def _request(self, body: str | None) -> str | None:
        if body is None:
            return None
        request = json.decode(body, type=Members)
        return json.encode(request).decode() if self.members(request) else body

    def column(self, column: pa.Array, name: str) -> pa.Array:
        kinds = self.kinds[name]
        if "value" not in kinds or pa.types.is_string(column.type):
            return redacted_column(column, kinds, self._key, Counter(), is_phone=True)
        if pa.types.is_nested(column.type) or isinstance(column.type, pa.ExtensionType):
            values = plain(column, name)
            return pa.array([None if v is None else self._value(v, kinds) for v in values], pa.string())
        coded = column.dictionary_encode()
        hashed = [self._value(value, kinds) for value in plain(coded.dictionary, name)]
        return pa.array(hashed, pa.string()).take(coded.indices)

    def _value(self, value: Any, kinds: Collection[Kind]) -> Any:
        redactor = TextRedactor(self._key)
        if "value" in kinds:
            return redactor.text(value if isinstance(value, str) else canonical(value), kinds)
        return redactor.value(value, kinds, is_phone_number=True)

    def _walk(self, value: Any, path: Collection[str], kinds: Collection[Kind] | None) -> tuple[Any, bool]:
        """Value with the member at ``path`` redacted (``kinds`` None: dropped), and True if it was
        found; every element of a list is searched."""
        if isinstance(value, list):
            pairs = [self._walk(each, path, kinds) for each in value]
            return [each for each, _ in pairs], any(is_found for _, is_found in pairs)
        first, *rest = path
        if not isinstance(value, dict) or first not in value:
            return value, False
        if rest:
            inner, is_found = self._walk(value[first], rest, kinds)
            return value | {first: inner}, is_found
        if kinds is None:
            return {name: each for name, each in value.items() if name != first}, True
        return value | {first: self._value(value[first], kinds)}, True


def _kinds(text: str) -> tuple[str, tuple[Kind, ...]]:
    name, _, listed = text.partition("=")
    kinds = listed.split(",") if listed else ["value"]
    for fault in filter(None, map(kind_fault, kinds)):
        raise ConfigError(f"--hash {name}: {fault}")
    return name, cast(tuple[Kind, ...], tuple(kinds))


def _check(option: str, name: str) -> None:
    part, _, rest = name.partition(".")
    if name == REQUEST:
        raise ConfigError(f"{option} {name}: the request is the question; name what in it: {REQUEST}.user")
    if not (name in ("id", "entity") or (rest and part in ("inputs", "outputs", "attrs"))):
        raise ConfigError(f"{option}: id, entity, inputs.…, outputs.… or attrs.… expected, got {name!r}")
