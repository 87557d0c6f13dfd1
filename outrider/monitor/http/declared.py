"""Types of API bodies for ``/openapi.json``, from the code's types."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, reduce
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema, to_jsonable_python
from typing_extensions import TypedDict

from outrider.assertions.statistics.loss_bounds import FloatOrNull
from outrider.assertions.times import utc_text

T = TypeVar("T")
Time: TypeAlias = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""ISO 8601, UTC."""
_UNIONS = (Union, UnionType)


@dataclass(frozen=True, eq=False)
class _Declared:
    """Leaves a body as it is: its type was checked when it was written, its values when they were stored."""

    body: Any

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        declared = TypeAdapter(self.body).core_schema  # not before: it takes a second for the whole API
        return handler(core_schema.chain_schema([declared]))  # of a chain the last, by its name


def declared(body: Any) -> Any:
    """Type of a body that is described and not checked."""
    return Annotated[Any, _Declared(body)]


if TYPE_CHECKING:
    Declared: TypeAlias = Annotated[T, "declared"]
else:

    class Declared:
        """Type of a route's body, declared at no cost per request."""

        def __class_getitem__(cls, body: Any) -> Any:
            return declared(body)


@dataclass(frozen=True, eq=False)
class FieldsOf:
    """JSON object of a dataclass: its type, as metadata of ``Annotated``, and its values.

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
        made: Any = TypedDict(self.name or self.row.__name__, self._kinds)  # type: ignore[misc]  # named while running
        said = inspect.getdoc(self.row) or ""
        made.__doc__ = self.about or said.partition("\n\n")[0]
        return made

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


@cache
def as_it_stands(row: type) -> FieldsOf:
    """Object of all fields of a dataclass, under the name of its class."""
    return FieldsOf(row)


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


def _encoder(kind: Any) -> Callable[[Any], Any]:
    """Function that gives values of a type the form that the type declares."""
    if kind == Time:
        return lambda value: utc_text(value) if isinstance(value, int) else value
    for declared in getattr(kind, "__metadata__", ()):
        if isinstance(declared, FieldsOf):
            return lambda value: declared._values(value, {}) if isinstance(value, declared.row) else value
    inner = [_encoder(each) for each in get_args(kind)]
    encode = next((each for each in inner if each is not _same), _same)
    origin = get_origin(kind)
    if encode is _same or origin in _UNIONS:
        return encode
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return lambda value: {name: encode(each) for name, each in value.items()}
    return lambda value: [encode(each) for each in value]


def _same(value: Any) -> Any:
    return value
