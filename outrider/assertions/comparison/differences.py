"""Differences of two answers to one record, by measure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions.batch import Batch
from outrider.assertions.batch.columns import is_tensor
from outrider.assertions.texts.words import words

from .agreement import EMBEDDING, PROPERTIES, Measure
from .items import bags, exchanged, read_items
from .matching import matches

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

LENGTH_TOLERANCE = 1.0
"""Tolerance of the binary logarithm of text length: texts differ if one is more than twice as long."""
UNKNOWN = "unknown"
"""Language of a text with too little evidence; it equals every language."""
QUANTILES = (0.05, 0.95)
"""Quantiles of production's scores whose distance is the spread that tolerances refer to."""
ROUNDING = 1e-5
"""Relative tolerance for scores that are otherwise constant: kernels round."""
UNORDERED: frozenset[Measure] = frozenset(("words", "facts"))
"""Measures of items whose order is ignored."""
_LABELS = ("tags",)
_SCORES = ("value", "logprob", "score")
_TEXTS = ("text", "answer", "content")
_VECTORS = ("probs", "embedding")


@dataclass(frozen=True, slots=True)
class Ruler:
    """Outputs to compare, and tolerances for a difference.

    Attributes
    ----------
    target
        Output with the answer: a class, a number, or a text.
    is_text
        Whether the target is generated text, compared by its words.
    score_tolerance
        Scores differ if their distance exceeds this share of ``spread``.
    spread
        Distance of two quantiles of production's scores, set by :meth:`at`; 0 if they are all alike: scores
        must then be equal up to ``ROUNDING``.
    agree
        Parts of texts that the user declared to have to agree: ``words``, ``facts``, a path of JSON
        (``$.decision``), classes (``classes=approved,rejected``), or ``embedding``.
    reach
        Texts differ in their embedding if the distance of their unit vectors is at least this; see
        :class:`~.embedding_reach.EmbeddingReach`.
    top
        Rankings differ if the order of this many best classes differs.
    """

    target: str = "label"
    is_text: bool = False
    score_tolerance: float = 0.01
    spread: float = 1.0
    agree: tuple[str, ...] = ()
    reach: float = 0.0
    top: int = 3

    def at(self, answer: Batch) -> "Ruler":
        """Ruler whose ``spread`` is that of these answers' scores.

        Class probabilities keep their own scale.

        Examples
        --------
        >>> scores = Batch.from_columns({"outputs.score": [0.001, 0.002, 0.009]}, model="m", rows=3)
        >>> round(Ruler("score").at(scores).spread, 4), Ruler("score").at(scores.take([0])).spread
        (0.0072, 0.0)
        """
        scores = self.scores(answer)
        return replace(self, spread=spread_of(scores)) if len(scores) else self

    def scores(self, answer: Batch) -> Floats:
        """Scores whose spread counts, flattened; empty for class probabilities."""
        field = _score_field(answer, self)
        values = _numbers(answer, field) if field and field != "probs" else np.zeros(0)
        return values[np.isfinite(values)]


def spread_of(scores: Floats) -> float:
    """Distance of the 5 % and 95 % quantiles."""
    low, high = np.quantile(scores, QUANTILES)
    return float(high - low)


def measures_of(answer: Batch, ruler: Ruler) -> tuple[Measure, ...]:
    """Measures that apply to these answers, the deciding one first."""
    found: list[Measure] = []
    if _label_field(answer, ruler):
        found.append("label")
    if _text_field(answer, ruler):
        found += [each for each in text_measures(ruler) if each != EMBEDDING or answer.has(VECTORS)]
    if _score_field(answer, ruler):
        found.append("score")
    if _ranking(answer, ruler):
        found.append("rank")
    found += [name for name in PROPERTIES if answer.has(property_column(name))]
    return tuple(found)


def text_measures(ruler: Ruler) -> tuple[Measure, ...]:
    """Measures of texts, declared ones first."""
    return tuple(dict.fromkeys((*declared(ruler.agree), "text", "words", "facts")))


def declared(agree: Sequence[str]) -> tuple[Measure, ...]:
    """Measures of the parts that were declared to have to agree."""
    return tuple("text" if one == "words" else one for one in agree)


