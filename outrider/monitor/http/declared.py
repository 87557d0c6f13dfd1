"""Types of API bodies for ``/openapi.json``, from the code's types."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_type_hints

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

T = TypeVar("T")
Time: TypeAlias = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""ISO 8601, UTC."""


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
    """Dictionary made of a dataclass, declared as metadata of ``Annotated``.

    Parameters
    ----------
    row
        The dataclass.
    name
        Name of the type in ``/openapi.json``.
    times
        Times stand as :func:`~outrider.monitor.http.common.timed` writes them.
    without
        Fields of the row that are left out.
    more
        Fields beside those of the row, or in their place.
    """

    row: type
    name: str
    times: bool = False
    without: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self._type)

    @cached_property
    def _type(self) -> Any:
        made: Any = TypedDict(self.name, self._fields())  # type: ignore[misc]  # named while running
        made.__doc__ = (self.row.__doc__ or "").partition("\n\n")[0]
        return made

    def _fields(self) -> dict[str, Any]:
        hints = get_type_hints(self.row, include_extras=True)
        own = {each.name: hints[each.name] for each in dataclasses.fields(self.row)}
        kept = {name: kind for name, kind in own.items() if name not in self.without}
        if self.times:
            kept = dict(_timed(name, kind) for name, kind in kept.items())
        return kept | dict(self.more)


def _timed(name: str, kind: Any) -> tuple[str, Any]:
    if not name.endswith("_us"):
        return name, kind
    return name.removesuffix("_us"), Time if kind is int else Time | None
