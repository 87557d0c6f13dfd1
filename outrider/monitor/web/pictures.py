"""Which parts of a record or of a flag's evidence are pictures, where they are served, and their pixels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from outrider.assertions import Batch

from .images import as_image, is_image, to_png
from .queries import FlagView
from .rendering import flatten

Picture = tuple[str, str]
"""(address, caption)."""


@dataclass(frozen=True, slots=True)
class Card:
    """A flag as it is shown."""

    flag: FlagView
    link: str
    pictures: tuple[Picture, ...]
    evidence_pictures: tuple[Picture, ...]
    facts: tuple[tuple[str, str], ...]


def image_columns(batch: Batch) -> list[str]:
    """Input and output columns that can be shown as images."""
    return [
        name
        for name in batch.names
        if name.startswith(("inputs.", "outputs."))
        and hasattr(batch.to_arrow().schema.field(name).type, "shape")
        and is_image(tuple(batch.to_arrow().schema.field(name).type.shape))
    ]


def record_link(model: str, record_id: str) -> str:
    """Permanent address of a record."""
    return f"/m/{quote(model, safe='')}/records/{quote(record_id, safe='')}"


def record_pictures(batch: Batch | None, model: str, record_id: str) -> tuple[Picture, ...]:
    """Pictures of one record."""
    base = f"/m/{quote(model, safe='')}/images/records"
    columns = image_columns(batch) if batch is not None else []
    return tuple(
        (f"{base}/{quote(name, safe='')}/{quote(record_id, safe='')}", name.removeprefix("inputs."))
        for name in columns
    )


def draw(batch: Batch, row: int, column: str) -> bytes | None:
    """PNG of one record's column; None when it is no picture or has no value."""
    if column not in image_columns(batch):
        return None
    one = batch.slice(row, 1)
    if one.rows == 0 or bool(one.is_null(column)[0]):
        return None
    return to_png(one.tensor(column)[0])


def draw_evidence(evidence: Mapping[str, Any], name: str) -> bytes | None:
    """PNG of the part of the evidence with that dotted name; None when it is no picture."""
    for found, value in _images(evidence):
        if found == name:
            return to_png(value)
    return None


def make_card(flag: FlagView, batch: Batch | None) -> Card:
    """A flag with the pictures of its record and of its evidence, and the rest of the evidence as text."""
    base = f"/m/{quote(flag.model, safe='')}/images/flags/{quote(flag.id, safe='')}"
    found = [name for name, _ in _images(flag.evidence)]
    shown = tuple((f"{base}/{quote(name, safe='')}", name.rpartition(".")[2]) for name in found)
    if len(found) == 1 and found[0].rpartition(".")[0]:
        shown = ((shown[0][0], "perturbed" if "perturb" in found[0] else found[0].partition(".")[0]),)
    return Card(
        flag=flag,
        link=record_link(flag.model, flag.record_id),
        pictures=record_pictures(batch, flag.model, flag.record_id)[:2] + shown[:2],
        evidence_pictures=shown,
        facts=tuple(flatten(_without(flag.evidence, set(found)))),
    )


def _images(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _images(inner, f"{name}.{key}" if name else str(key))
    else:
        array = as_image(value)
        if array is not None:
            yield name, array


def _without(value: Any, names: set[str], name: str = "") -> Any:
    if not isinstance(value, Mapping):
        return value
    pairs = {key: f"{name}.{key}" if name else str(key) for key in value}
    return {key: _without(value[key], names, full) for key, full in pairs.items() if full not in names}
