"""Data folder facts for ``outrider doctor``: size, days left, pauses, refusals."""

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import ConfigError

if TYPE_CHECKING:
    from outrider.monitor.settings.config import Settings
    from outrider.monitor.settings.sections import StorageSettings

DAY_US = 86_400e6
ID_BYTES = 32
"""Bytes on disk of the id hash that remains of a deleted record, with its day."""
SHORTEST_US = 60e6
"""Minimum duration, in microseconds, from which a daily rate is extrapolated."""


def data_facts(path: Path) -> dict[str, Any]:
    from outrider.monitor.settings.config import accepted_settings, load_settings

    if not path.exists():
        return {"config": f"{path} not found; run doctor in a project, or name one with --config"}
    facts: dict[str, Any] = {}
    try:
        settings = load_settings(path)
    except ConfigError as error:
        facts["config"] = str(error)
        try:
            settings = accepted_settings(path)
        except ConfigError:
            return facts
    folder = settings.data_folder
    free = shutil.disk_usage(folder if folder.exists() else folder.parent).free
    facts |= {"folder": str(folder), "free_bytes": free} | _of_service(folder)
    if not settings.journal_path.exists():
        return facts | {"journal": "none yet"}
    return facts | _of_stores(settings, free)


def _of_service(folder: Path) -> dict[str, Any]:
    from outrider.monitor.settings.reload import read_state

    state = read_state(folder)
    if not state.problem:
        return {}
    at = datetime.fromtimestamp(state.refused_s, UTC).isoformat(timespec="seconds")
    return {"config_refused": f"{at}: {state.problem}"}


def _of_stores(settings: "Settings", free: int) -> dict[str, Any]:
    folder = settings.data_folder
    journal_bytes, state_bytes = _size(folder / "journal.db"), _size(folder / "state.db")
    with closing(_open(settings.journal_path)) as journal:
        used = _used_bytes(journal)
        records, first, last = journal.execute(
            "SELECT coalesce(sum(rows), 0), min(received_us), max(received_us) FROM block"
            " WHERE kind = 'records'"
        ).fetchone()
        (kept,) = journal.execute("SELECT coalesce(sum(rows), 0) FROM block WHERE kind = 'kept'").fetchone()
    facts: dict[str, Any] = {
        "journal_bytes": journal_bytes,
        "journal_used_bytes": used,
        "state_bytes": state_bytes,
        "records": records,
        "records_kept_of_expired_blocks": kept,
    } | _damage(settings.journal_path)
    judged = _judged(folder / "state.db", facts)
    if not records:
        return facts
    facts["bytes_per_record"] = round(used / (records + kept), 1)
    facts["state_bytes_per_record"] = round(state_bytes / judged, 1) if judged else None
    days = max(last - first, SHORTEST_US) / DAY_US
    per_day = records / days
    return facts | forecast(
        settings.storage,
        free=free,
        journal=used,
        state=state_bytes,
        payloads_per_day=per_day * used / (records + kept),
        state_per_day=per_day * state_bytes / judged if judged else 0.0,
        ids_per_day=per_day * ID_BYTES,
    )


def forecast(
    storage: "StorageSettings",
    *,
    free: int,
    journal: int,
    state: int,
    payloads_per_day: float,
    state_per_day: float,
    ids_per_day: float = 0.0,
) -> dict[str, float | None]:
    """Days that payloads are kept, and days until the disk is full.

    At the given growth per day; ``days_left`` is None if the disk never fills up.

    Parameters
    ----------
    journal, state
        Bytes that are used now.

    Examples
    --------
    >>> from outrider.monitor.settings.sections import StorageSettings
    >>> storage = StorageSettings(journal_max_bytes=1_000_000, min_free_bytes=0, keep_days=7)
    >>> grows = {"journal": 0, "state": 0, "state_per_day": 1e5}
    >>> forecast(storage, free=5_000_000, payloads_per_day=1e5, **grows)
    {'payload_days': 7.0, 'days_left': 43.0}
    >>> forecast(storage, free=5_000_000, payloads_per_day=4e5, **grows)
    {'payload_days': 2.0, 'days_left': 42.0}
    >>> forecast(storage, free=100_000, payloads_per_day=1e5, **grows)
    {'payload_days': 7.0, 'days_left': 0.5}
    >>> forecast(storage, free=9_700_001, payloads_per_day=1e5, **grows)
    {'payload_days': 7.0, 'days_left': None}
    >>> forecast(storage, free=9_710_000, payloads_per_day=1e5, ids_per_day=1e3, **grows)
    {'payload_days': 7.0, 'days_left': 100.0}
    """
    from outrider.monitor.settings.sections import PRESSURE_SHARE

    most = PRESSURE_SHARE * storage.journal_max_bytes
    payload_days = min(storage.keep_days, most / payloads_per_day)
    rows_days = max(payload_days, storage.keep_rows_days)
    journal_days = max(0.0, payload_days - journal / payloads_per_day)
    state_days = max(0.0, rows_days - state / state_per_day) if state_per_day else 0.0
    growths = [
        (0.0, journal_days, payloads_per_day),
        (0.0, state_days, state_per_day),
        (state_days, state_days + storage.keep_ids_days, ids_per_day),
    ]
    left = _days_until(max(0.0, float(free - storage.min_free_bytes)), growths)
    return {"payload_days": round(payload_days, 1), "days_left": None if left is None else round(left, 1)}


def _days_until(room: float, growths: Sequence[tuple[float, float, float]]) -> float | None:
    """First day on which growths (first day, last day, bytes per day) exceed ``room`` bytes; None if
    never."""
    days = sorted({day for first, last, _ in growths for day in (first, last)})
    for day, after in pairwise(days):
        per_day = sum(rate for first, last, rate in growths if first <= day < last)
        if per_day * (after - day) >= room:
            return day + room / per_day if per_day else day
        room -= per_day * (after - day)
    return None if room else days[-1]


def _judged(path: Path, facts: dict[str, Any]) -> int:
    """Number of judged records in ``state.db``; adds the pauses in force to ``facts``."""
    if not path.exists():
        return 0
    with closing(_open(path)) as database:
        try:
            (judged,) = database.execute("SELECT count(*) FROM record").fetchone()
            paused = database.execute("SELECT what, model FROM pause ORDER BY since_us").fetchall()
        except sqlite3.OperationalError:  # of another schema: reported with the latency
            return 0
    if paused:
        facts["paused"] = ", ".join(f"{what} of {model or 'every model'}" for what, model in paused)
    return int(judged)


def _open(path: Path) -> sqlite3.Connection:
    # As readers of the service do: read-only mode fails if a crash left a log file.
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _size(path: Path) -> int:
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _damage(journal: Path) -> dict[str, Any]:
    """Number of damaged journal blocks, and of checked ones."""
    from outrider.dataops.journal.journal import find_damage

    found = find_damage(journal)
    return {"checked_blocks": found.checked, "damaged_blocks": found.blocks}
