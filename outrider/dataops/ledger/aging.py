"""Aging of counts and profiles: by the hour, by the day, gone."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from outrider.dataops.state.database import write

from . import stored_profiles
from .cube import AGING, STATED, roll_up
from .minutes import HOUR_US, KEPT_US
from .stated_values import forget_unmet
from .stored_profiles import KeptProfiles

_COUNTED = (*(cube.table.name for cube in (*AGING, STATED)), "minute_block", "profile")


def age(connection: Connection, model: str, *, before_us: int, now_us: int, kept: KeptProfiles) -> None:
    """Join a model's old counts and profiles, once an hour.

    Parameters
    ----------
    before_us
        When it was last done; 0 for never.
    """
    if before_us // HOUR_US != now_us // HOUR_US:
        roll_up(connection, model, before_us=before_us, now_us=now_us)
        stored_profiles.roll_up(connection, model, now_us=now_us, kept=kept)
        forget_unmet(connection, model, now_us=now_us)


@dataclass(slots=True)
class RemovedModels:
    """Aging of models that no worker looks after, once an hour."""

    known: Collection[str]
    """Models of the configuration."""
    engine: Engine
    kept: KeptProfiles
    _done_us: int = 0

    def step(self, now_us: int) -> None:
        """Age counts and profiles where an hour has begun."""
        if self._done_us // HOUR_US == now_us // HOUR_US:
            return
        with self.engine.connect() as connection:
            removed = counted_models(connection) - set(self.known)
        for model in sorted(removed):
            with write(self.engine) as connection:
                age(connection, model, before_us=self._done_us, now_us=now_us, kept=self.kept)
                _forget_rest(connection, model, now_us=now_us)
        self._done_us = now_us


def _forget_rest(connection: Connection, model: str, *, now_us: int) -> None:
    """Drop rows that outlive the counts of a model without a worker."""
    for table, kept_us in ((STATED.table.name, HOUR_US), ("minute_block", KEPT_US)):
        old = f"DELETE FROM {table} WHERE model = ? AND minute_us < ?"
        connection.exec_driver_sql(old, (model, now_us - kept_us))


def counted_models(connection: Connection) -> set[str]:
    """Models with counts or profiles, found without reading these."""
    found: set[str] = set()
    for table in _COUNTED:
        after: str | None = ""
        while after is not None:
            query = f"SELECT min(model) FROM {table} WHERE model > ?"
            after = connection.exec_driver_sql(query, (after,)).scalar()
            if after is not None:
                found.add(after)
    return found
