"""Columns drawn from the fields of a part: known types kept, new ones decided, rare fields put aside."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from outrider.assertions.batch import REST
from outrider.assertions.batch.columns import is_tensor
from outrider.dataops.journal.journal import Kind
from outrider.dataops.payloads.columns import is_payload, text_array
from outrider.dataops.state.stored_texts import NUL, rows_with_nul, text_fault
from outrider.monitor.http.problem import ProblemError, problem

from .column_types import Values, nested_rows
from .column_weights import Rival, joined, rivals, type_key
from .fast_arrow import is_fed
from .list_columns import Bounds, ConvertedColumn, cells_of, convert_column, width
from .payload_values import in_lists, is_marked, lists_where_known, parsed_column, refused, with_bytes
from .rare_fields import as_json, rest_column
from .rejections import RowFaults
from .request_parts import RequestPart
from .schema_book import SchemaBook, is_rest
from .system_columns import system_columns

ASIDE_CELLS = 5
"""Cells of columns that one cell of a rare field costs."""
_ASIDE_ROWS = 200
"""Least rows that a rare field is charged for, however few records have it."""


@dataclass(frozen=True, slots=True)
class ColumnLimits:
    max_columns: int
    max_depth: int
    max_elements: int

    def room(self, known: Mapping[str, pa.DataType]) -> int:
        """Columns that a model may still get."""
        return self.max_columns - sum(width(kind) for name, kind in known.items() if not is_rest(name))


class DrawnColumns:
    """Columns of one pass over a part; ``changed`` are types that replace another."""

    def __init__(
        self,
        book: SchemaBook,
        limits: ColumnLimits,
        part: RequestPart,
        kind: Kind,
        known: dict[str, pa.DataType],
        admitted: frozenset[str],
    ) -> None:
        self._book = book
        self._limits = limits
        self._part = part
        self._kind: Kind = kind
        self._known = known
        self._admitted = admitted
        self._room = limits.room(known)
        self._rest: dict[str, dict[int, dict[str, Any]]] = {}
        self.kinds: dict[str, pa.DataType] = {}
        self.changed: set[str] = set()
        self.rare: Counter[str] = Counter()
        self._rows_aside = max(len(part.indices), _ASIDE_ROWS)
        self.aside = 0
        """Rows x fields that were looked at for rare fields, at least `_ASIDE_ROWS` each."""

    def columns(self, received_us: int, cells: int) -> tuple[dict[str, pa.Array], RowFaults]:
        """Arrays by full name, and faults.

        Faults against what is known come alone; only without any do rows that disagree about a new column
        count as faulty.
        """
        part = self._part
        arrays, faults = system_columns(part, self._kind, received_us)
        if faults.is_bad.all():
            return arrays, faults
        disagreeing = RowFaults(len(part.indices))
        for name, values in self._cells(faults, cells):
            new = name not in self._known
            if new and (reason := _misnamed(name)):
                faults.add(_filled(values), name if text_fault(name) is None else ascii(name), reason)
                continue
            if new and not self._has_room(name):
                self.aside += self._rows_aside
                _check_aside(self.aside, cells)
                self._put_aside(name, values, faults)
                continue
            found = self._converted(name, values, cells)
            if holds := self._holds_value(name, found.array):
                faults.add(_filled(values), *holds)
                continue
            faults.add_all(found.bad, field=name)
            disagreeing.add_all(found.disagreeing, field=name)
            if found.array is not None:
                arrays[name] = found.array
                if self._book.names_groups(part.model, name):
                    faults.add(rows_with_nul(found.array), name, NUL)
                cells -= cells_of(found.array)
                self._take_up(name, found.array, faults)
        for prefix, members in self._rest.items():
            name = f"{prefix}.{REST}"
            arrays[name] = rest_column(arrays.get(name), members, len(part.indices))
            self.kinds[name] = pa.string()
        needed = () if self._kind == "labels" or part.has_own_names else self._book.inputs(part.model)
        if needed:
            _add_unfed(arrays, needed, faults)
        return arrays, faults or disagreeing

    def _holds_value(self, name: str, array: pa.Array | None) -> tuple[str, str] | None:
        """Fault of a new column or field whose name is a redacted value."""
        if array is None or array.type == self._known.get(name):
            return None
        kind = self._book.kind_in_names(self._part.model, name, array.type)
        reason = (
            f"a field is named by a value that is redacted here ({kind}): send it as the value of a field"
        )
        return None if kind is None else (name.partition(".")[0], reason)

    def _take_up(self, name: str, array: pa.Array, faults: RowFaults) -> None:
        self.kinds[name] = array.type
        self._room -= 0 if is_rest(name) else width(array.type) - width(self._known.get(name))
        if is_payload(array.type):
            form, rules = self._book.form(self._part.model, name), self._book.payload_rules(self._part.model)
            bad = refused(array, form, rules)
            faults.add(sorted(bad), name, bad.__getitem__)

    def _converted(self, name: str, values: Values, cells: int) -> ConvertedColumn:
        """Column of its known type, or of another that has more votes."""
        part, limits = self._part, self._limits
        known = self._known.get(name, pa.string() if is_rest(name) else None)
        declared = self._book.is_declared(part.model, name)
        form = self._book.form(part.model, name)
        if form is not None and form.kind == "text":
            values = text_array(values)
        elif not isinstance(values, pa.Array):
            values = lists_where_known(values, known)
        bounds = Bounds(limits.max_depth, limits.max_elements, max(0, self._room), cells)
        found = convert_column(values, known, declared=declared, bounds=bounds)
        weight = self._book.weight(self._kind, part.model, name)
        if declared or not (found.bad or found.disagreeing) or (known is not None and weight is None):
            return found
        own = found.array.type if known is None and found.array is not None else known
        if own is None:
            return found
        misfits = found.disagreeing if known is None else found.bad
        others = rivals(values, misfits.rows, own)
        votes = {rival: len(one.rows) for rival, one in others.items()}
        if known is None or weight is None:
            lead, margin, past = 0, 1, {}
        else:
            lead, margin, past = weight.own, weight.changes, weight.rivals
        lead += len(_filled(values)) - len(misfits.rows)
        best = max(others, key=lambda rival: past.get(rival, 0) + votes[rival], default=None)
        if best is None or past.get(best, 0) + votes[best] < lead + margin:
            self._book.vote(self._kind, part.model, name, votes)
            return found
        changed = self._as_rival(values, own, others[best], bounds)
        if changed is None:
            return found
        refused_rows = np.setdiff1d(changed.bad.rows, misfits.rows)
        votes.pop(best)
        self._book.vote(self._kind, part.model, name, votes | {type_key(own): len(refused_rows)})
        if known is None:
            return ConvertedColumn(changed.array, disagreeing=changed.bad)
        self.changed.add(name)
        return changed

    def _as_rival(
        self, values: Values, own: pa.DataType, rival: Rival, bounds: Bounds
    ) -> ConvertedColumn | None:
        found = convert_column(values, joined(own, rival.kind), declared=False, bounds=bounds)
        return None if found.array is None or found.disagreeing else found

    # ---- fields without a column -------------------------------------------------------------------------

    def _has_room(self, name: str) -> bool:
        if name in self._admitted or is_rest(name):
            return True
        waiting = sum(one not in self._known and one not in self.kinds for one in self._admitted)
        return self._room > waiting

    def _put_aside(self, name: str, values: Values, faults: RowFaults) -> None:
        """Keep the values of a rare field as JSON."""
        prefix, _, field_name = name.partition(".")
        bad: list[int] = []
        rows = [row for row in _filled(values) if not faults.is_bad[row]]
        for row, value in zip(rows, _taken(values, rows), strict=True):
            try:
                as_json(value)
            except (TypeError, ValueError, RecursionError):
                bad.append(row)
                continue
            self._rest.setdefault(prefix, {}).setdefault(row, {})[field_name] = value
            self.rare[name] += 1
        reason = (
            f"a new column beyond the {self._limits.max_columns} that a model may have "
            f"(limits.columns), and not a value of JSON, which {prefix}.{REST} could hold"
        )
        faults.add(bad, name, reason)

    def _cells(self, faults: RowFaults, cells: int) -> Iterator[tuple[str, Values]]:
        """Every field as a column of values; nested objects become dotted names."""
        for name, values in self._part.columns.items():
            yield name, values if isinstance(values, pa.Array) else with_bytes(values)
        for prefix, dicts in self._part.fields.items():
            for name in self._names(prefix, dicts, cells):
                values = [None if d is None else d.get(name) for d in dicts]
                yield from self._flatten(f"{prefix}.{name}", values, faults, self._limits.max_depth, cells)

    def _names(self, prefix: str, dicts: list[dict[str, Any] | None], cells: int) -> list[str]:
        """Names of fields; refuses too many without a column before any value is looked at."""
        names = _names(dicts)
        taken = self._room + len(self._admitted)
        if (len(names) - taken) * self._rows_aside * ASIDE_CELLS > cells:
            depth = self._limits.max_depth
            new = {path for d in dicts if d for path in _paths(prefix, d, depth)}.difference(self._known)
            _check_aside(self.aside + (len(new) - taken) * self._rows_aside, cells)
        return names

    def _flatten(
        self, name: str, values: list[Any], faults: RowFaults, depth: int, cells: int
    ) -> Iterator[tuple[str, Values]]:
        kinds = set(map(type, values))
        if list in kinds and (bad := in_lists(values)):
            faults.add(sorted(bad), name, "a payload cannot stand in a list; give it a field of its own")
            values = [None if row in bad else value for row, value in enumerate(values)]
        if dict in kinds and any(map(is_marked, values)):
            values, bad_rows = parsed_column(values)
            faults.add_misfits(name, bad_rows)
            kinds = set(map(type, values))
        if dict not in kinds:
            yield name, values
            return
        dicts = [value if isinstance(value, dict) else None for value in values]
        if depth <= 2:
            reason = f"nested deeper than {self._limits.max_depth} levels (limits.depth)"
            faults.add([row for row, d in enumerate(dicts) if d is not None], name[:256], reason)
            return
        rest = [None if isinstance(value, dict) else value for value in values]
        if any(value is not None for value in rest):
            yield name, rest
        for key in self._names(name, dicts, cells):
            inner = [None if d is None else d.get(key) for d in dicts]
            yield from self._flatten(f"{name}.{key}", inner, faults, depth - 1, cells)


def _paths(name: str, value: Any, depth: int) -> Iterator[str]:
    """Columns of a field, but for those nested too deeply."""
    if type(value) is not dict or is_marked(value):
        yield name
    elif depth:
        for key, inner in value.items():
            yield from _paths(f"{name}.{key}", inner, depth - 1)


def _check_aside(aside: int, cells: int) -> None:
    if aside * ASIDE_CELLS > cells:
        detail = "too many fields without a column (limits.columns) for so many records at once; send fewer"
        raise ProblemError(problem(413, detail))


def _add_unfed(arrays: dict[str, pa.Array], needed: tuple[str, ...], faults: RowFaults) -> None:
    """Refuse records that have inputs and none of those needed."""
    given = [name for name in arrays if name.startswith("inputs.")]
    strange = [name for name in given if not is_fed(name, needed)]
    if not strange:
        return
    rows = len(arrays["id"])
    fed, present = np.zeros(rows, dtype=np.bool_), np.zeros(rows, dtype=np.bool_)
    for name in given:
        mask = present if name in strange else fed
        mask |= arrays[name].is_valid().to_numpy(zero_copy_only=False)
    faults.add(np.flatnonzero(present & ~fed), "inputs", _unfed_reason(needed, strange))


def _unfed_reason(needed: tuple[str, ...], strange: list[str]) -> str:
    return (
        f"none of the declared inputs is there ({', '.join(needed[:20])}); got "
        f"{', '.join(strange[:20])[:400]}; "
        'take such records with missing_inputs = "flag" in [models.NAME.intake]'
    )


def _misnamed(name: str) -> str | None:
    field_name = name.partition(".")[2]
    if not field_name:
        return "a field needs a name, got an empty one"
    if len(field_name) > 256 or text_fault(field_name):
        return "names of fields are texts of at most 256 characters"
    return None


def _taken(values: Values, rows: list[int]) -> list[Any]:
    if not isinstance(values, pa.Array):
        return [values[row] for row in rows]
    taken = values.take(pa.array(rows, pa.int64()))
    listed: list[Any] = nested_rows(taken) if is_tensor(values.type) else taken.to_pylist()
    return listed


def _names(dicts: list[dict[str, Any] | None]) -> list[str]:
    first = next((d for d in dicts if d is not None), None)
    if first is None:
        return []
    keys = first.keys()
    if all(d is not None and d.keys() == keys for d in dicts):
        return list(keys)
    names: dict[str, None] = {}
    for d in dicts:
        if d is not None:
            names.update(dict.fromkeys(d))
    return list(names)


def _filled(values: Values) -> list[int]:
    if isinstance(values, pa.Array):
        filled: list[int] = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)).tolist()
        return filled
    return [row for row, value in enumerate(values) if value is not None]
