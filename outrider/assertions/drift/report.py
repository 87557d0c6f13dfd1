"""Drift of every column, with one error for the whole report."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .classifier import DomainClassifier, domain_classifier
from .counting import ColumnCounts, count_column
from .direction import (
    FEW_CATEGORIES,
    Quantiles,
    missing_place,
    missing_words,
    shape_words,
    unseen_words,
)
from .energy import EnergyDistance, energy_distance, vector_evidence
from .evidence import ChangeEvidence, evidence_of, holm, records_needed, smallest_found
from .reading import WORDS, Kind, NotCompared, Values, read_current, read_reference
from .result import ColumnDrift, DriftReport, Role, Status
from .statistics import statistics_of
from .variation import Variation
from .windows import Windows

ALPHA = 0.01
LEAST, LEAST_SHARE = 0.05, 0.01
FOUND = 0.2
FEWEST_VECTORS = 100
"""Vectors of a window below which nothing is said of them."""
_DISPERSED = 2.0
"""Dispersion of the reference's blocks from which sentences name it."""
_ROLES: dict[str, Role] = {"outputs": "output", "label": "label", "attrs": "attribute"}


def drift_report(
    reference: Any,
    current: Any,
    *,
    columns: Sequence[str] | None = None,
    outputs: Sequence[str] = (),
    labels: Sequence[str] = (),
    entity: str | None = None,
    weight: str | None = None,
    units: Mapping[str, str] | None = None,
    alpha: float = ALPHA,
    least: float = LEAST,
    least_share: float = LEAST_SHARE,
    find: float = FOUND,
    is_multivariate: bool = False,
    threads: int = 1,
) -> DriftReport:
    """Judge each column's drift, with one error over all columns.

    A column drifts where a change of its distribution, of its missing or of its unseen values is proven and
    large enough. Proven: its chance, by Holm's rule over all columns and changes, is at most ``alpha``. The
    chance is that of independent records, times the dispersion that held-out blocks of the reference show
    among themselves, so that runs, seasons and small references widen it. Large enough: at least ``least``,
    and above the error that the reference has itself.

    Parameters
    ----------
    reference, current
        pandas frames, Arrow tables or ``Batch``; the reference in its order of time.
    columns
        The only ones to compare; all of the reference by default.
    outputs, labels
        Columns that are one, where names do not say so (``outputs.score``, ``label.class``).
    entity
        Column of users, cameras, patients in both: each of them counts once. ``entity`` of a ``Batch``.
    weight
        Column with 1 / probability of having been captured. ``weight`` of a ``Batch``.
    units
        Unit of a column's numbers, for sentences.
    alpha
        Chance of any false alarm in the whole report, in (0, 1).
    least, least_share
        Smallest distance of a distribution, and difference of a share, that count as drift, in [0, 1].
    find
        Distance that should be found with a chance of 80 %, in (0, 1): a column whose samples are too small
        for it is undecided.
    is_multivariate
        Also tell records of both windows apart by all columns together (:class:`DomainClassifier`), with the
        same error over everything.
    threads
        Columns that are counted at once.

    Returns
    -------
    DriftReport
        Every column of the reference, worst first; bad input as sentences, never as drift.

    Raises
    ------
    ValueError
        If a parameter is out of range, or a named column is absent from the reference.
    TypeError
        If the data are of another type.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> before = {"age": rng.normal(41, 9, 5000), "city": rng.choice(["Bern", "Genf"], 5000)}
    >>> now = {"age": rng.normal(57, 9, 5000), "city": rng.choice(["Bern", "Genf"], 5000)}
    >>> found = drift_report(before, now, units={"age": "years"})
    >>> age = found.columns[0]
    >>> age.column, age.status, age.words.partition(";")[0]
    ('age', 'drift', 'median 40.75 → 57.14 years')
    >>> found.columns[1].status
    'no drift shown'
    """
    _check(alpha=alpha, least=least, least_share=least_share, find=find)
    windows = Windows.of(reference, current, entity, weight)
    roles = _roles(windows.reference, outputs, labels)
    chosen = [_Column(name, roles[name]) for name in windows.chosen(columns)]
    problems = windows.problems()
    if not problems:

        def measure(column: _Column) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # numbers near the end of doubles
                _measure(column, windows, least, least_share)

        with ThreadPoolExecutor(threads) as pool:
            list(map(measure, chosen) if threads == 1 else pool.map(measure, chosen))
    ignored = {each.name: each.ignored for each in chosen if each.ignored}
    compared = [each for each in chosen if not each.ignored]
    with np.errstate(over="ignore", invalid="ignore"):
        together = _together(compared) if is_multivariate and not problems else None
        decided = _decide(compared, windows, units or {}, alpha, find, together)
    return DriftReport(
        columns=decided,
        problems=tuple(problems),
        ignored=ignored,
        reference_rows=windows.samples[0].rows,
        current_rows=windows.samples[1].rows,
        reference_effective=windows.samples[0].effective,
        current_effective=windows.samples[1].effective,
        alpha=alpha,
        least=least,
        least_share=least_share,
        together=together,
        is_apart=together is not None and _is_apart(compared, together, alpha, least),
    )


