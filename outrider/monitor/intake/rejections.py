"""Refused records of one request, and faulty rows of a block.

A refused record costs no more than a good one, however many faults there are: reasons are worked out for
those alone that an answer lists.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.monitor.http.refusals import OTHERS, RefusalBook
from outrider.monitor.metrics.registry import CounterFamily

LISTED = 1000
"""Most rejections that an answer names."""
_APART = 50
"""Kinds of rejections of one request that are counted apart; names in them come from strangers."""
_SUGGESTIONS = 3
"""Of one request: a search for similar names costs as much as hundreds of records."""
_WORD = 64
"""Longest name that similar ones are looked for."""
_NO_MODEL = "is missing: name it in every record, or once as ?model= in the URL (--model of a replay)"

Rows: TypeAlias = NDArray[np.int64]
Reason: TypeAlias = str | Callable[[int], str]
"""What was expected and what came, or a function of the row that says so."""
Near: TypeAlias = Callable[[str, Sequence[str]], Sequence[str]]
"""Known names that are like a name, the most similar first."""


def close_names(name: str, known: Sequence[str]) -> Sequence[str]:
    return difflib.get_close_matches(name, known, n=1) if len(name) <= _WORD else ()


@dataclass(frozen=True, slots=True)
class Rejection:
    index: int
    """Place in what was sent, from 0; blank lines do not count."""
    id: str | None
    field: str
    """Full column name; ``""`` for the record as a whole."""
    reason: str
    model: str = ""
    is_erased: bool = False
    """Its id is noted nowhere."""


@dataclass(slots=True)
class RejectedKind:
    model: str
    reason: str
    field: str
    """``*`` for several that are not counted apart."""
    count: int = 0
    example: str | None = None
    """Id of the first, if it could be read and may be noted."""


class Rejections:
    def __init__(self, near: Near = close_names) -> None:
        self.count = 0
        self.erased = 0
        self._near = near
        self._suggested: dict[str, Sequence[str]] = {}
        self._listed: list[Rejection] = []
        self._last = 2**63
        """Later places are no longer listed."""
        self._kinds: dict[tuple[str, str, str], RejectedKind] = {}

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def listed(self) -> list[Rejection]:
        """The first thousand, in order."""
        self._shorten()
        return self._listed

    @property
    def are_erased(self) -> bool:
        return self.erased == self.count

    def kinds(self) -> Iterator[RejectedKind]:
        return iter(self._kinds.values())

    def note(self, counter: CounterFamily, refusals: RefusalBook) -> None:
        for kind in self.kinds():
            counter.labels(reason=kind.reason).inc(kind.count)
            refusals.note(
                model=kind.model,
                reason=kind.reason,
                field=kind.field,
                record_id=kind.example,
                count=kind.count,
            )

    def suggest(self, what: str, name: str, known: Sequence[str]) -> str:
        """Reason for an unknown name."""
        if name not in self._suggested and len(self._suggested) < _SUGGESTIONS:
            self._suggested[name] = self._near(name, known)
        near = self._suggested.get(name, ())
        more = (
            f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known[:20])}" if known else ""
        )
        return f"unknown {what} {name[:256]!r}{more}"

    def add(self, index: int, field: str, reason: str, *, model: str = "", id_: str | None = None) -> None:
        if index < self._last:
            self._list(Rejection(index, id_, field, reason, model))
        self._count(model, field, 1, id_)

    def add_explained(
        self,
        indices: Sequence[int],
        fields: Sequence[str],
        explain: Callable[[int], tuple[str, str, str | None]],
    ) -> None:
        """Refuse records in ascending order; the listed ones are explained."""
        for row, index in enumerate(indices[:LISTED]):
            field, id_ = fields[row], None
            if index < self._last:
                field, reason, id_ = explain(row)
                self._list(Rejection(index, id_, field, reason))
            self._count("", field, 1, id_)
        for field, count in Counter(fields[LISTED:]).items():
            self._count("", field, count, None)

    def add_rows(
        self, rows: Rows, field: str, reason: Reason, *,
        indices: Sequence[int], model: str, id_of: Callable[[int], str | None] = lambda _: None,
        below: Reason = "", said_of: Rows | None = None, are_erased: bool = False,
    ) -> None:  # fmt: skip
        """Refuse rows of one model for one reason; ``said_of``: rows as reason and ``below`` count them."""
        if not len(rows):
            return
        chosen = rows[:LISTED].tolist()
        for row, own in zip(chosen, (rows if said_of is None else said_of)[:LISTED].tolist(), strict=True):
            if indices[row] < self._last:
                place = field + said(below, own)
                one = Rejection(indices[row], id_of(row), place, said(reason, own), model, are_erased)
                self._list(one)
        self.erased += len(rows) if are_erased else 0
        if are_erased:
            self._count(model, field, len(rows), None, reason="erased")
        else:
            self._count(model, field, len(rows), id_of(chosen[0]))

    def add_unknown(
        self,
        indices: Sequence[int],
        models: Sequence[str],
        *,
        id_of: Callable[[int], str | None],
        known: Sequence[str],
    ) -> None:
        for row, (index, name) in enumerate(zip(indices[:LISTED], models, strict=False)):
            if index < self._last:
                reason = self.suggest("model", name, known) if name else _NO_MODEL
                self._list(Rejection(index, id_of(row), "model", reason, name))
        counts = Counter(models)
        for row, name in enumerate(models):
            if not counts or len(self._kinds) >= _APART:
                break
            if name in counts:
                self._count(name, "model", counts.pop(name), id_of(row))
        if rest := counts.total():
            self._count("", OTHERS, rest, None, reason="unknown_model")

    def _list(self, one: Rejection) -> None:
        self._listed.append(one)
        if len(self._listed) >= 2 * LISTED:
            self._shorten()

    def _count(
        self, model: str, field: str, count: int, example: str | None, *, reason: str | None = None
    ) -> None:
        self.count += count
        reason = reason or _reason_of(field)
        kind = self._kinds.get((model, reason, field))
        if kind is None:
            if len(self._kinds) >= _APART:
                model, field, example = "", OTHERS, None
            new = RejectedKind(model, reason, field, example=example)
            kind = self._kinds.setdefault((model, reason, field), new)
        kind.count += count

    def _shorten(self) -> None:
        self._listed.sort(key=lambda one: one.index)
        if len(self._listed) >= LISTED:
            del self._listed[LISTED:]
            self._last = self._listed[-1].index


def said(what: Reason, row: int) -> str:
    return what if isinstance(what, str) else what(row)


def _reason_of(field: str) -> str:
    if field == "model":
        return "unknown_model"
    return "schema" if field else "malformed"


# ---- rows of a block -------------------------------------------------------------------------------------

NO_ROWS: Rows = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Misfits:
    """Values of one column that do not fit; rows in ascending order."""

    rows: Rows = field(default_factory=lambda: NO_ROWS)
    reason: Reason = ""

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, rows: Iterable[int], reason: Reason) -> "Misfits":
        return cls(np.fromiter(rows, np.int64), reason)


@dataclass(frozen=True, slots=True)
class FaultyRows:
    """Rows with one kind of fault; ``below`` is the place within the field, such as ``[3].left``."""

    rows: Rows
    field: str
    reason: Reason
    below: Reason
    said_of: Rows


class RowFaults:
    """Faulty rows of a block; the first fault of a row counts."""

    def __init__(self, rows: int) -> None:
        self.is_bad = np.zeros(rows, np.bool_)
        self.groups: list[FaultyRows] = []

    def __bool__(self) -> bool:
        return bool(self.groups)

    @property
    def rows(self) -> Rows:
        return np.flatnonzero(self.is_bad)

    def add(
        self,
        rows: Rows | list[int],
        field: str,
        reason: Reason,
        *,
        below: Reason = "",
        said_of: Rows | None = None,
    ) -> None:
        """Note rows in ascending order; ``said_of`` numbers them for the reason."""
        found = np.asarray(rows, np.int64)
        is_news = ~self.is_bad[found]
        if not is_news.any():
            return
        fresh = found[is_news]
        self.is_bad[fresh] = True
        self.groups.append(
            FaultyRows(fresh, field, reason, below, fresh if said_of is None else said_of[is_news])
        )

    def add_misfits(self, field: str, misfits: Misfits) -> None:
        self.add(misfits.rows, field, misfits.reason)

    def add_all(self, other: "RowFaults", *, field: str | None = None) -> None:
        for each in other.groups:
            name = each.field if field is None else field
            self.add(each.rows, name, each.reason, below=each.below, said_of=each.said_of)

    def renumbered(self, rows: Rows) -> list[FaultyRows]:
        """The faults with row ``n`` called ``rows[n]``."""
        return [replace(each, rows=rows[each.rows]) for each in self.groups]
