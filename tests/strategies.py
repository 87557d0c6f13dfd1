"""Hypothesis strategies for records and batches."""

from typing import Any

from hypothesis import strategies as st

from outrider.assertions import Batch

TIMES = st.datetimes().map(lambda time: time.isoformat() + "Z")
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
INTEGERS = st.integers(-(2**53), 2**53)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PIXELS = st.lists(st.floats(-4, 4, width=32), min_size=2, max_size=2)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "inputs.count": INTEGERS,
    "inputs.size": FLOATS,
    "inputs.word": WORDS,
    "inputs.image": st.lists(PIXELS, min_size=3, max_size=3),
    "inputs.tokens": st.lists(st.integers(0, 99), max_size=3).map(lambda tokens: ["t", *map(str, tokens)]),
    "outputs.label": st.integers(0, 9),
    "outputs.probs": PIXELS,
    "label.right": st.booleans(),
    "attrs.device": st.sampled_from(["web", "app", "café"]),
}


@st.composite
def records(draw: st.DrawFn, *, min_size: int = 0, max_size: int = 6) -> list[dict[str, Any]]:
    """Records as in ``POST /v1/records``, any value of which may be missing."""
    fields = draw(st.lists(st.sampled_from(sorted(FIELDS)), unique=True))
    found: list[dict[str, Any]] = []
    for row in range(draw(st.integers(min_size, max_size))):
        record: dict[str, Any] = {"id": f"r{row}", "ts": draw(TIMES)}
        for name in ("entity", "version"):
            if draw(st.booleans()):
                record[name] = draw(WORDS)
        if draw(st.booleans()):
            record["seq"] = draw(st.integers(0, 2**62))
        for name in fields:
            value = draw(st.none() | FIELDS[name])
            if value is not None:
                part, _, field = name.partition(".")
                record.setdefault(part, {})[field] = value
        found.append(record)
    return found


def batches(*, min_size: int = 0, max_size: int = 6) -> st.SearchStrategy[Batch]:
    """Batches of :func:`records`."""
    return records(min_size=min_size, max_size=max_size).map(
        lambda found: Batch.from_records(found, model="m")
    )