def _check(**parameters: float) -> None:
    for name, value in parameters.items():
        if not 0.0 < value < 1.0:
            raise ValueError(f"{name} must lie between 0 and 1, got {value}")


def _roles(names: Iterable[str], outputs: Sequence[str], labels: Sequence[str]) -> dict[str, Role]:
    said: dict[str, Role] = dict.fromkeys(outputs, "output")
    said.update(dict.fromkeys(labels, "label"))
    found = {name: said.get(name, _ROLES.get(name.partition(".")[0], "input")) for name in names}
    if absent := sorted(said.keys() - found.keys()):
        raise ValueError(f"reference: column {absent[0]!r} expected, found {', '.join(found)}")
    return found


@dataclass(slots=True)
class _Column:
    """Facts of a column before the chances of all are there."""

    name: str
    role: Role
    kind: Kind | None = None
    values: tuple[Values, Values] | None = None
    counts: ColumnCounts | None = None
    variation: Variation | None = None
    evidence: list[ChangeEvidence] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ignored: str = ""
    energy: EnergyDistance | None = None
    is_same: bool = False
    """One and the same value in both windows."""


def _measure(column: _Column, windows: Windows, least: float, least_share: float) -> None:
    """Count a column and weigh its changes; bad input becomes a sentence."""
    try:
        one = read_reference(windows.reference[column.name], is_answer=column.role in ("output", "label"))
    except NotCompared as error:
        column.ignored = str(error)
        return
    column.kind = one.kind
    if column.name not in windows.current and column.role == "label":
        column.ignored = "current: labels expected as in the reference, none has arrived"
        return
    if column.name not in windows.current:
        column.problems.append(f"current: {WORDS[one.kind]} expected as in the reference, the column is gone")
        return
    try:
        two = read_current(windows.current[column.name], one)
        if one.kind == "vector":
            _measure_vectors(column, one.numbers, two.numbers, least)
            return
        counts = count_column(one, two, *windows.samples)
    except NotCompared as error:
        column.problems.append(f"{error.window}: {error}")
        return
    column.problems += _problems(counts)
    column.is_same = np.count_nonzero(counts.reference + counts.current) == 1
    if _is_judged(counts):
        column.values, column.counts = (one, two), counts
        column.variation = Variation.of(counts)
        column.evidence = evidence_of(counts, column.variation, least=least, least_share=least_share)


def _measure_vectors(
    column: _Column, reference: NDArray[np.float64], current: NDArray[np.float64], least: float
) -> None:
    """Weigh the energy distance of vectors; rows that are not finite are left out."""
    both = [each[np.isfinite(each).all(axis=1)] for each in (reference, current)]
    for window, every, each in zip(("reference", "current"), (reference, current), both, strict=True):
        if len(each) < len(every):
            left_out = len(every) - len(each)
            column.problems.append(f"{window}: finite vectors expected, found {left_out:,} others, left out")
        if len(each) < FEWEST_VECTORS:
            column.problems.append(f"{window}: at least {FEWEST_VECTORS} vectors expected, found {len(each)}")
    if min(map(len, both)) >= FEWEST_VECTORS:
        column.energy = energy_distance(both[0], both[1])
        column.evidence = [vector_evidence(both[0], both[1], least=least)]


def _is_judged(counts: ColumnCounts) -> bool:
    """True where both windows have values, and those of the reference vary."""
    return bool(np.count_nonzero(counts.reference) > 1 and counts.current.any())


def _problems(counts: ColumnCounts) -> list[str]:
    found = []
    if np.count_nonzero(counts.reference) == 1:
        found.append("reference: values that vary expected, found one alone")
    if not counts.current.any():
        found.append("current: values expected, found null or infinite alone")
    for window, infinite in zip(("reference", "current"), counts.infinite, strict=True):
        if infinite:
            found.append(f"{window}: finite numbers expected, found {infinite:,.0f} infinite, left out")
    return found


def _is_apart(columns: Sequence[_Column], together: DomainClassifier, alpha: float, least: float) -> bool:
    """True where the windows are told apart, proven and by enough."""
    chances = [each.chance for column in columns for each in column.evidence]
    adjusted = float(holm([*chances, together.chance])[-1])
    return adjusted <= alpha and together.auroc >= 0.5 + least


def _together(columns: Sequence[_Column]) -> DomainClassifier | None:
    return domain_classifier({each.name: each.values for each in columns if each.values is not None})


