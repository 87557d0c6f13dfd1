"""References to dataset versions: ``name``, ``name@3``, ``name@tag`` or ``name@2026-11-01T12:00``."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.sqlite import insert

from outrider.dataops.payloads.objects import is_digest
from outrider.dataops.state.improvement_tables import DatasetTag, DatasetVersion
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound, OutriderError, check_name, nearest

from .versions import Version, get, newest

NEWEST = "newest"
_TAGS, _VERSION = table_of(DatasetTag), table_of(DatasetVersion)
_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d")
_MOST = 2**63


@dataclass(frozen=True, slots=True)
class Tag:
    """Name of a dataset version."""

    dataset: str
    tag: str
    version: int
    set_us: int


class TagTaken(OutriderError):  # noqa: N818 - reads as the state it is
    pass


def name_of(reference: str) -> str:
    return reference.partition("@")[0]


def check_dataset_name(name: str) -> str:
    if "@" in name:
        raise ValueError(f"dataset {name[:200]!r}: a name expected without '@', which a version follows")
    return check_name(name, "dataset")


def open_version(connection: Connection, reference: str) -> Version:
    name, _, selector = reference.partition("@")
    return find_version(connection, name, selector)


def open_if_any(connection: Connection, reference: str | None) -> Version | None:
    """None if the dataset has no version yet."""
    if not reference or newest(connection, name_of(reference)) is None:
        return None
    return open_version(connection, reference)


def find_version(connection: Connection, dataset: str, selector: str = NEWEST) -> Version:
    """By number, tag, time, digest or ``newest``."""
    if newest(connection, dataset) is None:
        known = connection.scalars(select(_VERSION.c.dataset).distinct())
        raise NotFound(f"no dataset {dataset!r}{nearest(dataset, known)}")
    if selector in ("", NEWEST):
        return get(connection, dataset)
    if selector.isdecimal():
        return get(connection, dataset, min(int(selector[:20]), _MOST - 1))
    if _TIME.match(selector):
        return _as_of(connection, dataset, _time_us(selector))
    number = connection.scalar(
        select(_TAGS.c.version).where(_TAGS.c.dataset == dataset, _TAGS.c.tag == selector)
    )
    if number is None and is_digest(selector):
        return get(connection, dataset, selector)
    if number is None:
        tags = [tag.tag for tag in list_tags(connection, dataset)]
        raise NotFound(
            f"dataset {dataset!r} has no tag {selector[:80]!r}{nearest(selector, tags) or '; it has none'}"
        )
    return get(connection, dataset, number)


def set_tag(
    connection: Connection, dataset: str, tag: str, selector: str, *, moves: bool, now_us: int
) -> Tag:
    """``moves`` if the tag may leave another version; else ``TagTaken``."""
    if not _TAG.fullmatch(tag) or tag == NEWEST:
        raise ValueError(
            f"tag: a letter, then up to 63 letters, digits, '.', '_' or '-' expected, and not {NEWEST!r}; "
            f"got {tag[:80]!r}"
        )
    version = find_version(connection, dataset, selector)
    before = next((known for known in list_tags(connection, dataset) if known.tag == tag), None)
    if before is not None and before.version == version.number:
        return before
    if before is not None and not moves:
        raise TagTaken(
            f"tag {tag!r} names {dataset}@{before.version}: give another, or move it (--move, moves: true)"
        )
    made = Tag(dataset, tag, version.number, now_us)
    values = {"version": made.version, "set_us": made.set_us}
    put = insert(_TAGS).values(dataset=dataset, tag=tag, **values)
    connection.execute(put.on_conflict_do_update(index_elements=["dataset", "tag"], set_=values))
    return made


def remove_tag(connection: Connection, dataset: str, tag: str) -> Tag:
    find_version(connection, dataset)
    known = list_tags(connection, dataset)
    found = next((known_tag for known_tag in known if known_tag.tag == tag), None)
    if found is None:
        there = nearest(tag, [known_tag.tag for known_tag in known]) or "; it has none"
        raise NotFound(f"dataset {dataset!r} has no tag {tag[:80]!r}{there}")
    connection.execute(delete(_TAGS).where(_TAGS.c.dataset == dataset, _TAGS.c.tag == tag))
    return found


def list_tags(connection: Connection, dataset: str | None = None) -> list[Tag]:
    query = select(_TAGS).order_by(_TAGS.c.dataset, _TAGS.c.tag)
    if dataset is not None:
        query = query.where(_TAGS.c.dataset == dataset)
    return [Tag(**row._mapping) for row in connection.execute(query)]


def tags_of(connection: Connection, version: Version) -> list[str]:
    tags = list_tags(connection, version.dataset)
    return [tag.tag for tag in tags if tag.version == version.number]


def _as_of(connection: Connection, dataset: str, us: int) -> Version:
    query = select(_VERSION.c.number).where(_VERSION.c.dataset == dataset, _VERSION.c.created_us <= us)
    number = connection.scalar(query.order_by(_VERSION.c.number.desc()).limit(1))
    if number is None:
        first = get(connection, dataset, 1)
        raise NotFound(
            f"dataset {dataset!r} had no version then: the first is of {_text(first.created_us)}, "
            f"asked for was {_text(us)}"
        )
    return get(connection, dataset, number)


def _time_us(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise NotFound(f"{text[:80]!r} is no time: 2026-11-01 or 2026-11-01T12:00 expected, UTC") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def _text(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="seconds")
