"""Expiry of old rows, slice by slice, after that of payloads; `dataops.journal.row_expiry` decides."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Engine

from outrider.dataops.journal import row_expiry
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.journal.row_expiry import DAY_US, START, RowPlace
from outrider.dataops.state.clock import present_us
from outrider.dataops.state.database import write
from outrider.monitor.metrics.registry import Metrics
from outrider.monitor.settings.sections import StorageSettings

SLICE_ROWS = 1000
PASS_US = 3_600_000_000
"""Pause of a model after its last old record: what stayed is looked at again."""


@dataclass(slots=True)
class _Pass:
    at: RowPlace = START
    until: int = 0
    gone: int = 0
    next_us: int = 0


@dataclass(slots=True)
class RowExpirer:
    storage: StorageSettings
    engine: Engine
    reader: SqliteJournal
    metrics: Metrics
    ended: list[tuple[str, int]] = field(default_factory=list)
    """Models and last blocks of passes that let records go: payloads were kept for some of these."""
    _passes: dict[str, _Pass] = field(default_factory=dict)
    _hash: bytes | None = b""
    _hashes_us: int = 0

    def step(self, through: Mapping[str, int], now_us: int) -> bool:
        """Expire one slice of what payload expiry has passed (``through``); False if nothing is due."""
        for model, last in through.items():
            walk = self._passes.setdefault(model, _Pass())
            if not model or (walk.at == START and now_us < walk.next_us):
                continue
            if walk.at == START:
                walk.until = self._until(model, last, now_us)
            if walk.until and not self._slice(model, walk, now_us):
                return True
            if walk.gone:
                self.ended.append((model, walk.until))
            self._passes[model] = _Pass(next_us=now_us + PASS_US)
        return self._forget(now_us)

    def _until(self, model: str, last: int, now_us: int) -> int:
        days = max(self.storage.keep_rows_days, self.storage.keep_days)
        steps = self.reader.steps()

        def is_old(seq: int, received_us: int) -> bool:
            return present_us(steps, seq, received_us) < now_us - days * DAY_US

        with self.engine.connect() as connection:
            return min(last, row_expiry.old_rows(connection, model, is_old))

    def _slice(self, model: str, walk: _Pass, now_us: int) -> bool:
        """Expire the next records; True at the end of the pass."""
        with write(self.engine) as connection:
            found = row_expiry.expire_rows(
                connection, model, after=walk.at, until=walk.until, limit=SLICE_ROWS, now_us=now_us
            )
            loose = 0
            if found is None:
                loose = row_expiry.expire_loose(connection, model, until=walk.until, most=SLICE_ROWS)
        if found is not None:
            walk.at = found.last
            walk.gone += found.gone
            self.metrics.counter("outrider_records_expired_total").labels(model=model).inc(found.gone)
        return found is None and not loose

    def _forget(self, now_us: int) -> bool:
        """Forget the next expired ids, once a day all of them."""
        if self._hash is None and now_us < self._hashes_us:
            return False
        before = int((now_us - self.storage.keep_ids_days * DAY_US) // DAY_US)
        with write(self.engine) as connection:
            self._hash = row_expiry.forget_hashes(
                connection, before_day=before, after=self._hash or b"", limit=SLICE_ROWS
            )
        self._hashes_us = now_us + DAY_US
        return self._hash is not None
