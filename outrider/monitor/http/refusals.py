"""Counts of refused records, without their content."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path

MOST = 200
"""Kinds that are kept; beyond, the one unseen for longest joins the others of its reason."""
OTHERS = "*"
_LONGEST = 200  # letters of a name, which anybody may have sent

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefusedKind:
    """Records refused for one reason."""

    model: str
    reason: str
    """As in ``outrider_records_rejected_total``."""
    field: str
    """Wrong column; empty for a whole record or body, ``*`` for several folded ones."""
    count: int
    first_us: int
    last_us: int
    example: str | None
    """Id of the first, where readable."""


class RefusalBook:
    """Bounded counts of refused records by model, reason and field, saved to ``path`` once a second.

    ``written`` redacts text for the file: a field's name may hold a redacted value.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        most: int = MOST,
        written: Callable[[str], str] = str,
    ) -> None:
        self._path = path
        self._now_us = now_us
        self._most = most
        self._written = written
        self._lock = threading.Lock()
        self._changed = False
        self._kinds = {_key(kind): kind for kind in _read(path)}

    def note(
        self, *, model: str, reason: str, field: str = "", record_id: str | None = None, count: int = 1
    ) -> None:
        now = self._now_us()
        example = None if record_id is None else _clipped(record_id)
        new = RefusedKind(_clipped(model), reason, _clipped(field), count, now, now, example)
        with self._lock:
            self._add(new)
            while len(self._kinds) > self._most:
                self._fold()
            self._changed = True

    def listed(self, model: str | None = None, known: Collection[str] = ()) -> list[RefusedKind]:
        """Kinds, newest first; of ``model`` only its own and those of no ``known`` model, which no
        one else would see."""
        with self._lock:
            kinds = list(self._kinds.values())
        if model is not None:
            kinds = [kind for kind in kinds if kind.model == model or kind.model not in known]
        return sorted(kinds, key=lambda kind: -kind.last_us)

    def save(self) -> None:
        with self._lock:
            if self._path is None or not self._changed:
                return
            kinds, self._changed = list(self._kinds.values()), False
        rows = [
            asdict(kind) | {"model": self._written(kind.model), "field": self._written(kind.field)}
            for kind in kinds
        ]
        part = self._path.with_name(self._path.name + ".part")
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            with open(
                os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
            ) as file:
                json.dump(rows, file)
            part.replace(self._path)
        except OSError as error:
            log.warning("counts of refused records could not be written: %s", error)

    def _add(self, new: RefusedKind) -> None:
        """Join an equal kind; it becomes the last of the dictionary."""
        old = self._kinds.pop(_key(new), None)
        self._kinds[_key(new)] = (
            new
            if old is None
            else replace(old, count=old.count + new.count, last_us=max(old.last_us, new.last_us))
        )

    def _fold(self) -> None:
        """Fold the kind unseen for longest into the others of its reason."""
        key = next(key for key in self._kinds if key[2] != OTHERS)
        self._add(replace(self._kinds.pop(key), model="", field=OTHERS))


def _key(kind: RefusedKind) -> tuple[str, str, str]:
    return kind.model, kind.reason, kind.field


def _clipped(text: str) -> str:
    """Printable letters of a text: terminals show it too."""
    return "".join(letter if letter.isprintable() else "�" for letter in text[:_LONGEST])


def _read(path: Path | None) -> list[RefusedKind]:
    if path is None:
        return []
    try:
        return [RefusedKind(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        log.warning("%s cannot be read and starts anew: %s", path, error)
        return []
