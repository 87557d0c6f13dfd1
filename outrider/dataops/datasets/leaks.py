"""Leaks between training and held-out rows, from inputs and entities alone.

A match is usual if rows match one another within a side about as often, or by chance (a table of a few
coarse columns): such rows repeat without a leak.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import TypedDict

from outrider.assertions import Batch
from outrider.assertions.batch import REST
from outrider.assertions.batch.columns import plain, row_hashes
from outrider.assertions.texts.words import are_texts

from .near_texts import TextSketch, near_texts, sketch_texts
from .near_values import ValueSketch, chance, near_values, sketch_values
from .neighbours import MatchedRows, Rows, UInts, equal

Kind = Literal["entity", "row", "text", "values"]
KINDS: Mapping[Kind, str] = {
    "entity": "an entity of the second",
    "row": "inputs equal to those of a row of the second",
    "text": "a near-duplicate text in the second",
    "values": "the numbers of a row of the second but for little noise",
}
EXACT: tuple[Kind, ...] = ("entity", "row")
PAIRS = 20
TEXT_LIKENESS = 0.55
"""Likeness from which texts are near-duplicates: one edited word in eight, three in fifty."""
VALUE_SHARE = 0.01
"""Share of a column's spread within which numbers are near-duplicates."""
PROSE_WORDS = 2.0
"""Least mean words of a text column; below it holds categories."""
FEW_ROWS = 50
"""Rows below which a side cannot tell how often rows repeat."""
_SAMPLE_ROWS = 1000


class Leak(TypedDict):
    """Rows of one side that match the other in one way."""

    kind: Kind
    between: list[str]
    """Names of the two sides."""
    rows: int
    """Rows of the first with a match on the second."""
    others: int
    """Rows of the second that these match."""
    usual: bool
    """True where rows match one another within a side about as often: they repeat by themselves."""
    pairs: list[list[str]]
    """Ids of the first pairs, at most twenty."""


@dataclass(frozen=True, slots=True)
class Match:
    kind: Kind
    pairs: MatchedRows
    others: int
    usual: bool = False


@dataclass(frozen=True, slots=True)
class Whole:
    """Side of which only possible matches were read."""

    rows: int
    sample: Batch
    entities: UInts
    """Of the rows that were read, then of others with equal entities or inputs."""
    digests: UInts
    alike: Callable[[], dict[Kind, float]]
    """Share of rows that match another one of the side, by kind."""
    ids: Callable[[Rows], list[str]]
    """Ids of rows, numbered as in ``entities``."""


class LeakSide:
    """Rows under a name, with cached sketches. ``whole`` if the batch is partial."""

    def __init__(
        self,
        name: str,
        batch: Batch,
        inputs: Sequence[str],
        prose: frozenset[str],
        whole: Whole | None = None,
    ) -> None:
        self.name = name
        self.batch = batch
        self.inputs = tuple(inputs)
        self.prose = prose
        self._whole = whole
        self.rows = batch.rows if whole is None else whole.rows

    def of(self, name: str, batch: Batch) -> "LeakSide":
        return LeakSide(name, batch, self.inputs, self.prose)

    @cached_property
    def entities(self) -> UInts:
        """Hash of each row's entity, 0 for none."""
        if self._whole is not None:
            return self._whole.entities
        if not self.batch.has("entity"):
            return np.zeros(self.batch.rows, dtype=np.uint64)
        return row_hashes(self.batch.arrow("entity"), "entity")

    @cached_property
    def digests(self) -> UInts:
        """Hash of each row's inputs, 0 if all are null."""
        if self._whole is not None:
            return self._whole.digests
        found = np.zeros(self.batch.rows, dtype=np.uint64)
        for name in self.inputs:
            found += row_hashes(self.batch.arrow(name), name)
        return found

    @cached_property
    def texts(self) -> TextSketch:
        columns = [_texts(self.batch.arrow(name)) for name in sorted(self.prose)]
        return sketch_texts(["\n".join(row) for row in zip(*columns, strict=True)])

    @cached_property
    def values(self) -> ValueSketch:
        if self._whole is None:
            return sketch_values(self.batch, self.inputs)
        return sketch_values(self.batch, self.inputs, sample=self._whole.sample, rows=self.rows)

    @cached_property
    def alike(self) -> dict[Kind, float]:
        """Share of rows that match another one of this side, by kind."""
        if self._whole is not None:
            return self._whole.alike()
        return {match.kind: len(match.pairs.rows) / self.rows for match in matches_of(self, self)}

    def ids(self, rows: Rows) -> list[str]:
        if self._whole is not None:
            return self._whole.ids(rows)
        return [str(key) for key in self.batch.keys[rows]]

    def chance_of_equal(self, draws: int) -> float:
        """Chance that one of ``draws`` rows like these equals a given one."""
        _, counts = np.unique(self.digests, return_counts=True)
        pairs = float((counts * (counts - 1.0)).sum()) / max(self.batch.rows * (self.batch.rows - 1.0), 1.0)
        return min(1.0, draws * pairs)


