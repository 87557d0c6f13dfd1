"""Redaction of columns, all of their texts at once.

A column is sieved by one expression over all of its rows; only texts that pass are looked at one by one,
equal ones once.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch import PARTS, REST
from outrider.dataops.payloads.columns import is_payload

from .kinds import Kind
from .texts import PLACEHOLDER, TextRedactor, hint_of

Kinds = Collection[Kind]
_MARK = PLACEHOLDER.pattern.strip("()")
_FEWEST_DIGITS = 10**7
"""Numbers below are no value of any kind."""


class ColumnRules:
    """Kinds to redact by column.

    Parameters
    ----------
    columns
        Kinds by full column name; ``inputs.*`` is all columns whose names begin so.

    Examples
    --------
    >>> rules = ColumnRules({"inputs.*": ["email"], "inputs.card": ["card"]})
    >>> sorted(rules.kinds("inputs.card")), rules.kinds("outputs.answer")
    (['card', 'email'], frozenset())
    """

    def __init__(self, columns: Mapping[str, Iterable[Kind]]) -> None:
        self._columns = {name: frozenset(kinds) for name, kinds in columns.items()}
        self._known: dict[str, frozenset[Kind]] = {}

    def __bool__(self) -> bool:
        return bool(self._columns)

    def kinds(self, name: str) -> frozenset[Kind]:
        """Kinds of one column."""
        found = self._known.get(name)
        if found is None:
            rules = [kinds for said, kinds in self._columns.items() if _covers(said, name)]
            found = frozenset().union(*rules)
            if len(self._known) < 10_000:  # names come from strangers
                self._known[name] = found
        return found

    def all_kinds(self, part: str = "") -> frozenset[Kind]:
        """Kinds of all columns of a part together."""
        found = (kinds for name, kinds in self._columns.items() if name.startswith(part))
        return frozenset().union(*found)


class ColumnRedactor:
    """Redactor of the columns of records.

    Parameters
    ----------
    rules
        What is redacted.
    key
        Secret of the placeholders.
    """

    def __init__(self, rules: ColumnRules, key: bytes) -> None:
        self.rules = rules
        self.key = key

    def table(self, table: pa.RecordBatch) -> tuple[pa.RecordBatch, Counter[Kind]]:
        """Records with placeholders, in the same schema, and counts of the values."""
        counts: Counter[Kind] = Counter()
        given = table.columns
        made = [self._column(*each, counts) for each in zip(table.schema.names, given, strict=True)]
        if all(one is other for one, other in zip(made, given, strict=True)):
            return table, counts
        return pa.RecordBatch.from_arrays(made, schema=table.schema), counts

    def _column(self, name: str, column: pa.Array, counts: Counter[Kind]) -> pa.Array:
        part, _, field = name.partition(".")
        if field == REST:
            return _texts(column, _Rest(part, self.rules, self.key), r"(?s).", counts)
        if part not in (*PARTS, "entity") or not (kinds := self.rules.kinds(name)):
            return column
        return redacted_column(column, kinds, self.key, counts)


def redacted_column(column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind]) -> pa.Array:
    """Column of the same type without values of these kinds.

    The column itself where there is none. A number that is such a value becomes null: there is no placeholder
    among numbers.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(column, _Texts(kinds, key), hint_of(kinds), counts)
    if pa.types.is_integer(kind) or ("value" in kinds and _is_number(kind)):
        return _numbers(column, kinds, key, counts)
    if pa.types.is_dictionary(kind):
        return redacted_column(column.dictionary_decode(), kinds, key, counts).cast(kind)
    if is_payload(kind):
        return _payloads(column, kinds, key, counts)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column, kinds, key, counts)
    if pa.types.is_struct(kind):
        return _struct(column, kinds, key, counts)
    return column


def redacted_rows(batch: Batch) -> NDArray[np.bool_]:
    """Records with a placeholder among their inputs, shape (rows,)."""
    found = np.zeros(batch.rows, dtype=np.bool_)
    for name in batch.names:
        if name.startswith("inputs."):
            found |= _marked(batch.arrow(name))
    return found


def without_answers(batch: Batch, rows: NDArray[np.bool_]) -> Batch:
    """Batch whose outputs are null in these rows."""
    if not rows.any():
        return batch
    own = pa.array(np.arange(batch.rows), pa.int64(), mask=rows)
    names = [name for name in batch.names if name.startswith("outputs.")]
    return batch.with_columns({name: batch.arrow(name).take(own) for name in names})


def _marked(column: pa.Array) -> NDArray[np.bool_]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        hits = pc.fill_null(pc.match_substring_regex(column, _MARK), False)
        return np.asarray(hits.to_numpy(zero_copy_only=False), dtype=np.bool_)
    found = np.zeros(len(column), dtype=np.bool_)
    if pa.types.is_struct(kind) and not is_payload(kind):
        for at in range(kind.num_fields):
            found |= _marked(column.field(at))
    elif pa.types.is_list(kind):
        values = _marked(column.flatten())
        if values.any():
            found[pc.list_parent_indices(column).to_numpy()[values]] = True
    return found


