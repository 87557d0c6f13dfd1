"""Test for worse, better or equal, from paired failures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.statistics.difference_sequence import DifferenceSequence

from .comparison import one_of_each
from .verdict import ERROR, PARTS, more_records

Bools = NDArray[np.bool_]
Word = Literal["worse", "better", "same", "close", "undecided"]


@dataclass(frozen=True, slots=True)
class OutcomeVerdict:
    """Verdict on one kind of failure.

    Attributes
    ----------
    word
        ``worse``: more failures are proven, by more than the margin; ``better``: fewer, by more than the
        margin. ``same``, ``close``: a difference larger than the margin is ruled out; ``close`` if a smaller
        one is proven. ``undecided``: none of these.
    value, low, high
        P(only the candidate fails) - P(only production fails), in [-1, 1]; the bounds hold at all times.
    only_candidate, only_production
        Number of records on which only the candidate (only production) fails.
    more
        Approximate number of further records until the verdict is final at the present rates; 0 if it is,
        None if no number is likely to suffice.
    """

    word: Word
    value: float
    low: float
    high: float
    rows: int
    only_candidate: int
    only_production: int
    more: int | None


@dataclass(frozen=True, slots=True)
class DirectedOutcomes:
    """Failures of production and candidate on the same records, by kind.

    Kinds are for example: no answer, invalid structure, a fired assertion, wrong by label. Outcomes of stream
    parts add up, in any order; each conversation counts once, as in
    :class:`~outrider.assertions.comparison.StreamComparison`. Random variation has no direction, so none is
    subtracted.

    Attributes
    ----------
    kinds
        Candidate's failure (0 or 1) less production's, by kind.
    entities
        Hashes of the conversations already counted, by kind: not every record is judged in each kind.

    Examples
    --------
    >>> import numpy as np
    >>> none, some = np.zeros(500, dtype=bool), np.arange(500) < 20
    >>> found = DirectedOutcomes.of("no answer", none, some)
    >>> [found.verdicts(kinds=1, margin=margin)["no answer"].word for margin in (0.005, 0.1)]
    ['worse', 'close']
    """

    kinds: Mapping[str, DifferenceSequence] = field(default_factory=lambda: MappingProxyType({}))
    entities: Mapping[str, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(
        cls,
        kind: str,
        production: Bools,
        candidate: Bools,
        *,
        weight: NDArray[np.float64] | None = None,
        entities: Sequence[str] = (),
        keys: Sequence[Any] | NDArray[Any] = (),
        counted: "DirectedOutcomes | None" = None,
    ) -> Self:
        """Outcomes of some records in one kind.

        Parameters
        ----------
        production, candidate
            Masks of failures, shape (rows,).
        weight
            1 / probability of having been captured; default 1.
        entities, keys
            Conversation and id of each record; no entities if all records are single.
        counted
            Outcomes so far; conversations in them are not counted again.
        """
        known = counted.entities.get(kind, frozenset()) if counted is not None else frozenset()
        rows, seen = np.arange(len(production), dtype=np.intp), known
        if len(entities):
            rows, seen = one_of_each(entities, keys, known)
        weights = np.ones(len(production)) if weight is None else weight
        values = candidate.astype(np.float64) - production
        sequence = DifferenceSequence.of(values[rows], weights[rows])
        return cls({kind: sequence}, {kind: seen - known} if len(entities) else {})

    def __add__(self, other: "DirectedOutcomes") -> "DirectedOutcomes":
        """Sum of two parts.

        Raises
        ------
        ValueError
            If a conversation has been counted in both.
        """
        if any(self.entities.get(kind, frozenset()) & names for kind, names in other.entities.items()):
            raise ValueError(
                "conversations counted in both parts, none expected: give of(counted=) the first"
            )
        kinds, entities = dict(self.kinds), dict(self.entities)
        for kind, sequence in other.kinds.items():
            kinds[kind] = kinds[kind] + sequence if kind in kinds else sequence
        for kind, names in other.entities.items():
            entities[kind] = entities.get(kind, frozenset()) | names
        return DirectedOutcomes(kinds, entities)

    def verdicts(
        self, *, kinds: int, margin: float, error: float = ERROR, candidates: int = 1
    ) -> dict[str, OutcomeVerdict]:
        """Verdict by kind, with the outcomes' share of ``error``.

        Parameters
        ----------
        kinds
            Total number of kinds compared, fixed before the first look; at least those seen.
        margin
            Tolerated difference in the share of failing records, in (0, 1).
        """
        parts = max(kinds, len(self.kinds), 1) * candidates
        confidence = 1.0 - error * PARTS["outcomes"] / parts
        return {kind: _verdict(sequence, confidence, margin) for kind, sequence in self.kinds.items()}

    def to_dict(self) -> dict[str, Any]:
        """State that JSON can carry."""
        return {
            "kinds": {kind: sequence.to_dict() for kind, sequence in self.kinds.items()},
            "entities": {kind: sorted(names) for kind, names in self.entities.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`. An empty mapping gives an empty object."""
        return cls(
            {kind: DifferenceSequence.from_dict(one) for kind, one in state.get("kinds", {}).items()},
            {kind: frozenset(map(int, names)) for kind, names in state.get("entities", {}).items()},
        )


def _verdict(sequence: DifferenceSequence, confidence: float, margin: float) -> OutcomeVerdict:
    low, high, word = _bounds(sequence, confidence, margin)
    more: int | None = 0
    if word == "undecided":
        more = more_records(
            lambda factor: _bounds(sequence.scaled(factor), confidence, margin)[2], sequence.rows
        )
    counts = np.sum(list(sequence.counts.values()), axis=0) if sequence.counts else np.zeros(9, dtype=int)
    return OutcomeVerdict(
        word, sequence.mean, low, high, sequence.rows, int(counts[-1]), int(counts[0]), more
    )


def _bounds(sequence: DifferenceSequence, confidence: float, margin: float) -> tuple[float, float, Word]:
    low, high = sequence.interval(confidence, is_unweighted=True)
    if low > margin:
        return low, high, "worse"
    if high < -margin:
        return low, high, "better"
    if low < -margin or high > margin:
        return low, high, "undecided"
    return low, high, "same" if low <= 0.0 <= high else "close"
