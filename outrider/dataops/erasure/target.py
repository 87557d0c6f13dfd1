"""Subjects and records to erase, and their stored traces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.errors import NotFound

MOST_NAMED = 10_000


class UnknownSubject(NotFound):
    """No trace of a subject or record is stored."""


@dataclass(frozen=True, slots=True)
class ErasureTarget:
    """Subjects (entities) and records to erase; ValueError where none is named, one is no text, or
    they are too many."""

    subjects: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    model: str | None = None
    """None for all models."""
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Ids found by an earlier search, by model."""
    key: str = ""
    hashes: tuple[tuple[str, str, int], ...] = ()
    """Hashes under ``key``, with kind and time, of what was erased after a backup."""

    def __post_init__(self) -> None:
        named = len(self.subjects) + len(self.records)
        if self.key:
            return
        if not 1 <= named <= MOST_NAMED:
            raise ValueError(f"1 to {MOST_NAMED} subjects and records expected, got {named}")
        for name in (*self.subjects, *self.records):
            if not isinstance(name, str) or not name or not _is_text(name):
                raise ValueError(
                    "the name of a subject and the id of a record are texts of at least one letter, got "
                    f"{name!r:.80}"
                )

    def to_dict(self) -> dict[str, Any]:
        return {
            "subjects": list(self.subjects),
            "records": list(self.records),
            "model": self.model,
            "ids": {model: sorted(ids) for model, ids in self.ids.items()},
            "key": self.key,
            "hashes": [list(one) for one in self.hashes],
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "ErasureTarget":
        names = tuple(given["subjects"]), tuple(given["records"])
        hashes = tuple((text, kind, at_us) for text, kind, at_us in given["hashes"])
        return cls(*names, given["model"], given["ids"], given["key"], hashes)

    def concerns(self, model: str) -> bool:
        return self.model in (None, model)


def _is_text(name: str) -> bool:
    """Test for a text that UTF-8 can write, as all stored ones are."""
    return name.encode("utf-8", "replace").decode() == name


@dataclass(slots=True)
class Found:
    """Stored traces of subjects and records.

    ``contexts`` are places of records that shared a window; ``values`` are texts and numbers that no
    other record has; ``unreadable`` blocks may be anyone's.
    """

    ids: dict[str, set[str]] = field(default_factory=dict)
    records: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    labels: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    halves: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    contexts: set[tuple[str, str, int, int, int, int]] = field(default_factory=set)
    received: set[tuple[str, int]] = field(default_factory=set)
    payloads: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    unreadable: list[int] = field(default_factory=list)

    @property
    def all_ids(self) -> list[str]:
        return sorted(set().union(*self.ids.values()))

    def add_ids(self, model: str, ids: Sequence[str]) -> None:
        if ids:
            self.ids.setdefault(model, set()).update(ids)

    @property
    def is_nothing(self) -> bool:
        return not (self.ids or self.labels or self.halves or self.notes)