class _Texts:
    """Redaction of single texts of one column."""

    def __init__(self, kinds: Kinds, key: bytes) -> None:
        self._kinds = kinds
        self._redactor = TextRedactor(key)

    def __call__(self, text: str) -> tuple[str, Counter[Kind]]:
        self._redactor.counts = Counter()
        return self._redactor.text(text, self._kinds), self._redactor.counts


class _Rest:
    """Redaction of rare fields, each by the rules of the column that it would be."""

    def __init__(self, part: str, rules: ColumnRules, key: bytes) -> None:
        self._part, self._rules = part, rules
        self._redactor = TextRedactor(key)

    def __call__(self, text: str) -> tuple[str, Counter[Kind]]:
        counts: Counter[Kind] = Counter()
        self._redactor.counts = counts
        try:
            members = json.loads(text)
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            return self._redactor.text(text, self._rules.all_kinds(f"{self._part}.")), counts
        found = self._walked(self._part, members)
        return json.dumps(found, sort_keys=True) if counts else text, counts

    def _walked(self, name: str, value: Any) -> Any:
        if kinds := self._rules.kinds(name):
            return self._redactor.value(value, kinds)
        if isinstance(value, dict):
            return {each: self._walked(f"{name}.{each}", inner) for each, inner in value.items()}
        return value


def _covers(said: str, name: str) -> bool:
    return name == said or (said.endswith(".*") and name.startswith(said[:-1]))


def _texts(column: pa.Array, redact: "_Texts | _Rest", hint: str, counts: Counter[Kind]) -> pa.Array:
    if column.null_count == len(column):
        return column
    mask = pc.fill_null(pc.match_substring_regex(column, hint), False)
    if not pc.any(mask).as_py():
        return column
    coded = column.filter(mask).dictionary_encode()
    made = [redact(text) for text in coded.dictionary.to_pylist()]
    times = np.bincount(coded.indices.to_numpy(), minlength=len(made))
    changed = False
    for (_, found), many in zip(made, times.tolist(), strict=True):
        for kind, count in found.items():
            counts[kind] += count * many
            changed = True
    if not changed:
        return column
    values = pa.array([text for text, _ in made], column.type).take(coded.indices)
    return pc.replace_with_mask(column, mask, values)


def _numbers(column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind]) -> pa.Array:
    if "value" in kinds:
        if column.null_count == len(column):
            return column
        counts["value"] += len(column) - column.null_count
        return pa.nulls(len(column), column.type)
    long = pc.fill_null(pc.greater_equal(column, min(_FEWEST_DIGITS, _most(column.type))), False)
    if not pc.any(long).as_py():
        return column
    redactor = TextRedactor(key)
    hit = [is_long and isinstance(redactor.value(value, kinds), str)
           for is_long, value in zip(long.to_pylist(), column.to_pylist(), strict=True)]  # fmt: skip
    counts.update(redactor.counts)
    if not any(hit):
        return column
    # Made anew: under a null of the old one the number would go on standing in its bytes.
    values = column.to_pylist()
    return pa.array(
        [None if is_hit else value for is_hit, value in zip(hit, values, strict=True)], column.type
    )


def _most(kind: pa.DataType) -> int:
    return int(np.iinfo(kind.to_pandas_dtype()).max)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind))


def _payloads(column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind]) -> pa.Array:
    """Payloads whose bytes are redacted as letters of one byte each: no other byte changes."""
    at = column.type.get_field_index("bytes")
    data = column.field(at)
    redactor = TextRedactor(key)
    made = [None if value is None else redactor.text(value.decode("latin-1"), kinds).encode("latin-1")
            for value in data.to_pylist()]  # fmt: skip
    if not redactor.counts:
        return column
    counts.update(redactor.counts)
    return _struct_of(column, {at: pa.array(made, data.type)})


def _lists(column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind]) -> pa.Array:
    make = pa.LargeListArray if pa.types.is_large_list(column.type) else pa.ListArray
    elements = column.flatten()  # of these rows alone
    made = redacted_column(elements, kinds, key, counts)
    if made is elements:
        return column
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), column.offsets.type)
    mask = column.is_null() if column.null_count else None
    return make.from_arrays(offsets, made, type=column.type, mask=mask)


def _struct(column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind]) -> pa.Array:
    changed = {}
    for at in range(column.type.num_fields):
        field = column.field(at)
        made = redacted_column(field, kinds, key, counts)
        if made is not field:
            changed[at] = made
    return _struct_of(column, changed) if changed else column


def _struct_of(column: pa.Array, changed: Mapping[int, pa.Array]) -> pa.Array:
    fields = [changed.get(at, column.field(at)) for at in range(column.type.num_fields)]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(column.type), mask=mask)