def shared_measures(first: Batch, other: Batch, ruler: Ruler) -> tuple[Measure, ...]:
    """Measures that apply to both models, on outputs of the same name.

    For example, ``probs`` of one model are not compared if the other has only ``label`` and ``score``.

    Examples
    --------
    >>> one = Batch.from_columns({"outputs.label": ["a"], "outputs.score": [0.9]}, model="m", rows=1)
    >>> two = Batch.from_columns({"outputs.label": ["a"], "outputs.value": [0.9]}, model="m", rows=1)
    >>> shared_measures(one, two, Ruler())
    ('label',)
    """
    others = measures_of(other, ruler)
    return tuple(
        measure
        for measure in measures_of(first, ruler)
        if measure in others and _read_of(measure, first, ruler) == _read_of(measure, other, ruler)
    )


def property_column(measure: Measure) -> str:
    """Column that holds a property of the texts."""
    return f"outputs.text_{measure}"


VECTORS = property_column(EMBEDDING)
"""Column of the texts' unit vectors."""


def text_column_of(answer: Batch, ruler: Ruler) -> str:
    """Column of the generated text; empty if there is none."""
    field = _text_field(answer, ruler)
    return f"outputs.{field}" if field else ""


def subjects(measure: Measure, answer: Batch, ruler: Ruler) -> Rows:
    """Row numbers of each comparison, shape (comparisons, rows per comparison).

    One row each; two consecutive rows for ranks by one score: they differ if two models order them
    differently.
    """
    rows = np.arange(answer.rows, dtype=np.intp)
    if measure == "rank" and _ranking(answer, ruler) == "pairs":
        return rows[: len(rows) // 2 * 2].reshape(-1, 2)
    return rows[:, None]


def differ(measure: Measure, first: Batch, other: Batch, ruler: Ruler) -> Bools:
    """Mask of the answers that differ, shape (comparisons,); symmetric.

    Comparisons are in the order of :func:`subjects`.

    Parameters
    ----------
    first, other
        Answers of two models to the same records, row by row.

    Examples
    --------
    >>> one = Batch.from_columns({"outputs.label": [1, 2, 3]}, model="m", rows=3)
    >>> two = Batch.from_columns({"outputs.label": [1, 2, 4]}, model="m", rows=3)
    >>> differ("label", one, two, Ruler()).tolist()
    [False, False, True]
    """
    return AnswerReading.of(measure, first, ruler).differs(AnswerReading.of(measure, other, ruler))


@dataclass(frozen=True, slots=True)
class AnswerReading:
    """Answers of one model as one measure reads them.

    Attributes
    ----------
    bag
        Items of each text; None for measures that read the answers themselves.
    joined
        The same items in their order, as one text.
    """

    measure: Measure
    answer: Batch
    ruler: Ruler
    bag: Any = None
    joined: NDArray[np.object_] | None = None

    @classmethod
    def of(cls, measure: Measure, answer: Batch, ruler: Ruler) -> "AnswerReading":
        """Answers of one model, read for a measure."""
        if not is_of_items(measure, ruler):
            return cls(measure, answer, ruler)
        kind = "text" if measure == "words" else measure
        items = [read_items(kind, text or "") for text in _texts_of(answer, _text_field(answer, ruler))]
        joined = np.empty(len(items), dtype=object)
        joined[:] = ["\0".join(each) for each in items]
        return cls(measure, answer, ruler, bags(items), joined)

    def of_measure(self, measure: Measure) -> "AnswerReading":
        """The same items, read by another measure."""
        return replace(self, measure=measure)

    @property
    def items(self) -> Floats:
        """Number of items of each text, shape (rows,)."""
        return np.asarray(self.bag.sum(axis=1), dtype=np.float64)

    def exchanged(self, other: "AnswerReading") -> Floats:
        """Number of items by which the texts differ, shape (rows,)."""
        return exchanged(self.bag, other.bag)

    def differs(self, other: "AnswerReading") -> Bools:
        """Mask of the answers that differ."""
        measure, first, second, ruler = self.measure, self.answer, other.answer, self.ruler
        if self.bag is not None and measure in UNORDERED:
            return np.asarray(self.exchanged(other) > 0.0)
        if self.joined is not None:
            return np.asarray(self.joined != other.joined, dtype=np.bool_)
        if measure == "label":
            field = _label_field(first, ruler)
            return _unequal(first.arrow(f"outputs.{field}"), second.arrow(f"outputs.{field}"))
        if measure == "score":
            return deltas(first, second, ruler) > ruler.score_tolerance
        if measure == EMBEDDING:
            one, two = (answer.tensor(VECTORS, null=np.nan) for answer in (first, second))
            # Texts without a vector may say anything.
            return np.asarray(~(np.linalg.norm(one - two, axis=1) < ruler.reach))
        if measure in PROPERTIES:
            one, two = (answer.column(property_column(measure)) for answer in (first, second))
            if measure == "length":
                return np.asarray(np.abs(one - two) > LENGTH_TOLERANCE)
            is_known = (one != UNKNOWN) & (two != UNKNOWN) if measure == "language" else True
            return np.asarray((one != two) & is_known, dtype=np.bool_)
        if _ranking(first, ruler) == "pairs":
            return np.asarray(_pair_order(first, ruler) != _pair_order(second, ruler))
        best, others = _best(first, ruler), _best(second, ruler)
        if best.shape != others.shape:
            return np.ones(first.rows, dtype=np.bool_)
        return np.asarray((best != others).any(axis=1))


def is_of_items(measure: Measure, ruler: Ruler) -> bool:
    """True for measures of the items of a text."""
    return ruler.is_text and measure != EMBEDDING and measure in text_measures(ruler)


def deltas(first: Batch, other: Batch, ruler: Ruler) -> Floats:
    """Distance of scores as a share of the ruler's spread, shape (rows,).

    For vectors the largest difference; NaN has distance 0 from NaN, infinite from a number.
    """
    field = _score_field(first, ruler)
    one, two = _numbers(first, field), _numbers(other, field)  # (rows, k)
    if one.shape != two.shape:
        return np.full(first.rows, np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        is_equal, far = one == two, np.abs(one - two)
        if not ruler.spread:
            is_equal |= far <= ROUNDING * np.maximum(np.abs(one), np.abs(two))
        apart = np.where(is_equal, 0.0, far / ruler.spread)
    apart = np.where(np.isnan(one) & np.isnan(two), 0.0, np.where(np.isnan(apart), np.inf, apart))
    found: Floats = apart.max(axis=1, initial=0.0)
    return found


def classes_of(answer: Batch, ruler: Ruler) -> NDArray[np.object_]:
    """Class of each answer as text; empty without a class."""
    found = np.empty(answer.rows, dtype=object)
    found[:] = [text or "" for text in _texts_of(answer, _label_field(answer, ruler))]
    return found


def overlap(one: str, other: str) -> float:
    """F1 of the word counts of two texts, in [0, 1].

    Examples
    --------
    >>> overlap("the cat sat", "The cat  stood"), overlap("", "")
    (0.6666666666666666, 1.0)
    """
    first, second = Counter(words(one)), Counter(words(other))
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 1.0


def answer_texts(answer: Batch, rows: Sequence[int], ruler: Ruler) -> list[tuple[str, float | None]]:
    """Answer and score of some records, as display text."""
    field = _label_field(answer, ruler) or _text_field(answer, ruler) or _score_field(answer, ruler)
    score = next((name for name in ("score", *_SCORES) if answer.has(f"outputs.{name}")), "")
    texts = _texts_of(answer.take(list(rows)), field) if field else [None] * len(rows)
    numbers = _numbers(answer.take(list(rows)), score)[:, 0] if score else [np.nan] * len(rows)
    known = [float(value) if np.isfinite(value) else None for value in numbers]
    return [(text or "", value) for text, value in zip(texts, known, strict=True)]


def _score_field(answer: Batch, ruler: Ruler) -> str:
    """Output that scores are compared by: a vector before a number; empty if there is none."""
    own: tuple[str, ...] = (ruler.target,) if _is_number(answer, ruler.target) else ()
    names: tuple[str, ...] = (*_VECTORS, *own, *_SCORES)
    for name in names:
        if _is_vector(answer, name) or _is_number(answer, name):
            return name
    return ""


def _read_of(measure: Measure, answer: Batch, ruler: Ruler) -> tuple[str, ...]:
    """Outputs that a measure reads, and their kinds."""
    if measure == "label":
        return (_label_field(answer, ruler),)
    if is_of_items(measure, ruler):
        return (_text_field(answer, ruler),)
    if measure == "score":
        return (_score_field(answer, ruler),)
    if measure in (EMBEDDING, *PROPERTIES):
        return (property_column(measure),)
    return _ranking(answer, ruler), _score_field(answer, ruler)


def _label_field(answer: Batch, ruler: Ruler) -> str:
    for name in (ruler.target, *_LABELS):
        is_class = answer.has(f"outputs.{name}") and not (
            _is_number(answer, name) or _is_vector(answer, name) or (ruler.is_text and name == ruler.target)
        )
        if is_class:
            return name
    return ""


def _text_field(answer: Batch, ruler: Ruler) -> str:
    if not ruler.is_text:
        return ""
    names = (ruler.target, *_TEXTS)
    return next((name for name in names if answer.has(f"outputs.{name}")), "")


def _ranking(answer: Batch, ruler: Ruler) -> str:
    """``best``: ranking of the classes of a record; ``pairs``: of records by one score; empty: no ranking."""
    if _is_vector(answer, "probs"):
        return "best" if _width(answer, "probs") > 2 else "pairs"
    field = _score_field(answer, ruler)
    return "pairs" if field and not _is_vector(answer, field) and not _label_field(answer, ruler) else ""


def _best(answer: Batch, ruler: Ruler) -> NDArray[np.intp]:
    """The best classes in order, shape (rows, top)."""
    order: NDArray[np.intp] = np.argsort(-_numbers(answer, "probs"), axis=1, kind="stable")
    return order[:, : ruler.top]


def _pair_order(answer: Batch, ruler: Ruler) -> NDArray[np.float64]:
    """Sign of the score difference within each pair of records, shape (pairs,)."""
    values = _numbers(answer, _score_field(answer, ruler))[:, -1]
    pairs = values[: len(values) // 2 * 2].reshape(-1, 2)
    return np.nan_to_num(np.sign(pairs[:, 0] - pairs[:, 1]), nan=2.0)


def _unequal(one: pa.Array, other: pa.Array) -> Bools:
    """Mask of the answers that differ; two missing answers are equal."""
    silent = one.is_null().to_numpy(zero_copy_only=False) & other.is_null().to_numpy(zero_copy_only=False)
    return np.asarray(~(matches(one, other) | silent))


def _texts_of(answer: Batch, name: str) -> list[str | None]:
    values = answer.arrow(f"outputs.{name}").to_pylist()
    return [None if value is None else str(value) for value in values]


def _numbers(answer: Batch, name: str) -> Floats:
    """Column of numbers or vectors, shape (rows, k)."""
    column = f"outputs.{name}"
    if _is_vector(answer, name):
        return np.asarray(answer.tensor(column, null=np.nan), dtype=np.float64).reshape(answer.rows, -1)
    return np.asarray(answer.column(column, null=np.nan), dtype=np.float64)[:, None]


def _type(answer: Batch, name: str) -> Any:
    return answer.arrow(f"outputs.{name}").type if answer.has(f"outputs.{name}") else None


def _is_vector(answer: Batch, name: str) -> bool:
    kind = _type(answer, name)
    return kind is not None and is_tensor(kind)


def _is_number(answer: Batch, name: str) -> bool:
    """True for an output of fractional numbers; whole numbers are classes, unless named as scores."""
    kind = _type(answer, name)
    if kind is None:
        return False
    return bool(pa.types.is_floating(kind) or (name in _SCORES and pa.types.is_integer(kind)))


def _width(answer: Batch, name: str) -> int:
    kind = _type(answer, name)
    return int(np.prod(kind.shape))
