"""Pictures of records and evidence: parts, addresses, pixels."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from outrider.assertions import Batch
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.queries.payload_views import flatten, picture_columns
from outrider.monitor.queries.queries import FlagView

from .images import as_image, is_image, to_png

Picture = tuple[str, str]
"""(address, caption)."""


LEVELS = ("info", "warning", "critical")
_SAID = {"outputs": "perturbed", "original": "original"}
"""What the page calls the answers in the evidence of a live test."""


@dataclass(frozen=True, slots=True)
class FlagCard:
    """Flags of one record in one slot, shown together."""

    flag: FlagView
    """The first of them; all say the same of the record."""
    flags: tuple[FlagView, ...]
    level: str
    """Highest of their levels."""
    link: str
    pictures: tuple[Picture, ...]
    evidence_pictures: tuple[Picture, ...]
    facts: tuple[tuple[str, str], ...]


def image_columns(batch: Batch) -> list[str]:
    return [
        name
        for name in batch.names
        if name.startswith(("inputs.", "outputs."))
        and hasattr(batch.to_arrow().schema.field(name).type, "shape")
        and is_image(tuple(batch.to_arrow().schema.field(name).type.shape))
    ]


def record_link(model: str, record_id: str) -> str:
    return f"/m/{quote(model, safe='')}/records/{quote(record_id, safe='')}"


def record_pictures(batch: Batch | None, model: str, record_id: str, row: int) -> tuple[Picture, ...]:
    base = f"/m/{quote(model, safe='')}/images/records"
    columns = [*image_columns(batch), *picture_columns(batch, row)] if batch is not None else []
    return tuple(
        (f"{base}/{quote(name, safe='')}/{quote(record_id, safe='')}", name.removeprefix("inputs."))
        for name in columns
    )


def draw(batch: Batch, row: int, column: str) -> bytes | None:
    """PNG of a record's column; None without value or picture."""
    if column not in image_columns(batch):
        return None
    one = batch.slice(row, 1)
    if one.rows == 0 or bool(one.is_null(column)[0]):
        return None
    return to_png(one.tensor(column)[0])


def draw_evidence(evidence: Mapping[str, Any], name: str) -> bytes | None:
    """PNG of evidence by dotted name; None if no picture."""
    for found, value in _images(evidence):
        if found == name:
            return to_png(value)
    return None


def make_cards(flags: Sequence[FlagView], batch: Callable[[int], Batch | None]) -> list[FlagCard]:
    groups = groupby(flags, key=lambda flag: (flag.record_id, flag.slot))
    return [make_card(tuple(group), batch) for _, group in groups]


def make_card(flags: tuple[FlagView, ...], batch: Callable[[int], Batch | None]) -> FlagCard:
    first = flags[0]
    shown: list[Picture] = []
    facts: list[tuple[str, str]] = []
    for flag in flags:
        base = f"/m/{quote(flag.model, safe='')}/images/flags/{quote(flag.id, safe='')}"
        found = [name for name, _ in _images(flag.evidence)]
        answer = [text for _, text in flatten(flag.evidence.get("outputs", {}))][:1]
        suffix = f" → {answer[0]}" if answer else ""
        shown += [(f"{base}/{quote(name, safe='')}", _caption(name) + suffix) for name in found]
        told = _without_places(_without(flag.evidence, set(found)))
        is_live = isinstance(flag.evidence.get("inputs"), Mapping)
        facts += [(_caption(name) if is_live else name, text) for name, text in flatten(told)]
    return FlagCard(
        flag=first,
        flags=tuple(sorted(flags, key=lambda flag: -LEVELS.index(flag.level))),
        level=max((flag.level for flag in flags), key=LEVELS.index),
        link=record_link(first.model, first.record_id),
        pictures=record_pictures(batch(first.seq), first.model, first.record_id, first.row)[:2]
        + tuple(shown[:2]),
        evidence_pictures=tuple(shown),
        facts=tuple(facts),
    )


def _caption(name: str) -> str:
    part, _, rest = name.partition(".")
    if part == "inputs":
        return "perturbed"
    return f"{_SAID.get(part, part)} {rest}".strip()


def _images(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _images(inner, f"{name}.{key}" if name else str(key))
    else:
        array = as_image(value)
        if array is not None:
            yield name, array


def _without_places(value: Any) -> Any:
    """Evidence without the places in texts, which are shown marked."""
    if isinstance(value, list):
        return [_without_places(inner) for inner in value if inner != []] or None
    if not isinstance(value, Mapping):
        return value
    places = {"start", "end"} if {"start", "end"} <= value.keys() else set()
    kept = {key: _without_places(inner) for key, inner in value.items() if key not in places}
    return {key: inner for key, inner in kept.items() if inner not in ({}, [{}])}


def _without(value: Any, names: set[str], name: str = "") -> Any:
    if not isinstance(value, Mapping):
        return value
    pairs = {key: f"{name}.{key}" if name else str(key) for key in value}
    return {key: _without(value[key], names, full) for key, full in pairs.items() if full not in names}


_NO_PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#8a8f9c">'
    '<circle cx="12" cy="12" r="5"/><path d="m8.5 15.5 7-7"/></svg>'
)
"""Shown for a picture that cannot be; browsers draw what comes with a 404 too."""
PICTURE_HEADERS = {
    "cache-control": "private, max-age=86400, immutable",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'",
}


def png(image: bytes | None) -> Response:
    if image is None:
        return Response(_NO_PICTURE, 404, media_type="image/svg+xml", headers=HEADERS)
    return Response(image, media_type="image/png", headers=PICTURE_HEADERS)