def _decide(
    columns: Sequence[_Column],
    windows: Windows,
    units: Mapping[str, str],
    alpha: float,
    find: float,
    together: DomainClassifier | None,
) -> tuple[ColumnDrift, ...]:
    """Verdicts with one error over all columns, worst first."""
    chances_of_all = [each.chance for column in columns for each in column.evidence]
    chances_of_all += [] if together is None else [together.chance]
    adjusted, tests = iter(holm(chances_of_all).tolist()), len(chances_of_all)
    categories = {
        each.name: each.values
        for each in columns
        if each.values is not None and each.kind == "category" and each.counts is not None
        and len(each.counts.labels) <= FEW_CATEGORIES
    }  # fmt: skip
    found = []
    for column in columns:
        chances = tuple(next(adjusted) for _ in column.evidence)
        others = {name: values for name, values in categories.items() if name != column.name}
        unit = "letters" if column.kind == "text" else units.get(column.name, "")
        found.append(_verdict(column, chances, windows, others, unit, alpha, alpha / max(tests, 1), find))
    return tuple(sorted(found, key=_rank))


def _verdict(
    column: _Column,
    chances: tuple[float, ...],
    windows: Windows,
    others: Mapping[str, tuple[Values, Values]],
    unit: str,
    alpha: float,
    alpha_each: float,
    find: float,
) -> ColumnDrift:
    kind = column.kind or ""
    if column.energy is not None:
        return _vector_verdict(column, column.energy, chances, alpha)
    if column.counts is None or column.variation is None:
        status: Status = "no drift shown" if column.is_same else "undecided"
        return ColumnDrift(column.name, column.role, kind, status, "", tuple(column.problems))
    pairs = list(zip(column.evidence, chances, strict=True))
    drifting = [each for each, chance in pairs if chance <= alpha and each.distance >= each.floor]
    smallest = smallest_found(column.counts, column.variation, alpha_each)
    problems = list(column.problems)
    if smallest > find and not drifting:
        problems.append(_too_small(column.counts, column.variation, alpha_each, smallest, find))
    return ColumnDrift(
        column.name,
        column.role,
        kind,
        "drift" if drifting else "undecided" if smallest > find else "no drift shown",
        _words(column, drifting, windows, others, unit),
        tuple(problems),
        tuple(column.evidence),
        chances,
        tuple(each.change for each in drifting),
        statistics_of(column.counts),
        column.variation.shape,
        smallest,
        column.counts,
    )


def _vector_verdict(
    column: _Column, energy: EnergyDistance, chances: tuple[float, ...], alpha: float
) -> ColumnDrift:
    found = column.evidence[0]
    is_drift = chances[0] <= alpha and found.distance >= found.floor
    return ColumnDrift(
        column.name,
        column.role,
        column.kind or "",
        "drift" if is_drift else "no drift shown",
        f"vectors moved by an energy distance of {energy.distance:.3g}" if is_drift else "",
        tuple(column.problems),
        tuple(column.evidence),
        chances,
        (found.change,) if is_drift else (),
        {"energy_distance": energy.distance, "energy_coefficient": energy.coefficient},
    )


def _too_small(counts: ColumnCounts, variation: Variation, alpha: float, smallest: float, find: float) -> str:
    needed = records_needed(variation, alpha, find)
    n, m = counts.reference.sum(), counts.current.sum()
    moves = f"; blocks of the reference differ {variation.shape:,.0f} times as much as independent records do"
    return (
        f"reference and current: about {needed:,} records of each expected to find a distance of {find:g}, "
        f"found {n:,.0f} and {m:,.0f} effective ones, which find {min(smallest, 1.0):.2g}"
        f"{moves if variation.shape >= _DISPERSED else ''}"
    )


def _words(
    column: _Column,
    drifting: Sequence[ChangeEvidence],
    windows: Windows,
    others: Mapping[str, tuple[Values, Values]],
    unit: str,
) -> str:
    """Sentence about the changes that drift: the largest beyond its floor first, of numbers the shape."""
    assert column.counts is not None
    assert column.values is not None
    told, is_number = [], column.counts.is_ordered
    for each in sorted(
        drifting, key=lambda one: (is_number and one.change != "shape", -one.distance / one.floor)
    ):
        if each.change == "missing":
            told.append(missing_words(each, missing_place(_missing(column.values), others)))
        elif each.change == "unseen":
            told.append(unseen_words(column.counts, each, column.values[0], unit))
        else:
            told.append(shape_words(column.counts, _quantiles(column, windows), unit))
    return "; ".join(told)


def _missing(values: tuple[Values, Values]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    one, two = (
        each.codes == len(each.categories) if each.kind == "category" else np.isnan(each.numbers)
        for each in values
    )
    return one, two


def _quantiles(column: _Column, windows: Windows) -> Quantiles | None:
    if column.counts is None or column.values is None or not column.counts.is_ordered:
        return None
    one, two = column.values
    weights = (windows.samples[0].weights, windows.samples[1].weights)
    return Quantiles.of(column.counts, (one.numbers, two.numbers), weights)


def _rank(found: ColumnDrift) -> tuple[int, float]:
    """Drift first, by the largest distance over its floor; then what is undecided."""
    beyond = max((each.distance / each.floor for each in found.evidence), default=0.0)
    return ("drift", "undecided", "no drift shown").index(found.status), -beyond
