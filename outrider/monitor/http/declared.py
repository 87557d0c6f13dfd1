"""Types of API bodies for ``/openapi.json``, and the bodies of rows, from the code's types."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, NotRequired, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema, to_jsonable_python
from typing_extensions import TypedDict, is_typeddict

from outrider.assertions.statistics.loss_bounds import FloatOrNull
from outrider.assertions.times import utc_text

Time: TypeAlias = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""ISO 8601, UTC."""
_UNIONS = (Union, UnionType)
_validator = core_schema.no_info_plain_validator_function


@dataclass(frozen=True, eq=False)
class _Declared:
    """Encodes rows, unchecked: their type was checked when it was written, values when they were stored."""

    body: Any

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        encode = _encoder(self.body)
        # As a validator: FastAPI calls it in the thread of the route, and serializers in the event loop.
        return core_schema.any_schema() if encode is _same else _validator(encode)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        declared = TypeAdapter(self.body).core_schema  # not before: it takes a second for the whole API
        return handler(core_schema.chain_schema([declared]))  # of a chain the last, by its name


def declared(body: Any) -> Any:
    """Type of a body that is described and not checked."""
    return Annotated[Any, _Declared(body)]


@dataclass(frozen=True, eq=False)
class FieldsOf:
    """JSON object of a dataclass: its type, as metadata of ``Annotated``, and its values.

    A route that is annotated with it returns the row.

    Parameters
    ----------
    row
        The dataclass; dataclasses in its fields are objects with the names of their classes.
    name
        Name of the type in ``/openapi.json``; default that of the class.
    about
        Its description; default the first sentence of the class.
    times
        Times stand as ISO 8601, ``created_us`` as ``created``.
    without
        Fields of the row that are left out.
    also
        Properties of the row that stand with its fields.
    more
        Types of further fields, or of those in place of the row's.
    """

    row: type
    name: str = ""
    about: str = ""
    times: bool = False
    without: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def body(self, row: Any, **given: Any) -> dict[str, Any]:
        """Object of a row, with the values ``given``; infinity and NaN become null."""
        body: dict[str, Any] = to_jsonable_python(self._values(row, given), inf_nan_mode="null")
        return body

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self._type)

    def _values(self, row: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: encode(given[name] if name in given else getattr(row, attribute))
            for name, (attribute, encode) in self._encoders.items()
        }

    @cached_property
    def _encoders(self) -> dict[str, tuple[str, Callable[[Any], Any]]]:
        return {
            name: (attribute, _encoder(Time if self._is_time(attribute) else self._kinds[name]))
            for name, attribute in self._attributes.items()
        }

    @cached_property
    def _type(self) -> Any:
        said = inspect.getdoc(self.row) or ""
        return _object(self.name or self.row.__name__, self._kinds, self.about or said.partition("\n\n")[0])

    @cached_property
    def _kinds(self) -> dict[str, Any]:
        """Types of the object's fields."""
        hints = get_type_hints(self.row, include_extras=True)
        hints |= {
            name: get_type_hints(getattr(self.row, name).fget, include_extras=True)["return"]
            for name in self.also
        }
        return {
            name: self.more[name] if name in self.more else self._kind(attribute, hints[attribute])
            for name, attribute in self._attributes.items()
        }

    def _kind(self, attribute: str, hint: Any) -> Any:
        if self._is_time(attribute):
            return Time if hint is int else Time | None
        return _json_type(hint)

    @cached_property
    def _attributes(self) -> dict[str, str]:
        """Attributes of the row, by the names of the object's fields."""
        kept = [each.name for each in dataclasses.fields(self.row) if each.name not in self.without]
        own = {name.removesuffix("_us") if self._is_time(name) else name: name for name in kept}
        return own | {name: name for name in (*self.also, *self.more) if name not in own}

    def _is_time(self, attribute: str) -> bool:
        return self.times and attribute.endswith("_us")


@dataclass(frozen=True)
class Listed:
    """JSON object of a list alone, as metadata of its annotation; the route returns the list.

    Parameters
    ----------
    field
        Name of the list in the object.
    name, about
        Name and description of the object's type.
    """

    field: str
    name: str
    about: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(_list_object(self, source))


@cache
def as_it_stands(row: type) -> FieldsOf:
    """Object of all fields of a dataclass, under the name of its class."""
    return FieldsOf(row)


@cache  # two types of one name would be told apart in every client
def _list_object(declared: Listed, kind: Any) -> Any:
    return _object(declared.name, {declared.field: kind}, declared.about)


def _object(name: str, kinds: dict[str, Any], about: str) -> Any:
    made: Any = TypedDict(name, kinds)  # type: ignore[misc]  # named while running
    made.__doc__ = about
    return made


def _json_type(kind: Any) -> Any:
    """Type of a field in JSON."""
    if dataclasses.is_dataclass(kind):
        return Annotated[dict[str, Any], as_it_stands(kind)]  # type: ignore[arg-type]  # no object is a type here
    if kind == FloatOrNull:
        return float | None
    parts = tuple(map(_json_type, get_args(kind)))
    if parts == get_args(kind):
        return kind
    origin: Any = get_origin(kind)
    return reduce(or_, parts) if origin in _UNIONS else origin[parts]


def _encoder(kind: Any, *above: Any) -> Callable[[Any], Any]:
    """Function that gives values of a type the form that the type declares; ``above``: types it is within."""
    if kind == Time:
        return lambda value: utc_text(value) if isinstance(value, int) else value
    for declared in getattr(kind, "__metadata__", ()):
        if isinstance(declared, FieldsOf):
            return lambda value: declared._values(value, {}) if isinstance(value, declared.row) else value
        if isinstance(declared, Listed):
            encode_list = _encoder(kind.__origin__)
            return lambda value: {declared.field: encode_list(value)}
    if is_typeddict(kind):
        return _same if kind in above else _object_encoder(kind, *above, kind)
    inner = [_encoder(each, *above) for each in get_args(kind)]
    encode = next((each for each in inner if each is not _same), _same)
    origin = get_origin(kind)
    if encode is _same or origin is NotRequired:
        return encode
    if origin in _UNIONS:
        return lambda value: None if value is None else encode(value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return lambda value: {name: encode(each) for name, each in value.items()}
    return lambda value: [encode(each) for each in value]


def _object_encoder(kind: Any, *above: Any) -> Callable[[Any], Any]:
    """Encoder of the fields of an object that have one."""
    hints = get_type_hints(kind, include_extras=True)
    inner = {name: _encoder(hint, *above) for name, hint in hints.items()}
    encoders = {name: encode for name, encode in inner.items() if encode is not _same}
    if not encoders:
        return _same
    return lambda body: body | {name: encode(body[name]) for name, encode in encoders.items() if name in body}


def _same(value: Any) -> Any:
    return value
