"""Redaction of columns. A sieve over all rows, then single texts, equal ones once."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch import PARTS, REST
from outrider.assertions.batch.columns import is_tensor
from outrider.dataops.payloads.columns import is_payload

from .kinds import Kind
from .sieve import rows_with_hints
from .texts import PLACEHOLDER, TextRedactor, names_phone

Kinds = Collection[Kind]
_MARK = PLACEHOLDER.pattern.strip("()")
_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)
_LEAST_CARD, _LEAST_PHONE, _MOST_PHONE = 10**12, 10**7, 10**15
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_PRINTED = re.compile(rb"[\t\n\r -~]{16,}")
"""In bytes that are no text; shorter runs look like an address by chance, once in 20 images of a megabyte."""
_ALL_ROWS: tuple[Kind] = ("value",)
_FEW_BYTES = 1000
"""Size of a column whose texts are inspected without a sieve."""


class ColumnRules:
    """Kinds to redact by full column name; ``inputs.*`` is a prefix."""

    def __init__(self, columns: Mapping[str, Iterable[Kind]]) -> None:
        self._columns = {name: frozenset(kinds) for name, kinds in columns.items()}
        self._known: dict[str, frozenset[Kind]] = {}

    def __bool__(self) -> bool:
        return bool(self._columns)

    def kinds(self, name: str) -> frozenset[Kind]:
        found = self._known.get(name)
        if found is None:
            rules = [kinds for pattern, kinds in self._columns.items() if _covers(pattern, name)]
            found = frozenset().union(*rules)
            if len(self._known) < 10_000:  # names come from strangers
                self._known[name] = found
        return found

    def is_phone(self, name: str) -> bool:
        """True if bare digits of the column are a phone number."""
        return "phone" in self.kinds(name) and (names_phone(name) or "phone" in self._columns.get(name, ()))

    def kind_in_name(self, name: str) -> Kind | None:
        """Kind of a value within a column's name, never ``token``."""
        redactor = TextRedactor(b"")
        redactor.text(name.partition(".")[2], self.kinds(name) - {"token", "value"})
        return next(iter(redactor.counts), None)

    def all_kinds(self, part: str = "") -> frozenset[Kind]:
        found = (kinds for name, kinds in self._columns.items() if name.startswith(part))
        return frozenset().union(*found)


class ColumnRedactor:
    """Redactor of records; ``key`` is the secret of the placeholders."""

    def __init__(self, rules: ColumnRules, key: bytes) -> None:
        self.rules = rules
        self.key = key

    def table(self, table: pa.RecordBatch) -> tuple[pa.RecordBatch, Counter[Kind]]:
        """Same schema, with placeholders, and counts of values."""
        counts: Counter[Kind] = Counter()
        given = table.columns
        made = [self._column(*column, counts) for column in zip(table.schema.names, given, strict=True)]
        if all(one is other for one, other in zip(made, given, strict=True)):
            return table, counts
        return pa.RecordBatch.from_arrays(made, schema=table.schema), counts

    def _column(self, name: str, column: pa.Array, counts: Counter[Kind]) -> pa.Array:
        part, _, field = name.partition(".")
        if field == REST:
            return _texts(column, _Rest(part, self.rules, self.key), _ALL_ROWS, counts)
        if part not in (*PARTS, "entity") or not (kinds := self.rules.kinds(name)):
            return column
        return redacted_column(column, kinds, self.key, counts, is_phone=self.rules.is_phone(name))


