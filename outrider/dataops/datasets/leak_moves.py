"""New rows of a dataset, put on the right side at commit.

A row that leaks goes to the side on which its match stands already: held out where that judges, learned from
where that is learned from. All new rows of its entity go with it; an entity with rows in an earlier version
stays where it is.
"""

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
"""Which leaks change the side of a row: none, those of entities and equal inputs, or near-duplicates too."""
NEW = {"train": "new train rows", "held_out": "new held-out rows"}
ROUNDS = 4
"""A row that moved may match another one at its new place."""


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
    """Rows of a version, searched by an index instead of being read."""

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def head(self) -> Batch:
        """First rows: columns, and texts or categories in them."""

    def near(self, name: str, new: LeakSide) -> LeakSide:
        """Side of the rows that may match new ones."""

    def holds(self, units: NDArray[np.object_]) -> NDArray[np.bool_]:
        """Mask of known entities, or of known ids without an entity."""


Rows: TypeAlias = Batch | IndexedRows


@dataclass(frozen=True, slots=True)
class Beside:
    """Rows that new ones are held against, by version and part."""

    learned: Mapping[str, Rows] = field(default_factory=dict)
    """Learned from: the dataset's own rows so far, the replayed dataset."""
    judged: Mapping[str, Rows] = field(default_factory=dict)
    """Judging candidates: the dataset's own held-out rows so far, the gate's dataset."""
    own: Sequence[str] = ()
    """Names of the dataset's own among them: their entities stay where they are."""


@dataclass(frozen=True, slots=True)
class Settled:
    """New rows, each on one side, and the report."""

    batch: Batch
    provenance: list[Provenance]
    report: LeakReport


def settle(
    batch: Batch,
    provenance: Sequence[Provenance],
    beside: Beside,
    *,
    declared: Sequence[str] = (),
    moves: Moves = "exact",
) -> Settled:
    """Find the leaks of new rows, and move rows as ``moves`` says.

    Parameters
    ----------
    batch, provenance
        New rows, aligned.
    declared
        Full names of the inputs that the model reads; empty where it declares none.
    """
    table = _Table(batch, provenance, beside, declared)
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
    said = {
        "held_out": "held out for it",
        "train": "put to the rows that are learned from",
        "left_out": "left out: weak labels judge no candidate",
    }
    for part, words in said.items():
        count = report["moved"].get(part, 0)
        if count:
            lines.append(f"{count} {'row was' if count == 1 else 'rows were'} {words}")
    return lines


@dataclass(frozen=True, slots=True)
class _Found:
    """Leaks of one look, and the new rows that go to the other part for one."""

    leaks: list[Leak]
    leave: dict[str, NDArray[np.intp]]


class _Table:
    """New rows and their parts, with the sides beside which they are put."""

    def __init__(
        self, batch: Batch, provenance: Sequence[Provenance], beside: Beside, declared: Sequence[str]
    ) -> None:
        self._batch = batch
        self._provenance = list(provenance)
        self._units = _units(batch)
        self._parts = np.array([row.part for row in provenance], dtype=object)
        given = {name: rows for name, rows in (*beside.learned.items(), *beside.judged.items()) if rows.rows}
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
            "train": [side for name, side in made.items() if name in beside.judged],
            "held_out": [side for name, side in made.items() if name in beside.learned],
        }
        self._earlier = [made[name] for name in made if name in beside.own and name in beside.learned]
        self._stays = np.zeros(batch.rows, dtype=np.bool_)
        for name in set(beside.own) & given.keys():
            rows = given[name]
            is_held = (
                np.isin(self._units, _units(rows)) if isinstance(rows, Batch) else rows.holds(self._units)
            )
            self._stays |= is_held

    def _part(self, part: str) -> tuple[LeakSide, NDArray[np.intp]]:
        rows = np.flatnonzero(self._parts == part).astype(np.intp)
        return self._new.of(NEW[part], self._batch.take(rows)), rows

    def find(self, moves: Moves) -> _Found:
        """Leaks of the new rows as their parts are now."""
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
        """Move entities with leaving rows to the other part, each once; rows moved by their new part."""
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
        """Provenance of the rows that stay, and these: weak labels judge no candidate."""
        rows = [
            at
            for at, row in enumerate(self._provenance)
            if self._parts[at] != "held_out" or not (row.label_source or "").startswith(PREFIX)
        ]
        kept = [replace(self._provenance[at], part=str(self._parts[at])) for at in rows]
        return kept, np.array(rows, dtype=np.intp)

    def repeats(self) -> list[Leak]:
        """New rows to learn from that are alike, or like earlier ones."""
        side, _ = self._part("train")
        found = find_repeats(side)
        for earlier in self._earlier:
            matches = find_matches(side, earlier)
            found += [described(m, side, earlier) for m in matches if m.kind != "entity" and not m.usual]
        return found


def _units(batch: Batch) -> NDArray[np.object_]:
    """Entity of each row, its id where it has none."""
    keys = batch.keys.astype(object)
    if not batch.has("entity"):
        return keys
    entities = batch.column("entity").astype(object)
    return np.where(batch.is_null("entity"), keys, entities)
