"""New rows that leak move, with their entity, to their match's part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NotRequired, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from outrider.assertions import Batch
from outrider.dataops.labels.weak_labels import PREFIX

from .leaks import EXACT, Leak, LeakSide, compared, described, find_matches, find_repeats, leak_words
from .versions import Provenance

Moves = Literal["none", "exact", "all"]
"""Leaks that move rows: none, those of entities and equal inputs, or near-duplicates too."""
NEW = {"train": "new train rows", "held_out": "new held-out rows"}
ROUNDS = 4
"""A moved row may match another one in its new part."""


class LeakReport(TypedDict):
    """Leaks and repeated rows, as found at a version's commit."""

    leaks: list[Leak]
    repeats: list[Leak]
    """New rows to learn from that are alike, or like those of the version before: they count twice."""
    moved: dict[str, int]
    """New rows by the side to which a leak moved them; ``left_out``: weak labels judge no candidate."""
    remaining: NotRequired[list[Leak]]
    """Leaks that were left once rows had moved."""


class IndexedRows(Protocol):
    @property
    def rows(self) -> int: ...

    @property
    def head(self) -> Batch:
        """Sample that shows columns and their kinds of text."""

    def near(self, name: str, new: LeakSide) -> LeakSide:
        """Rows that may match new ones."""

    def holds(self, units: NDArray[np.object_]) -> NDArray[np.bool_]:
        """Mask of known entities (ids for records without one)."""


Rows: TypeAlias = Batch | IndexedRows


@dataclass(frozen=True, slots=True)
class KnownRows:
    """Rows that new ones are compared with, by version and part."""

    learned: Mapping[str, Rows] = field(default_factory=dict)
    """Training rows: the dataset's own so far, and the replayed dataset."""
    judged: Mapping[str, Rows] = field(default_factory=dict)
    """Held-out rows: the dataset's own so far, and the gate's dataset."""
    own: Sequence[str] = ()
    """Names of the dataset's own rows, whose entities stay where they are."""


@dataclass(frozen=True, slots=True)
class Settled:
    batch: Batch
    provenance: list[Provenance]
    report: LeakReport


def settle(
    batch: Batch,
    provenance: Sequence[Provenance],
    known: KnownRows,
    *,
    declared: Sequence[str] = (),
    moves: Moves = "exact",
) -> Settled:
    """``declared`` are full names of the model's inputs; empty for all."""
    table = _Table(batch, provenance, known, declared)
    first = table.find(moves)
    found, moved = first, {"held_out": 0, "train": 0}
    for _ in range(ROUNDS if moves != "none" else 0):
        now = table.move(found)
        if not any(now.values()):
            break
        moved = {part: moved[part] + now[part] for part in moved}
        found = table.find(moves)
    kept, rows = table.kept()
    report: LeakReport = {
        "leaks": first.leaks,
        "repeats": table.repeats(),
        "moved": moved | {"left_out": batch.rows - len(rows)},
    }
    if any(report["moved"].values()):
        report["remaining"] = found.leaks
    return Settled(batch.take(rows), kept, report)


def report_words(report: LeakReport) -> list[str]:
    """Lines that tell a report without pairs; none where nothing was found.

    Examples
    --------
    >>> report_words({"leaks": [], "repeats": [], "moved": {"held_out": 2, "train": 0, "left_out": 0}})
    ['2 rows were held out for it']
    """
    lines = leak_words([*report["leaks"], *report["repeats"]])
    reasons = {
        "held_out": "held out for it",
        "train": "put to the rows that are learned from",
        "left_out": "left out: weak labels judge no candidate",
    }
    for part, words in reasons.items():
        count = report["moved"].get(part, 0)
        if count:
            lines.append(f"{count} {'row was' if count == 1 else 'rows were'} {words}")
    return lines


@dataclass(frozen=True, slots=True)
class _Found:
    leaks: list[Leak]
    leave: dict[str, NDArray[np.intp]]


