"""Bodies of routes: rows become the JSON objects that their annotations declare."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypeAlias

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from outrider.monitor.http.declared import FieldsOf, Listed, declared


@dataclass(frozen=True, slots=True)
class Look:
    """Look at a stream."""

    at_us: int
    share: float
    secret: str = ""


_LOOK = FieldsOf(Look, "LookFacts", times=True, without=("secret",))
LookFacts: TypeAlias = Annotated[Look, _LOOK]


class Node(TypedDict):
    """Node of a tree of looks."""

    look: LookFacts | None
    by_name: Mapping[str, list[LookFacts]]
    parents: list["Node"]
    last: NotRequired[LookFacts]


LOOK = Look(0, math.nan, "hidden")
SHOWN = {"at": "1970-01-01T00:00:00Z", "share": None}


def sent(kind: Any, body: Any) -> Any:
    """Body as FastAPI sends it."""
    adapter = TypeAdapter(declared(kind))
    return json.loads(adapter.dump_json(adapter.validate_python(body)))


def test_a_row_is_the_object_that_its_annotation_declares() -> None:
    assert sent(LookFacts, LOOK) == SHOWN == _LOOK.body(LOOK)
    assert sent(LookFacts, SHOWN) == SHOWN


def test_a_list_alone_is_in_an_object_of_its_name() -> None:
    kind = Annotated[list[LookFacts], Listed("looks", "Looks", "Looks, newest first.")]
    assert sent(kind, [LOOK, LOOK]) == {"looks": [SHOWN, SHOWN]}
    assert sent(kind, []) == {"looks": []}
    schema = TypeAdapter(kind).json_schema()
    assert (schema["title"], schema["description"]) == ("Looks", "Looks, newest first.")
    assert schema["required"] == ["looks"]


def test_rows_within_an_object_are_encoded_and_the_order_of_fields_stays() -> None:
    leaf: Node = {"look": None, "by_name": {}, "parents": []}
    body: Node = {"look": LOOK, "by_name": {"a": [LOOK]}, "parents": [leaf], "last": LOOK}
    found = sent(Node, body)
    assert found == {"look": SHOWN, "by_name": {"a": [SHOWN]}, "parents": [leaf], "last": SHOWN}
    assert list(found) == list(body)
    assert sent(Node, leaf) == leaf
