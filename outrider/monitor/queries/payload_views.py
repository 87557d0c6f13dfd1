"""Payloads on pages: descriptions, and bytes of browser images.

Nothing is decoded here: pages are served by the process that takes records.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from outrider.assertions import Batch
from outrider.dataops.payloads.columns import field_of
from outrider.dataops.payloads.payloads import payload_columns
from outrider.dataops.payloads.roots import PayloadError
from outrider.dataops.payloads.store import PayloadStore

TEXT_BYTES = 4096
"""Longer texts are cut."""
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


def image_kind(data: bytes) -> str | None:
    """Media type of a browser image, by first bytes, else None.

    Examples
    --------
    >>> image_kind(b"GIF89a..."), image_kind(b"<svg onload=...>")
    ('image/gif', None)
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _BEGINNINGS if data.startswith(start)), None)


def described(batch: Batch, row: int) -> dict[str, dict[str, Any]]:
    """Description of one record's payloads, as ``{part: {field: …}}``."""
    found: dict[str, dict[str, Any]] = {}
    for name in payload_columns(batch):
        value = batch.arrow(name)[row].as_py()
        if value is not None:
            part, _, field = name.partition(".")
            found.setdefault(part, {})[field] = _described(value)
    return found


def _described(value: dict[str, Any]) -> Any:
    data, kind = value["bytes"], value["media_type"]
    told = {"media_type": kind} if kind else {}
    if data is None:
        return told | {"uri": value["uri"], "sha256": value["sha256"]}
    if kind == "text/plain":
        text = data[:TEXT_BYTES].decode("utf-8", "replace")
        return text if len(data) <= TEXT_BYTES else f"{text}… ({len(data)} bytes)"
    return {"media_type": image_kind(data), "bytes": len(data)} | told


def picture_columns(batch: Batch, row: int) -> list[str]:
    found = []
    for name in payload_columns(batch):
        value = batch.arrow(name)[row].as_py()
        if value is None:
            continue
        kind = value["media_type"]
        is_reference = value["bytes"] is None and (kind is None or kind.startswith("image/"))
        if is_reference or image_kind(value["bytes"] or b""):
            found.append(name)
    return found


def picture(batch: Batch, row: int, column: str, store: PayloadStore) -> tuple[bytes, str] | None:
    if column not in payload_columns(batch):
        return None
    payload = batch.arrow(column)
    data = field_of(payload, "bytes")[row].as_py()
    uri = field_of(payload, "uri")[row].as_py()
    if data is None and uri is not None:
        try:
            data = store.read(uri, field_of(payload, "sha256")[row].as_py())
        except PayloadError:
            return None
    kind = image_kind(data or b"")
    return None if kind is None else (data, kind)


MOST_ELEMENTS = 20
"""Of a list of objects, each on a line of its own."""


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as (dotted name, text), long ones cut.

    Examples
    --------
    >>> list(flatten({"answer": {"label": 3, "score": 0.51234}}))
    [('answer.label', '3'), ('answer.score', '0.5123')]
    >>> list(flatten({"boxes": [{"left": 2.0, "kind": "car"}]}))
    [('boxes[0]', 'left 2, kind car')]
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, float):
        yield name, f"{value:.4g}"
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for at, inner in enumerate(value[:MOST_ELEMENTS]):
            yield f"{name}[{at}]", ", ".join(" ".join(pair) for pair in flatten(inner))
        if len(value) > MOST_ELEMENTS:
            yield f"{name}[…]", f"{len(value)} in all"
    elif isinstance(value, list) and value and isinstance(value[0], list):
        yield name, f"{len(value)} rows of {len(value[0])} values"
    elif isinstance(value, list):
        shown = ", ".join(text for inner in value[:8] for _, text in flatten(inner))
        yield name, f"{shown}, … ({len(value)})" if len(value) > 8 else shown
    else:
        text = str(value)
        yield name, text if len(text) <= 400 else text[:400] + "…"
