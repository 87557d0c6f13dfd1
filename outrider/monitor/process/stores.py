"""Opening journal and database together, as the processes beside intake do."""

import threading
import time

from sqlalchemy import Engine

from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.state.database import open_database
from outrider.errors import JournalUnreadable
from outrider.monitor.settings.config import Settings

JOURNAL_WAIT_S = 30.0


def open_stores(settings: Settings, stop: threading.Event) -> tuple[SqliteJournal, Engine]:
    """The service's read-only journal, awaited up to 30 seconds, and its database; ConfigError where
    these do not belong together."""
    deadline = time.monotonic() + JOURNAL_WAIT_S
    while True:
        try:
            journal = SqliteJournal(settings.journal_path, max_bytes=None, read_only=True)
            break
        except JournalUnreadable:
            if time.monotonic() > deadline or stop.wait(0.1):
                raise
    last_seq = journal.last_seq
    return journal, open_database(settings.database_url, journal_uuid=journal.uuid, journal_last_seq=last_seq)
