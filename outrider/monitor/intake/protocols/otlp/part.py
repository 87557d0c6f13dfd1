"""Calls of one model become columns."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from outrider.assertions.batch import TIME
from outrider.monitor.intake.column_types import Values
from outrider.monitor.intake.protocols.chat_columns import Fields
from outrider.monitor.intake.request_parts import RequestPart

from .call import Call

_LONGEST = 256


class CallRow(NamedTuple):
    place: int
    call: Call
    is_partial: bool
    fields: Fields


def part_of(model: str, rows: Sequence[CallRow]) -> RequestPart:
    """Columns of calls: id, begin, entity (conversation, else trace), and the known fields."""
    calls = [row.call for row in rows]
    names = dict.fromkeys(name for row in rows for name in row.fields)
    # Exporters that know no time write 0.
    times = pa.array([call.start_us or None for call in calls], pa.int64())
    system: dict[str, Values] = {
        "id": [call.id or None for call in calls],
        "ts": times.cast(TIME),
        "entity": [_entity(call) for call in calls],
        "weight": [row.call.weight for row in rows],
        "partial": [row.is_partial for row in rows],
    }
    columns: dict[str, Values] = {name: [row.fields.get(name) for row in rows] for name in names}
    return RequestPart(model, [row.place for row in rows], system, columns=columns, has_own_names=True)


def _entity(call: Call) -> str | None:
    said = call.conversation
    return said if said and len(said) <= _LONGEST else call.trace or None
