"""First records of versions, prompts and clients; loaded configurations.

An attribute's text counts once ten entities have stated it, twenty new ones a day; what a sender invents with
every record is no event.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.assertions import Batch
from outrider.assertions.comparison.typed_text import text_of
from outrider.assertions.profiling.layout import batch_entities
from outrider.dataops.state.rows import Row, insert_rows
from outrider.dataops.state.series_tables import FirstSeen

from .minutes import DAY_US, minute_of
from .stated_values import OTHERS

VERSION, CONFIGURATION = "version", "configuration"
STATED: Mapping[str, str] = {
    "prompt_version": "attrs.prompt_version",
    "client_version": "attrs.client_version",
}
"""Columns whose new texts are events, by kind."""
LEAST_ENTITIES = 10
MOST_OF_A_DAY = 20
LONGEST = 100
_CANDIDATES = 1000


@dataclass(slots=True)
class SeenNames:
    """Names that records of a model have stated, by kind."""

    known: dict[str, set[str]] = field(default_factory=dict)
    _met: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Entities of names that are no event yet, ten at most."""
    _days: dict[tuple[str, int], int] = field(default_factory=dict)
    """Events of a kind and day."""

    @classmethod
    def stored(cls, connection: Connection, model: str) -> "SeenNames":
        """Names as the database has them."""
        found = cls()
        query = "SELECT kind, name, at_us FROM first_seen WHERE model = ?"
        for kind, name, at_us in connection.exec_driver_sql(query, (model,)):
            found._note(kind, name, at_us)
        return found

    def versions(self, model: str, names: Sequence[str | None], minutes_us: NDArray[np.int64]) -> list[Row]:
        """Rows of versions met for the first time."""
        new = set(names) - self.known.get(VERSION, set()) - {None, "", OTHERS}
        if not new:
            return []
        rows = []
        for name, minute in zip(names, minutes_us.tolist(), strict=True):
            if name in new:
                new.discard(name)
                self._note(VERSION, str(name), minute)
                rows.append((model, VERSION, name, minute))
        return rows

    def stated(self, judged: Batch, *, received_us: int) -> list[Row]:
        """Rows of prompts and clients that enough entities have stated first."""
        return [
            (judged.model, kind, name, minute_of(received_us))
            for kind, column in STATED.items()
            if judged.has(column)
            for name in self._new(kind, judged, column, received_us)
        ]

    def _new(self, kind: str, judged: Batch, column: str, received_us: int) -> Iterable[str]:
        texts = pa.array(text_of(judged, column), pa.string())
        known = self.known.get(kind, set())
        fresh = {name for name in pc.unique(texts).to_pylist() if name and name not in known}
        for name in sorted(fresh):
            if len(name) > LONGEST or not self._is_met(kind, name, judged, texts):
                continue
            if self._days.get((kind, received_us // DAY_US), 0) < MOST_OF_A_DAY:
                self._note(kind, name, received_us)
                yield name

    def _is_met(self, kind: str, name: str, judged: Batch, texts: pa.Array) -> bool:
        key = kind, name
        if key not in self._met and len(self._met) >= _CANDIDATES:
            self._met.pop(next(iter(self._met)))
        met = self._met.setdefault(key, set())
        rows = pc.indices_nonzero(pc.fill_null(pc.equal(texts, name), False))
        entities = pc.coalesce(batch_entities(judged).cast(pa.string()), pa.array(judged.keys.tolist()))
        met.update(entities.take(rows[: 4 * LEAST_ENTITIES]).to_pylist()[: 4 * LEAST_ENTITIES])
        if len(met) < LEAST_ENTITIES:
            return False
        del self._met[key]
        return True

    def _note(self, kind: str, name: str, at_us: int) -> None:
        self.known.setdefault(kind, set()).add(name)
        day = kind, at_us // DAY_US
        self._days[day] = self._days.get(day, 0) + 1


def note_first_seen(connection: Connection, rows: Sequence[Row]) -> None:
    """Store names with their first minutes; known ones stay."""
    insert_rows(connection, FirstSeen, rows)


def note_configuration(connection: Connection, digest: str, *, at_us: int) -> None:
    """Store a loaded configuration that differs from the one before."""
    newest = (
        "SELECT name FROM first_seen WHERE model = '' AND kind = ? ORDER BY at_us DESC, name DESC LIMIT 1"
    )
    if connection.exec_driver_sql(newest, (CONFIGURATION,)).scalar() != digest:
        replace = "INSERT OR REPLACE INTO first_seen (model, kind, name, at_us) VALUES ('', ?, ?, ?)"
        connection.exec_driver_sql(replace, (CONFIGURATION, digest, at_us))
