"""Fields of ``state.db``, each with its erasure."""

from collections.abc import Callable
from typing import Any, Literal

import sqlmodel
from pydantic_core import PydanticUndefined
from sqlalchemy import Boolean, Column, Float, Integer
from sqlalchemy.types import TypeEngine

Erase = Literal[
    "kept", "with_row", "record", "subject", "flag", "id_hash", "receipt", "window", "judge", "quotes",
    "categories", "cleared_record", "cleared_model", "slice", "class", "label_slice", "group", "stated",
    "answers", "dataset",
]  # fmt: skip
"""What an erasure does to the values of a column.

``kept`` names no record and quotes none. ``with_row`` is content that goes with its row, and rows go by a
column that names what is erased: ``record``, ``subject``, ``flag``, ``id_hash``, ``receipt`` (its time is
that of an erased record), ``window`` (it holds one), ``judge`` (it judged one). ``quotes`` loses quotations,
and ``categories`` does in the categories of a layout alone. ``cleared_record`` is emptied where it names an
erased record, ``cleared_model`` for each model that loses one. ``slice``, ``class``, ``label_slice`` and
``group`` are names in counts: what only erased records stated is counted without a name; ``stated`` is the
book of these names. ``answers`` lose their rows, and ``dataset`` is erased by
`outrider.dataops.datasets.erased`.
"""
ROW_FACTS: tuple[Erase, ...] = ("record", "subject", "flag", "id_hash", "receipt", "window", "judge")
"""Those by which rows go."""


def Field(  # noqa: N802 - stands in the place of SQLModel's
    *,
    erase: Erase | tuple[Erase, ...] = (),
    default: Any = PydanticUndefined,
    default_factory: Callable[[], Any] | None = None,
    primary_key: bool = False,
    unique: bool = False,
    sa_type: type[TypeEngine[Any]] | TypeEngine[Any] | None = None,
) -> Any:
    """Field of a table, with its erasure.

    Numbers are ``kept`` where they say nothing else.
    """
    facts = (erase,) if isinstance(erase, str) else erase
    given: dict[str, Any] = {"primary_key": primary_key, "sa_column_kwargs": {"info": {"erase": facts}}}
    given |= {"default_factory": default_factory} if default_factory is not None else {"default": default}
    given |= {"unique": True} if unique else {}
    given |= {"sa_type": sa_type} if sa_type is not None else {}
    return sqlmodel.Field(**given)


def erase_facts(column: Column[Any]) -> tuple[Erase, ...]:
    """Erasure facts of a column; empty where none is stated."""
    facts: tuple[Erase, ...] = column.info.get("erase", ())
    return facts or (("kept",) if isinstance(column.type, Integer | Float | Boolean) else ())