class _Table:
    def __init__(
        self, batch: Batch, provenance: Sequence[Provenance], known: KnownRows, declared: Sequence[str]
    ) -> None:
        self._batch = batch
        self._provenance = list(provenance)
        self._units = _units(batch)
        self._parts = np.array([row.part for row in provenance], dtype=object)
        given = {name: rows for name, rows in (*known.learned.items(), *known.judged.items()) if rows.rows}
        heads = [batch, *(rows if isinstance(rows, Batch) else rows.head for rows in given.values())]
        inputs, prose = compared(heads, declared)
        self._new = LeakSide("new", batch, inputs, prose)
        made = {
            name: LeakSide(name, rows, inputs, prose)
            if isinstance(rows, Batch)
            else rows.near(name, self._new)
            for name, rows in given.items()
        }
        self._against = {
            "train": [side for name, side in made.items() if name in known.judged],
            "held_out": [side for name, side in made.items() if name in known.learned],
        }
        self._earlier = [made[name] for name in made if name in known.own and name in known.learned]
        self._stays = np.zeros(batch.rows, dtype=np.bool_)
        for name in set(known.own) & given.keys():
            rows = given[name]
            is_held = (
                np.isin(self._units, _units(rows)) if isinstance(rows, Batch) else rows.holds(self._units)
            )
            self._stays |= is_held

    def _part(self, part: str) -> tuple[LeakSide, NDArray[np.intp]]:
        rows = np.flatnonzero(self._parts == part).astype(np.intp)
        return self._new.of(NEW[part], self._batch.take(rows)), rows

    def find(self, moves: Moves) -> _Found:
        parts = {part: self._part(part) for part in NEW}
        leaks: list[Leak] = []
        leave: dict[str, NDArray[np.intp]] = {}
        for part, (side, rows) in parts.items():
            others = [*self._against[part], *([parts["held_out"][0]] if part == "train" else [])]
            leaving: list[NDArray[np.intp]] = []
            for other in others:
                for match in find_matches(side, other):
                    leaks.append(described(match, side, other))
                    if not match.usual and (moves == "all" or (moves == "exact" and match.kind in EXACT)):
                        leaving.append(rows[match.pairs.rows])
            leave[part] = np.unique(np.concatenate(leaving)) if leaving else np.empty(0, np.intp)
        return _Found(leaks, leave)

    def move(self, found: _Found) -> dict[str, int]:
        """Each entity moves once; returns rows moved by new part."""
        leaving = {part: set(self._units[rows].tolist()) for part, rows in found.leave.items()}
        torn = leaving["train"] & leaving["held_out"]
        moved: dict[str, int] = {}
        for part, other in (("train", "held_out"), ("held_out", "train")):
            goes = np.array([unit in leaving[part] - torn for unit in self._units], dtype=np.bool_)
            goes &= (self._parts == part) & ~self._stays
            self._parts[goes] = other
            self._stays |= goes
            moved[other] = int(goes.sum())
        return moved

    def kept(self) -> tuple[list[Provenance], NDArray[np.intp]]:
        """Held-out rows with weak labels are dropped: weak labels judge no candidate."""
        rows = [
            at
            for at, row in enumerate(self._provenance)
            if self._parts[at] != "held_out" or not (row.label_source or "").startswith(PREFIX)
        ]
        kept = [replace(self._provenance[at], part=str(self._parts[at])) for at in rows]
        return kept, np.array(rows, dtype=np.intp)

    def repeats(self) -> list[Leak]:
        side, _ = self._part("train")
        found = find_repeats(side)
        for earlier in self._earlier:
            matches = find_matches(side, earlier)
            found += [described(m, side, earlier) for m in matches if m.kind != "entity" and not m.usual]
        return found


def _units(batch: Batch) -> NDArray[np.object_]:
    keys = batch.keys.astype(object)
    if not batch.has("entity"):
        return keys
    entities = batch.column("entity").astype(object)
    return np.where(batch.is_null("entity"), keys, entities)
