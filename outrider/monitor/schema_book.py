"""What columns each model has so far: declared in the configuration, else learned and remembered."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from outrider.assertions.batch import PARTS, SYSTEM
from outrider.dataops.journal import Kind, SchemaSeen
from outrider.dataops.payload_columns import Form, parse_form
from outrider.dataops.payloads import rows_at_once
from outrider.errors import ConfigError

from .column_types import parse_type
from .payload_values import PayloadRules

KIND = b"outrider.kind"
"""Schema metadata that tells a schema of labels from one of records."""


class SchemaBook:
    """Columns and types of each (kind, model); grows while records come.

    Parameters
    ----------
    declared
        Model name to declared types by full column name, as in ``[models.<name>.columns]``.
    seen
        Schemas the journal remembers, oldest first.
    payloads
        Model name to what its payloads may be.

    Raises
    ------
    ConfigError
        If a declared type or column name is not known.
    """

    def __init__(
        self,
        declared: Mapping[str, Mapping[str, str]],
        seen: Iterable[SchemaSeen] = (),
        *,
        payloads: Mapping[str, PayloadRules] | None = None,
    ) -> None:
        self._declared = {
            model: {name: _declared_type(model, name, text) for name, text in columns.items()}
            for model, columns in declared.items()
        }
        self._forms = {model: forms_of(columns) for model, columns in declared.items()}
        self._rules = dict(payloads or {})
        self._columns: dict[tuple[Kind, str], dict[str, pa.DataType]] = {}
        for schema in seen:
            self._recall(schema)

    @property
    def models(self) -> list[str]:
        """Names of the models under watch."""
        return list(self._declared)

    def columns(self, kind: Kind, model: str) -> dict[str, pa.DataType]:
        """Columns known so far, declared ones first; a copy."""
        declared = self._declared_of(kind, model)
        return declared | self._columns.get((kind, model), {}) | declared

    def is_declared(self, model: str, name: str) -> bool:
        """Whether the configuration fixes the type of a column."""
        return name in self._declared.get(model, {})

    def form(self, model: str, name: str) -> Form | None:
        """What the worker makes of a declared payload column; None for other columns."""
        return self._forms.get(model, {}).get(name)

    def payload_rules(self, model: str) -> PayloadRules:
        """What payloads of a model may be."""
        return self._rules.get(model, PayloadRules())

    def rows_at_once(self, model: str) -> int:
        """Most records of a block, so that its payloads can be decoded together."""
        rules = self.payload_rules(model)
        forms = self._forms.get(model, {})
        return rows_at_once(forms, payload_bytes=rules.max_bytes, may_fetch=bool(rules.roots))

    def learn(self, kind: Kind, model: str, columns: Mapping[str, pa.DataType]) -> None:
        """Remember new columns and widened types."""
        self._columns.setdefault((kind, model), {}).update(columns)

    def _declared_of(self, kind: Kind, model: str) -> dict[str, pa.DataType]:
        of_labels = kind == "labels"
        columns = self._declared.get(model, {})
        return {name: type_ for name, type_ in columns.items() if name.startswith("label.") == of_labels}

    def _recall(self, seen: SchemaSeen) -> None:
        schema = pa.ipc.read_schema(pa.py_buffer(seen.payload))
        kind: Kind = "labels" if (schema.metadata or {}).get(KIND) == b"labels" else "records"
        self.learn(kind, seen.model, {field.name: field.type for field in schema if "." in field.name})


def forms_of(columns: Mapping[str, str]) -> dict[str, Form]:
    """Forms of the payload columns among declared ones."""
    found = {}
    for name, text in columns.items():
        try:
            form = parse_form(text)
        except ValueError:
            continue  # told where the types are parsed
        if form is not None:
            found[name] = form
    return found


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
