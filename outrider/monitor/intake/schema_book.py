"""Columns of each model: declared in the configuration, or learned and remembered."""

import json
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import pyarrow as pa

from outrider.assertions.batch import PARTS, REST, SYSTEM
from outrider.dataops.journal.journal import Kind, SchemaSeen
from outrider.dataops.journal.notes import COLUMNS, Note, Notes
from outrider.dataops.payloads.columns import PayloadForm, forms_of, is_payload
from outrider.dataops.payloads.payloads import DECODED_BYTES, rows_at_once
from outrider.dataops.payloads.roots import PayloadRules
from outrider.dataops.redaction.columns import ColumnRules
from outrider.errors import ConfigError

from .column_types import parse_type
from .column_weights import Weight, type_key

KIND = b"outrider.kind"
"""Schema metadata that tells a schema of labels from one of records."""


PROVEN = 100
"""Values of a rare field after which it gets a column of its own, in place of a rarer one."""
_WEIGHT = b"outrider.weight"
_MOST_RARE = 4096
"""Names of rare fields that are counted: they come from strangers."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """Facts of one column.

    Attributes
    ----------
    state
        ``declared``, ``settled``, or ``open``: another type may still take its place.
    values
        Values that were counted until it was settled; None where nobody counts.
    """

    name: str
    type: pa.DataType
    state: Literal["declared", "settled", "open"]
    values: int | None


class SchemaBook:
    """Columns and types of each (kind, model); grows while records come.

    ``notes`` (what `due` gave) count before ``seen``, the schemas that the journal remembers; ``inputs`` are
    those of which a record with inputs needs one; ``groups`` are columns whose values name groups.
    """

    def __init__(
        self,
        declared: Mapping[str, Mapping[str, str]],
        seen: Iterable[SchemaSeen] = (),
        *,
        notes: Iterable[Note] = (),
        payloads: Mapping[str, PayloadRules] | None = None,
        inputs: Mapping[str, tuple[str, ...]] | None = None,
        redact: Mapping[str, ColumnRules] | None = None,
        groups: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._declared = {
            model: {name: _declared_type(model, name, text) for name, text in columns.items()}
            for model, columns in declared.items()
        }
        self._forms = {model: forms_of(columns) for model, columns in declared.items()}
        self._rules = dict(payloads or {})
        self._rows_at_once = {
            model: rows_at_once(forms, payload_bytes=rules.max_bytes, may_fetch=bool(rules.roots))
            for model, forms in self._forms.items()
            for rules in [self.payload_rules(model)]
        }
        self._inputs = dict(inputs or {})
        self._redact = dict(redact or {})
        self._groups = {model: frozenset(names) for model, names in (groups or {}).items()}
        self._columns: dict[tuple[Kind, str], dict[str, pa.DataType]] = {}
        self._weights: dict[tuple[Kind, str], dict[str, Weight]] = {}
        """Of columns that are not settled."""
        self._rare: dict[tuple[Kind, str], dict[str, int]] = {}
        self._changed: dict[tuple[Kind, str], int] = {}
        self._saved: dict[tuple[Kind, str], int] = {}
        self._lock = threading.Lock()
        for schema in seen:
            self._recall(schema)
        for note in notes:
            self._recall_note(note)

    @property
    def models(self) -> Collection[str]:
        return self._declared.keys()

    def columns(self, kind: Kind, model: str) -> dict[str, pa.DataType]:
        """Columns known so far, declared ones first; a copy."""
        declared = self._declared_of(kind, model)
        return declared | self._columns.get((kind, model), {}) | declared

    def is_declared(self, model: str, name: str) -> bool:
        """Test for a column of fixed type: declared, or of rare fields."""
        return name in self._declared.get(model, {}) or is_rest(name)

    def facts(self, kind: Kind, model: str) -> list[ColumnFacts]:
        found = []
        for name, kind_of in self.columns(kind, model).items():
            weight = self._weights.get((kind, model), {}).get(name)
            state: Literal["declared", "settled", "open"] = "settled" if weight is None else "open"
            if self.is_declared(model, name):
                state, weight = "declared", None
            found.append(ColumnFacts(name, kind_of, state, None if weight is None else weight.values))
        return found

    def form(self, model: str, name: str) -> PayloadForm | None:
        return self._forms.get(model, {}).get(name)

    def inputs(self, model: str) -> tuple[str, ...]:
        return self._inputs.get(model, ())

    def kind_in_names(self, model: str, name: str, kind: pa.DataType) -> str | None:
        """Kind of a redacted value in the names of a column."""
        rules = self._redact.get(model)
        if rules is None:
            return None
        names = [name, *(f"{name}.{field}" for field in _field_names(kind))]
        return next(filter(None, map(rules.kind_in_name, names)), None)

    def names_groups(self, model: str, name: str) -> bool:
        """Test for labels, and names of slices, groups or classes."""
        return name.startswith(("attrs.", "label.")) or name in self._groups.get(model, ())

    def payload_rules(self, model: str) -> PayloadRules:
        return self._rules.get(model, PayloadRules())

    def rows_at_once(self, model: str) -> int:
        """Most records of a block for joint decoding of payloads."""
        return self._rows_at_once.get(model, DECODED_BYTES)

    def learn(
        self,
        kind: Kind,
        model: str,
        columns: Mapping[str, pa.DataType],
        *,
        changed: Collection[str] = (),
    ) -> None:
        """Learn new columns and widened types; ``changed`` ones have another type now."""
        place = (kind, model)
        with self._lock:
            own, weights = self._columns.setdefault(place, {}), self._weights.setdefault(place, {})
            for name, type_ in columns.items():
                weight = weights.get(name)
                if name not in own and not self.is_declared(model, name):
                    before = self._rare.get(place, {}).pop(name, 0)
                    weights[name] = Weight(before=before)
                elif weight is not None and name in changed:
                    weight.change(own[name], type_)
            self._columns[place] = own | dict(columns)
            self._touch(place)

    # ---- weights ---------------------------------------------------------------------------------------

    def open_columns(self, kind: Kind, model: str) -> list[str]:
        return list(self._weights.get((kind, model), ()))

    def weight(self, kind: Kind, model: str, name: str) -> Weight | None:
        """Votes on the type of a column; None if it is settled, declared or unknown."""
        return self._weights.get((kind, model), {}).get(name)

    def weigh(self, kind: Kind, model: str, counts: Mapping[str, int]) -> None:
        self._count(kind, model, {name: {"": count} for name, count in counts.items() if count})

    def vote(self, kind: Kind, model: str, name: str, votes: Mapping[str, int]) -> None:
        """Count values that were refused, by the `type_key` of their own type."""
        self._count(kind, model, {name: votes})

    def _count(self, kind: Kind, model: str, votes: Mapping[str, Mapping[str, int]]) -> None:
        place = (kind, model)
        with self._lock:
            weights = self._weights.get(place, {})
            for name, by_key in votes.items():
                weight = weights.get(name)
                if weight is None:
                    continue
                before = weight.values
                own = type_key(self._columns[place][name])
                weight.own += by_key.get("", 0) + by_key.get(own, 0)
                weight.add({rival: n for rival, n in by_key.items() if rival not in ("", own)})
                if weight.is_settled:
                    del weights[name]
                    self._touch(place)
                elif weight.values.bit_length() > before.bit_length():
                    self._touch(place)  # not at every value: a crash costs less than half of the votes

    # ---- rare fields -----------------------------------------------------------------------------------

    def count_rare(self, kind: Kind, model: str, counts: Mapping[str, int]) -> None:
        with self._lock:
            rare = self._rare.setdefault((kind, model), {})
            for name, count in counts.items():
                if name not in rare and len(rare) >= _MOST_RARE:
                    rare = {known: seen for known, seen in rare.items() if seen > 1}
                    self._rare[kind, model] = rare
                if name in rare or len(rare) < _MOST_RARE:
                    rare[name] = rare.get(name, 0) + count

    def rare(self, kind: Kind, model: str) -> dict[str, int]:
        return dict(self._rare.get((kind, model), {}))

    def proven(self, kind: Kind, model: str) -> list[str]:
        return [name for name, seen in self._rare.get((kind, model), {}).items() if seen >= PROVEN]

    def rarest(self, kind: Kind, model: str) -> str | None:
        """Column with the fewest values, if these are fewer than `PROVEN`."""
        weights = self._weights.get((kind, model), {})
        seen = {name: weight.values + weight.before for name, weight in weights.items()}
        rarest = min(seen, key=lambda name: (seen[name], name), default=None)
        return None if rarest is None or seen[rarest] >= PROVEN else rarest

    def forget(self, kind: Kind, model: str, name: str) -> bool:
        """Forget a learned column; its next value learns it again."""
        place = (kind, model)
        with self._lock:
            known = self._columns.get(place, {})
            if name not in known:
                return False
            self._columns[place] = {other: type_ for other, type_ in known.items() if other != name}
            self._weights.get(place, {}).pop(name, None)
            self._touch(place)
            return True

    # ---- what is remembered ----------------------------------------------------------------------------

    def due(self, now_us: int) -> "Due":
        """Changes since the last `saved`."""
        with self._lock:
            versions = {at: count for at, count in self._changed.items() if count != self._saved.get(at)}
            return Due(Notes([self._note(place, now_us) for place in versions]), versions)

    def saved(self, due: "Due") -> None:
        with self._lock:
            self._saved |= due.versions

    def _note(self, place: tuple[Kind, str], now_us: int) -> Note:
        weights = self._weights.get(place, {})
        fields = [
            pa.field(
                name, kind, metadata={_WEIGHT: json.dumps(asdict(weights[name]))} if name in weights else None
            )
            for name, kind in self._columns.get(place, {}).items()
        ]
        return Note(f"{COLUMNS}{place[0]} {place[1]}", now_us, pa.schema(fields).serialize().to_pybytes())

    def _recall_note(self, note: Note) -> None:
        kind: Kind = "labels" if note.name.startswith(f"{COLUMNS}labels ") else "records"
        place: tuple[Kind, str] = (kind, note.name.removeprefix(f"{COLUMNS}{kind} "))
        schema = pa.ipc.read_schema(pa.py_buffer(note.payload))
        self._columns[place] = {field.name: field.type for field in schema}
        self._weights[place] = {
            field.name: Weight(**json.loads(field.metadata[_WEIGHT]))
            for field in schema
            if _WEIGHT in (field.metadata or {})
        }

    def _touch(self, place: tuple[Kind, str]) -> None:
        self._changed[place] = self._changed.get(place, 0) + 1

    def _declared_of(self, kind: Kind, model: str) -> dict[str, pa.DataType]:
        of_labels = kind == "labels"
        columns = self._declared.get(model, {})
        return {name: type_ for name, type_ in columns.items() if name.startswith("label.") == of_labels}

    def _recall(self, seen: SchemaSeen) -> None:
        schema = pa.ipc.read_schema(pa.py_buffer(seen.payload))
        kind: Kind = "labels" if (schema.metadata or {}).get(KIND) == b"labels" else "records"
        columns = self._columns.setdefault((kind, seen.model), {})
        columns.update({field.name: field.type for field in schema if "." in field.name})


@dataclass(frozen=True, slots=True)
class Due:
    notes: Notes
    versions: Mapping[tuple[Kind, str], int]


def is_rest(name: str) -> bool:
    """Test for the column of a part's rare fields, as JSON."""
    return name.partition(".")[2] == REST


def _declared_type(model: str, name: str, text: str) -> pa.DataType:
    part, _, field = name.partition(".")
    if name in SYSTEM or part not in PARTS or not field:
        raise ConfigError(
            f"models.{model}.columns: {name!r} must be inputs.*, outputs.*, attrs.* or label.* of a record"
        )
    try:
        return parse_type(text)
    except ValueError as error:
        raise ConfigError(f"models.{model}.columns: {name}: {error}") from None


def _field_names(kind: pa.DataType) -> list[str]:
    if pa.types.is_list(kind):
        return _field_names(kind.value_type)
    if is_payload(kind) or not pa.types.is_struct(kind):
        return []
    return [name for field in kind for name in (field.name, *_field_names(field.type))]