def sides(batches: Mapping[str, Batch], declared: Sequence[str] = ()) -> list[LeakSide]:
    """Sides compared by shared inputs, of the ``declared`` ones if any."""
    inputs, prose = compared(batches.values(), declared)
    return [LeakSide(name, batch, inputs, prose) for name, batch in batches.items()]


def compared(
    batches: Collection[Batch], declared: Sequence[str] = ()
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Sorted full names of the shared inputs, and columns with prose."""
    names = [{name for name in batch.names if name.startswith("inputs.")} for batch in batches]
    found = (set.intersection(*names) if names else set()) - {f"inputs.{REST}"}
    inputs = sorted(found & set(declared) if declared else found)
    return tuple(inputs), frozenset(
        name for name in inputs if any(_is_prose(batch.arrow(name)) for batch in batches)
    )


def find_matches(left: LeakSide, right: LeakSide) -> list[Match]:
    """Texts are compared if there are any, else numbers."""
    if not left.rows or not right.rows:
        return []
    found = [match for match in matches_of(left, right) if len(match.pairs.rows)]
    return [Match(m.kind, m.pairs, m.others, _is_usual(m, left, right)) for m in found]


def find_leaks(left: LeakSide, right: LeakSide) -> list[Leak]:
    """Leaks between two sides, each with its first pairs by name.

    Examples
    --------
    >>> def rows(*texts):
    ...     return Batch.from_columns({"id": list("ab"), "inputs.text": list(texts)}, model="m")
    >>> train = rows("What is my balance today?", "Call a taxi to the station")
    >>> gate = rows("Play a song by Nina Simone", "what is  my balance today")
    >>> leaks = find_leaks(*sides({"train": train, "gate": gate}))
    >>> [(leak["kind"], leak["rows"], leak["pairs"]) for leak in leaks]
    [('text', 1, [['a', 'b']])]
    """
    return [described(match, left, right) for match in find_matches(left, right)]


def find_repeats(side: LeakSide) -> list[Leak]:
    """Similar rows of one side, each pair once, without chance matches."""
    if side.batch.rows < 2:
        return []
    found = [match for match in matches_of(side, side) if len(match.pairs.rows)]
    return [described(match, side, side) for match in found if not _is_chance(match, side)]


def described(match: Match, left: LeakSide, right: LeakSide) -> Leak:
    pairs = np.stack([match.pairs.rows, match.pairs.others])
    if left is right:  # a pair of one side has no direction
        pairs = np.unique(np.sort(pairs, axis=0), axis=1)
    sides = zip((left, right), pairs[:, :PAIRS], strict=True)
    named = [list(pair) for pair in zip(*(side.ids(rows) for side, rows in sides), strict=True)]
    return {
        "kind": match.kind, "between": [left.name, right.name], "rows": len(match.pairs.rows),
        "others": match.others, "usual": match.usual, "pairs": named,
    }  # fmt: skip


def leak_words(leaks: Sequence[Leak]) -> list[str]:
    """Lines that tell leaks without their pairs.

    Examples
    --------
    >>> leak = {"kind": "row", "between": ["a", "b"], "rows": 2, "others": 1, "usual": False, "pairs": []}
    >>> leak_words([leak])
    ['a and b: 2 rows of the first have inputs equal to those of a row of the second']
    """
    lines = []
    for leak in leaks:
        one, other = leak["between"]
        rows = "1 row" if leak["rows"] == 1 else f"{leak['rows']} rows"
        if one == other:
            lines.append(f"{one}: {rows} repeat another one ({leak['kind']})")
            continue
        has = "has" if leak["rows"] == 1 else "have"
        usual = "; they repeat about as often within one side" if leak["usual"] else ""
        lines.append(f"{one} and {other}: {rows} of the first {has} {KINDS[leak['kind']]}{usual}")
    return lines


def _is_usual(match: Match, left: LeakSide, right: LeakSide) -> bool:
    if match.kind == "entity":
        return False
    expected = right.alike[match.kind]
    if match.kind == "row" and right.rows < FEW_ROWS <= left.rows:
        expected = max(expected, left.chance_of_equal(right.rows))
    if match.kind == "values":
        expected = max(expected, chance(left.values, right.values, share=VALUE_SHARE))
    return _is_within(match, expected, left)


def _is_chance(match: Match, side: LeakSide) -> bool:
    if match.kind != "values":
        return False
    return _is_within(match, chance(side.values, side.values, share=VALUE_SHARE), side)


def _is_within(match: Match, expected: float, left: LeakSide) -> bool:
    """At most twice the expected rows plus three standard deviations."""
    rows = min(expected, 1.0) * left.rows
    return bool(len(match.pairs.rows) <= 2 * rows + 3 * rows**0.5)


def matches_of(left: LeakSide, right: LeakSide) -> list[Match]:
    is_own = left is right
    rows = equal(left.digests, right.digests, is_own=is_own)
    found = [Match("row", rows, _count(left.digests, right.digests))]
    if not is_own:
        entities = equal(left.entities, right.entities)
        found.insert(0, Match("entity", entities, _count(left.entities, right.entities)))
    if left.prose:
        pairs = near_texts(left.texts, right.texts, least=TEXT_LIKENESS, is_own=is_own)
        found.append(_near("text", pairs, rows))
    elif left.inputs:
        pairs = near_values(left.values, right.values, share=VALUE_SHARE, is_own=is_own)
        found.append(_near("values", pairs, rows))
    return found


def _count(left: UInts, right: UInts) -> int:
    return int((np.isin(right, left) & (right != 0)).sum())


def _near(kind: Kind, pairs: MatchedRows, exact: MatchedRows) -> Match:
    kept = ~np.isin(pairs.rows, exact.rows)
    near = MatchedRows(pairs.rows[kept], pairs.others[kept], pairs.likeness[kept])
    return Match(kind, near, len(np.unique(near.others)))


def _is_prose(column: pa.Array) -> bool:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        return "string" in str(kind)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    rows = pa.array(range(0, len(column), max(1, len(column) // _SAMPLE_ROWS)), pa.int64())
    sample = column.take(rows)
    return are_texts(sample.filter(pc.not_equal(sample, "")), least=PROSE_WORDS)


def _texts(column: pa.Array) -> list[str]:
    return [_text_in(value) for value in plain(column, "texts")]


def _text_in(value: object) -> str:
    """Texts within a list or an object, in order; of a message its content."""
    if isinstance(value, dict):
        if "content" in value:
            return _text_in(value["content"])
        return " ".join(_text_in(part) for part in value.values())
    if isinstance(value, list):
        return " ".join(_text_in(part) for part in value)
    return value if isinstance(value, str) else ""
