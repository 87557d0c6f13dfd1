"""The API of dataset tags, and the versions that requests name."""

from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter
from pydantic import AfterValidator, Field
from sqlalchemy import Engine
from typing_extensions import TypedDict

from outrider.dataops.datasets import references
from outrider.dataops.datasets.references import Tag, TagTaken
from outrider.dataops.state.database import now_us, write
from outrider.monitor.http.common import RequestBody
from outrider.monitor.http.declared import Declared, FieldsOf
from outrider.monitor.http.problem import ProblemError, problem


def _storable(text: str) -> str:
    if text.isdecimal() and int(text[:20]) >= 2**63:
        raise ValueError("number below 2**63 expected")
    return text


Selector: TypeAlias = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_storable)]
"""A version by its number, a tag, a time or ``newest``."""
TAG = FieldsOf(Tag, "DatasetTag", times=True)
TagFacts: TypeAlias = Annotated[dict[str, Any], TAG]


class DatasetTags(TypedDict):
    """Tags of a dataset."""

    tags: list[TagFacts]


class TagRequest(RequestBody):
    """A tag for a dataset version, taken from another where ``moves``."""

    tag: str
    version: Selector
    moves: bool = False


def add_dataset_tags(router: APIRouter, engine: Engine) -> None:
    """Add the routes."""

    @router.get("/datasets/{name}/tags", tags=["datasets"])
    def get_tags(name: str) -> Declared[DatasetTags]:
        """Tags of a dataset with the versions that they name."""
        with engine.connect() as connection:
            references.find_version(connection, name)
            return {"tags": [_json(tag) for tag in references.list_tags(connection, name)]}

    @router.post("/datasets/{name}/tags", tags=["datasets"])
    def set_tag(name: str, body: TagRequest) -> Declared[TagFacts]:
        """Name a version; 409 where the tag names another one and ``moves`` is false."""
        try:
            with write(engine) as connection:
                found = references.set_tag(
                    connection, name, body.tag, body.version, moves=body.moves, now_us=now_us()
                )
        except TagTaken as error:
            raise ProblemError(problem(409, str(error), field="tag")) from None
        except ValueError as error:
            raise ProblemError(problem(422, str(error), field="tag")) from None
        return _json(found)

    @router.post("/datasets/{name}/tags/{tag}/remove", tags=["datasets"])
    def remove_tag(name: str, tag: str) -> Declared[TagFacts]:
        """Remove a tag; the version that it named stays."""
        with write(engine) as connection:
            return _json(references.remove_tag(connection, name, tag))


def _json(tag: Tag) -> dict[str, Any]:
    return TAG.body(tag)