def redacted_column(
    column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind], *, is_phone: bool = False
) -> pa.Array:
    """Same type; the same object if unchanged. Redacted numbers become null."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(column, _Texts(kinds, key, is_phone=is_phone), kinds, counts)
    if "value" in kinds and (_is_number(kind) or is_payload(kind) or is_tensor(kind)):
        return _nulls(column, counts)
    if pa.types.is_integer(kind) or pa.types.is_float64(kind):
        return _numbers(column, kinds, key, counts, is_phone=is_phone)
    if pa.types.is_dictionary(kind):
        return redacted_column(column.dictionary_decode(), kinds, key, counts, is_phone=is_phone).cast(kind)
    if is_payload(kind):
        return _payloads(column, kinds, key, counts)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(column, kinds, key, counts, is_phone=is_phone)
    if pa.types.is_struct(kind):
        return _struct(column, kinds, key, counts, is_phone=is_phone)
    return column


def redacted_rows(batch: Batch) -> NDArray[np.bool_]:
    found = np.zeros(batch.rows, dtype=np.bool_)
    for name in batch.names:
        if name.startswith("inputs."):
            found |= _marked(batch.arrow(name))
    return found


def without_answers(batch: Batch, rows: NDArray[np.bool_]) -> Batch:
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
    def __init__(self, kinds: Kinds, key: bytes, *, is_phone: bool) -> None:
        self._kinds, self._is_phone = kinds, is_phone
        self._redactor = TextRedactor(key)

    def __call__(self, text: str) -> tuple[str, Counter[Kind]]:
        self._redactor.counts = Counter()
        made = self._redactor.text(text, self._kinds, is_phone_number=self._is_phone)
        return made, self._redactor.counts


class _Rest:
    """Rare fields, each by the rules of the column that it would be."""

    def __init__(self, part: str, rules: ColumnRules, key: bytes) -> None:
        self._part, self._rules = part, rules
        self._redactor = TextRedactor(key)

    def __call__(self, text: str) -> tuple[str, Counter[Kind]]:
        counts: Counter[Kind] = Counter()
        self._redactor.counts = counts
        try:
            members = json.loads(text, object_pairs_hook=_members)
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            return self._redactor.text(text, self._rules.all_kinds(f"{self._part}.")), counts
        found = self._walked(self._part, members)
        return json.dumps(found, sort_keys=True) if counts else text, counts

    def _walked(self, name: str, value: Any) -> Any:
        if kinds := self._rules.kinds(name):
            return self._redactor.value(value, kinds, is_phone_number=self._rules.is_phone(name))
        if not isinstance(value, dict):
            return value
        return {
            self._redactor.text(each, self._rules.kinds(f"{name}.{each}") - {"value"}): self._walked(
                f"{name}.{each}", inner
            )
            for each, inner in value.items()
        }


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("each member once expected")
    return members


def _covers(pattern: str, name: str) -> bool:
    return name == pattern or (pattern.endswith(".*") and name.startswith(pattern[:-1]))


def _texts(column: pa.Array, redact: "_Texts | _Rest", kinds: Kinds, counts: Counter[Kind]) -> pa.Array:
    if column.null_count == len(column):
        return column
    is_small = column.nbytes < _FEW_BYTES
    rows = np.flatnonzero(rows_with_hints(column, _ALL_ROWS if is_small else kinds))
    if not rows.size:
        return column
    given = column.take(pa.array(rows)).to_pylist()
    times = Counter(given)
    made: dict[str, str] = {}
    for text, many in times.items():
        made[text], found = redact(text)
        for kind, count in found.items():
            counts[kind] += count * many
    if all(made[text] == text for text in times):
        return column
    mask = np.zeros(len(column), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(column, mask, pa.array([made[text] for text in given], column.type))


def _nulls(column: pa.Array, counts: Counter[Kind]) -> pa.Array:
    if column.null_count == len(column):
        return column
    counts["value"] += len(column) - column.null_count
    if not is_tensor(column.type):
        return pa.nulls(len(column), column.type)
    return pa.ExtensionArray.from_storage(column.type, pa.nulls(len(column), column.type.storage_type))


def _numbers(
    column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind], *, is_phone: bool
) -> pa.Array:
    numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(_may_be(numbers, is_card="card" in kinds, is_phone=is_phone and "phone" in kinds))
    if not rows.size:
        return column
    redactor = TextRedactor(key)
    hit = np.zeros(len(column), dtype=np.bool_)
    hit[rows] = [
        isinstance(redactor.value(number, kinds, is_phone_number=is_phone), str)
        for number in numbers[rows].tolist()
    ]
    counts.update(redactor.counts)
    if not hit.any():
        return column
    # Made anew: under a null of the old one the number would go on standing in its bytes.
    return pa.array(np.where(hit, 0, numbers), column.type, mask=hit | column.is_null().to_numpy(False))


def _may_be(numbers: NDArray[Any], *, is_card: bool, is_phone: bool) -> NDArray[np.bool_]:
    """Whole numbers that may be a card or phone: no time of this century, no amount with cents."""
    found = np.zeros(len(numbers), dtype=np.bool_)
    large = np.flatnonzero((numbers >= _LEAST_PHONE) & (numbers < 2**63))
    if not (large.size and (is_card or is_phone)):
        return found
    own = numbers[large]
    whole = own.astype(np.int64)
    is_whole = whole == own
    if is_card:
        first = whole // _POWERS[np.searchsorted(_POWERS, whole, side="right") - 1]
        found[large] |= is_whole & (whole >= _LEAST_CARD) & (first >= 2)
    if is_phone:
        found[large] |= is_whole & (whole < _MOST_PHONE)
    return found


def _is_number(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_timestamp)
    return any(test(kind) for test in tests)


def _payloads(column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind]) -> pa.Array:
    changed: dict[int, pa.Array] = {}
    redactor = TextRedactor(key)
    for at, field in enumerate(column.type):
        values = column.field(at)
        if pa.types.is_string(field.type):
            made = redacted_column(values, kinds, key, counts)
        else:
            listed = values.to_pylist()
            found = [None if value is None else _bytes(value, redactor, kinds) for value in listed]
            made = values if found == listed else pa.array(found, values.type)
        if made is not values:
            changed[at] = made
    counts.update(redactor.counts)
    return _struct_of(column, changed) if changed else column


def _bytes(data: bytes, redactor: TextRedactor, kinds: Kinds) -> bytes:
    """Text in its encoding; of other bytes, long printable runs."""
    for encoding in (*_wide(data), "utf-8", *(() if _CONTROL.search(data) else ("latin-1",))):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        made = redactor.text(text, kinds)
        return data if made == text else made.encode(encoding)
    return _PRINTED.sub(lambda run: redactor.text(run[0].decode("ascii"), kinds).encode("ascii"), data)


def _wide(data: bytes) -> Iterator[str]:
    """Two-byte encodings by byte order mark or zeros of ASCII."""
    head = data[:200]
    zeros = len(head) * 0.4 / 2
    if head.startswith(b"\xff\xfe") or head[1::2].count(0) > max(zeros, 1):
        yield "utf-16-le"
    if head.startswith(b"\xfe\xff") or head[::2].count(0) > max(zeros, 1):
        yield "utf-16-be"


def _lists(column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind], *, is_phone: bool) -> pa.Array:
    make = pa.LargeListArray if pa.types.is_large_list(column.type) else pa.ListArray
    elements = column.flatten()  # of these rows alone
    made = redacted_column(elements, kinds, key, counts, is_phone=is_phone)
    if made is elements:
        return column
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), column.offsets.type)
    mask = column.is_null() if column.null_count else None
    return make.from_arrays(offsets, made, type=column.type, mask=mask)


def _struct(column: pa.Array, kinds: Kinds, key: bytes, counts: Counter[Kind], *, is_phone: bool) -> pa.Array:
    changed = {}
    for at in range(column.type.num_fields):
        field = column.field(at)
        is_own = is_phone or names_phone(column.type.field(at).name)
        made = redacted_column(field, kinds, key, counts, is_phone=is_own)
        if made is not field:
            changed[at] = made
    return _struct_of(column, changed) if changed else column


def _struct_of(column: pa.Array, changed: Mapping[int, pa.Array]) -> pa.Array:
    fields = [changed.get(at, column.field(at)) for at in range(column.type.num_fields)]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(column.type), mask=mask)
