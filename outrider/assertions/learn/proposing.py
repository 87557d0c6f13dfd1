"""Find rules on the earlier reference records, test them on the later."""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion
from outrider.assertions.batch import Batch
from outrider.assertions.checker import severities_of
from outrider.assertions.statistics.clusters import Clusters
from outrider.assertions.statistics.loss_bounds import design_effect

from .drift import drifting
from .faults import check_units, faults
from .proposal import FACTORIES, Proposal
from .rules import in_order, kinds, rules

Bools = NDArray[np.bool_]
OF_VALUES = ("column", "first", "second", "lower", "upper")
"""Names of parameters that refer to a column whose values the rule is about."""


def learn(
    reference: Batch,
    *,
    max_fire_rate: float = 0.005,
    held_out: float = 0.3,
    min_support: int = 50,
    units: Mapping[str, str] | None = None,
    seed: int = 0,
) -> list[Proposal]:
    """Propose assertions that hold on reference records.

    Rules cover ranges, resolutions, units and categories of single columns, nulls and NaN, columns that
    determine or order each other or may be swapped, values that exclude each other; within an entity values
    that freeze or jump, and changes of an output that never happen.

    Parameters
    ----------
    reference
        Records believed to be right; columns of ``inputs`` and ``outputs`` are used. Labels are not: a live
        record has none when it is judged. Rules are fitted on the earlier part by ``ts`` (in row order if all
        times are equal), and tested on the later; a column that drifts in between is named in ``drift``.
    max_fire_rate
        Maximum share of the later part on which all proposals together may fire; those that fire most by
        themselves are dropped first.
    held_out
        Share of the reference used for testing only, in (0, 1).
    min_support
        Minimum number of records that support a rule.
    units
        Unit by column, such as ``{"inputs.reading": "celsius"}``. Unit mistakes are searched for if the name
        of a column contains its unit or quantity, or if it is given here.

    Returns
    -------
    list
        By kind, then name; empty where the reference has fewer than twice ``min_support`` records.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> height, sex = rng.normal(1.7, 0.1, 2000), rng.choice(["f", "m"], 2000).tolist()
    >>> people = {"inputs.height": height, "inputs.sex": sex}
    >>> for proposal in learn(Batch.from_columns(people, model="m")):
    ...     print(proposal.kind, proposal.why[:46], proposal.expected_fire_rate)
    categories inputs.sex is one of 2 values 0.0
    finite inputs.height holds no NaN and no infinity 0.0
    nulls inputs.height, inputs.sex are never null 0.0
    range inputs.height is within 1.31006 to 2.0066 0.0
    units inputs.height is mostly within 1.31006 to 2.00 0.0
    """
    if not 0 < held_out < 1:
        raise ValueError(f"held_out must lie in (0, 1), got {held_out}")
    columns = [name for name in reference.names if name.startswith(("inputs.", "outputs."))]
    check_units(units or {}, columns)
    if reference.rows < 2 * min_support:
        return []
    labels = [name for name in reference.names if name.startswith("label.")]
    live = Batch(reference.to_arrow().drop_columns(labels), model=reference.model)
    ordered = live.take(np.argsort(live.column("ts"), kind="stable"))
    cut = ordered.rows - max(1, int(ordered.rows * held_out))
    fitted, rest = ordered.slice(0, cut), ordered.slice(cut)
    moved = drifting(ordered, cut, columns)
    by_entity = in_order(ordered)  # a file has no order of arrival: nothing in it is late
    series, is_later = ordered.take(by_entity), by_entity >= cut
    found: list[Proposal] = []
    fires: list[Bools] = []
    clusters = Clusters.of(rest.column("entity"), rest.column("ts"))
    names: set[str] = set()
    numeric, grouped = kinds(fitted, columns)
    speaking = chain(
        rules(fitted, columns, numeric, grouped, min_support, seed),
        faults(fitted, numeric, grouped, min_support, seed, units or {}),
    )
    for kind, name, factory, parameters, support, why in speaking:
        judge: Assertion = FACTORIES[factory](**parameters, name=name)
        if judge.window is None:
            fired = severities_of(judge, rest) > 0
        else:  # what an entity sent in the earlier part is context of the later
            fired = np.zeros(rest.rows, dtype=np.bool_)
            fired[by_entity[is_later] - cut] = severities_of(judge, series)[is_later] > 0
        count = int(np.count_nonzero(fired))
        if count > max_fire_rate * rest.rows:
            continue
        concerned = {str(parameters[one]) for one in OF_VALUES if one in parameters}
        drift = {column: moved[column] for column in sorted(concerned & moved.keys())}
        unique = _unique(name, names)
        effect = float(f"{design_effect(fired.astype(np.float64), clusters):.3g}")
        shown = support, rest.rows, count, why, drift, effect, clusters.stretch
        found.append(Proposal(kind, unique, factory, parameters, *shown))
        fires.append(fired)
    kept = _within(fires, max_fire_rate * rest.rows)
    return sorted((found[index] for index in kept), key=lambda one: (one.kind, one.name))


def _within(fires: Sequence[Bools], most: float) -> list[int]:
    """Indices of the proposals that together fire on at most ``most`` records."""
    kept = list(range(len(fires)))
    while kept:
        count = np.sum([fires[index] for index in kept], axis=0)
        if np.count_nonzero(count) <= most:
            break
        alone = [int(np.count_nonzero(fires[index] & (count == 1))) for index in kept]
        total = [int(np.count_nonzero(fires[index])) for index in kept]
        kept.remove(max(zip(alone, total, kept, strict=True))[2])
    return kept


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken or candidate in FACTORIES:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate
