"""Drift of all columns, with one error for the whole report."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .classifier import DomainClassifier, domain_classifier
from .counting import count_column
from .direction import (
    FEW_CATEGORIES,
    Quantiles,
    in_order_of_words,
    missing_place,
    missing_words,
    shape_words,
    unseen_words,
)
from .energy import energy_distance, vector_evidence
from .evidence import ChangeEvidence, holm
from .reading import WORDS, NotCompared, Values, read_current, read_reference
from .result import DriftReport, Role
from .verdicts import ALPHA, FOUND, LEAST, LEAST_SHARE, ROLES, MeasuredColumn, Say, check_parameters, decide
from .windows import Windows

FEWEST_VECTORS = 100
"""Minimum number of vectors per window for a verdict."""


def drift_report(
    reference: Any,
    current: Any,
    *,
    columns: Sequence[str] | None = None,
    outputs: Sequence[str] = (),
    labels: Sequence[str] = (),
    entity: str | None = None,
    weight: str | None = None,
    ts: str | None = None,
    units: Mapping[str, str] | None = None,
    alpha: float = ALPHA,
    least: float = LEAST,
    least_share: float = LEAST_SHARE,
    find: float = FOUND,
    is_multivariate: bool = False,
    threads: int = 1,
) -> DriftReport:
    """Test each column for drift, with one error for all columns.

    A column drifts if a change of its distribution, of its missing values or of its unseen values is proven
    and large enough. Proven: its p-value, Holm-adjusted over all columns and changes, is at most ``alpha``.
    The p-value allows for the dispersion between held-out blocks of the reference, so that runs, seasons and
    small references do not cause alarms. Large enough: at least ``least``, and above the estimation error of
    the reference.

    Parameters
    ----------
    reference, current
        pandas frames, Arrow tables or ``Batch``; the reference in its order of time.
    columns
        Columns to compare; default: all of the reference.
    outputs, labels
        Names of output and label columns, if they are not ``outputs.…`` or ``label.…``.
    entity
        Column with the entity (user, camera, patient) of each record, in both windows; each entity counts
        once. Default for a ``Batch``: ``entity``.
    weight
        Column with 1 / probability of having been captured. Default for a ``Batch``: ``weight``.
    ts
        Column with event times, in both windows. A window of at most half a day is compared with the same
        hours of earlier days, one of at most half a week with the same days of earlier weeks, if the
        reference has three or more. Default for a ``Batch``: ``ts``.
    units
        Unit of a column's numbers, for sentences.
    alpha
        Probability of any false alarm in the whole report, in (0, 1).
    least, least_share
        Minimum distance of a distribution, and minimum difference of a share, that count as drift, in [0, 1].
    find
        Distance that should be detected with 80 % power, in (0, 1): a column with too few records for it is
        undecided.
    is_multivariate
        Also classify records by window from all columns together (:class:`DomainClassifier`), with the same
        error for the whole report.
    threads
        Number of columns counted in parallel.

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
    check_parameters(alpha=alpha, least=least, least_share=least_share, find=find)
    windows = Windows.of(reference, current, entity, weight, ts)
    roles = _roles(windows.reference, outputs, labels)
    chosen = [MeasuredColumn(name, roles[name]) for name in windows.chosen(columns)]
    problems = windows.problems()
    if not problems:

        def measure(column: MeasuredColumn) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # numbers near the end of doubles
                _measure(column, windows, least, least_share)

        with ThreadPoolExecutor(threads) as pool:
            list(map(measure, chosen) if threads == 1 else pool.map(measure, chosen))
    ignored = {each.name: each.ignored for each in chosen if each.ignored}
    compared = [each for each in chosen if not each.ignored]
    with np.errstate(over="ignore", invalid="ignore"):
        together = _together(compared) if is_multivariate and not problems else None
        say = _sayer(compared, windows, units or {})
        more = [] if together is None else [together.chance]
        decided = decide(compared, say, alpha=alpha, find=find, more=more)
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
        matched=windows.matched,
        together=together,
        is_apart=together is not None and _is_apart(compared, together, alpha, least),
    )


def _roles(names: Iterable[str], outputs: Sequence[str], labels: Sequence[str]) -> dict[str, Role]:
    declared: dict[str, Role] = dict.fromkeys(outputs, "output")
    declared.update(dict.fromkeys(labels, "label"))
    found = {name: declared.get(name, ROLES.get(name.partition(".")[0], "input")) for name in names}
    if absent := sorted(declared.keys() - found.keys()):
        raise ValueError(f"reference: column {absent[0]!r} expected, found {', '.join(found)}")
    return found


def _measure(column: MeasuredColumn, windows: Windows, least: float, least_share: float) -> None:
    """Count a column and compute its evidence; bad input becomes a message."""
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
    if column.weigh(counts, least, least_share):
        column.values = one, two


def _measure_vectors(
    column: MeasuredColumn, reference: NDArray[np.float64], current: NDArray[np.float64], least: float
) -> None:
    """Test the energy distance of vectors; rows that are not finite are left out."""
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


def _is_apart(
    columns: Sequence[MeasuredColumn], together: DomainClassifier, alpha: float, least: float
) -> bool:
    """True if the classifier separates the windows, significantly and by enough."""
    chances = [each.chance for column in columns for each in column.evidence]
    adjusted = float(holm([*chances, together.chance])[-1])
    return adjusted <= alpha and together.auroc >= 0.5 + least


def _together(columns: Sequence[MeasuredColumn]) -> DomainClassifier | None:
    return domain_classifier({each.name: each.values for each in columns if each.values is not None})


def _sayer(columns: Sequence[MeasuredColumn], windows: Windows, units: Mapping[str, str]) -> Say:
    """Function that makes the sentence about a column, with the category in which values are missing."""
    categories = {
        each.name: each.values
        for each in columns
        if each.values is not None and each.kind == "category" and each.counts is not None
        and len(each.counts.labels) <= FEW_CATEGORIES
    }  # fmt: skip

    def say(column: MeasuredColumn, drifting: Sequence[ChangeEvidence]) -> str:
        others = {name: values for name, values in categories.items() if name != column.name}
        unit = "letters" if column.kind == "text" else units.get(column.name, "")
        return _words(column, drifting, windows, others, unit)

    return say


def _words(
    column: MeasuredColumn,
    drifting: Sequence[ChangeEvidence],
    windows: Windows,
    others: Mapping[str, tuple[Values, Values]],
    unit: str,
) -> str:
    """Sentence about the drifting changes: largest excess over its floor first, for numbers the shape."""
    assert column.counts is not None
    assert column.values is not None
    clauses = []
    for each in in_order_of_words(drifting, is_number=column.counts.is_ordered):
        if each.change == "missing":
            clauses.append(missing_words(each, missing_place(_missing(column.values), others)))
        elif each.change == "unseen":
            clauses.append(unseen_words(column.counts, each, _ends(column.values[0]), unit))
        else:
            clauses.append(shape_words(column.counts, _quantiles(column, windows), unit))
    return "; ".join(clauses)


def _ends(reference: Values) -> tuple[float, float]:
    """Smallest and largest finite number of the reference; (0, 0) for categories."""
    finite = reference.numbers[np.isfinite(reference.numbers)] if reference.kind != "category" else []
    return (float(np.min(finite)), float(np.max(finite))) if len(finite) else (0.0, 0.0)


def _missing(values: tuple[Values, Values]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    one, two = (
        each.codes == len(each.categories) if each.kind == "category" else np.isnan(each.numbers)
        for each in values
    )
    return one, two


def _quantiles(column: MeasuredColumn, windows: Windows) -> Quantiles | None:
    if column.counts is None or column.values is None or not column.counts.is_ordered:
        return None
    one, two = column.values
    weights = (windows.samples[0].weights, windows.samples[1].weights)
    return Quantiles.of(column.counts, (one.numbers, two.numbers), weights)
