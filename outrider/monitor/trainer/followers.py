"""Threads of the trainer that follow commits to the database."""

import logging
import threading
from collections.abc import Callable, Mapping

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from outrider.dataops.state.database import REST_S, DatabaseChanges

log = logging.getLogger(__name__)
LOOK_S = 2.0


def start_followers(
    engine: Engine, stop: threading.Event, looks: Mapping[str, Callable[[], None]]
) -> list[threading.Thread]:
    threads = [
        threading.Thread(target=follow, args=(name, look, engine, stop), name=name)
        for name, look in looks.items()
    ]
    for thread in threads:
        thread.start()
    return threads


def follow(name: str, look: Callable[[], None], engine: Engine, stop: threading.Event) -> None:
    """Look after each commit until ``stop`` is set; a failed look is repeated with the next commit."""
    changes = DatabaseChanges.of(engine)
    while True:
        try:
            look()
        except OperationalError as error:  # busy, or its disk is full
            log.warning("%s: %s", name, error)
        except Exception:
            log.exception("%s", name)
        changes.wait(stop, every_s=LOOK_S, at_most_s=REST_S)
        if stop.is_set():
            return
