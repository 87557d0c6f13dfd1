"""Behavioral matrix: tests by capability, versions, live rates beside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from outrider.dataops.flags.live_rates import LiveRateView, list_rates
from outrider.dataops.improvement.suite_outcomes import (
    OutcomeRow,
    find_key,
    list_outcomes,
    read_outcome,
    tested_versions,
)
from outrider.dataops.state.improvement_tables import GateVerdict, ModelVersion
from outrider.dataops.state.tables import LiveRate, table_of

from .changes import Change, PairedOutcomes, change_of

COLUMNS = 6
STATUSES = ("failed", "error", "regression", "passed", "skipped", "alarm")
"""What rows can be filtered by; ``regression`` and ``alarm`` are not statuses of outcomes, but of rows."""
_LIVE = table_of(LiveRate)
_VERDICT = table_of(GateVerdict)
_VERSION = table_of(ModelVersion)
_ORDER = {"champion": 0, "challenger": 1, "former": 2}


@dataclass(frozen=True, slots=True)
class Column:
    """A model version, and the one that its outcomes are held against."""

    version: str
    status: str
    """Of the registry; empty for a version that only outcomes were published of."""
    at_us: int
    """When the version was registered, else its newest outcome, else the last live answer."""
    against: str | None


@dataclass(frozen=True, slots=True)
class VersionCell:
    """Cell: one test for one version."""

    outcome: OutcomeRow | None
    change: Change | None
    live: LiveRateView | None


@dataclass(frozen=True, slots=True)
class VersionsRow:
    """Row: one test over the shown versions."""

    capability: str
    kind: str
    suite: str
    test: str
    description: str
    cells: Mapping[str, VersionCell]

    @property
    def is_live(self) -> bool:
        """True for a row with a rate on live traffic."""
        return any(cell.live is not None for cell in self.cells.values())

    @property
    def statuses(self) -> set[str]:
        """Statuses of its cells, with ``regression`` and ``alarm``."""
        found = {cell.outcome.status for cell in self.cells.values() if cell.outcome is not None}
        if any(
            cell.change is not None and cell.change.verdict == "regression" for cell in self.cells.values()
        ):
            found.add("regression")
        if any(cell.live is not None and cell.live.alarm_us is not None for cell in self.cells.values()):
            found.add("alarm")
        return found


@dataclass(frozen=True, slots=True)
class Matrix:
    """Matrix of the page; rows by capability, then suite and test."""

    model: str
    columns: tuple[Column, ...]
    rows: tuple[VersionsRow, ...]
    capabilities: tuple[str, ...] = ()
    """Of all rows, whatever is filtered."""
    older: int = 0
    """Versions behind the last column."""


@dataclass(frozen=True, slots=True)
class Known:
    """Stored outcomes of the shown versions and their references."""

    outcomes: Mapping[str, Mapping[tuple[str, str], OutcomeRow]] = field(default_factory=dict)
    paired: Mapping[str, Mapping[tuple[str, str], PairedOutcomes]] = field(default_factory=dict)
    live: Mapping[str, Mapping[str, LiveRateView]] = field(default_factory=dict)


def read_matrix(
    engine: Engine,
    model: str,
    *,
    capability: str | None = None,
    status: str | None = None,
    skip: int = 0,
    columns: int = COLUMNS,
) -> Matrix:
    """Champion, challengers, older versions newest first, without ``skip`` first columns.

    Parameters
    ----------
    capability, status
        Rows to show: of one capability, and with a cell of this status (``passed``, ``failed``, ``error``,
        ``skipped``, ``regression``, or ``alarm`` of a live test).
    """
    with engine.connect() as connection:
        everything = _columns(connection, model)
        shown = everything[skip : skip + columns]
        known = _read(connection, model, shown)
    rows = _rows(shown, known)
    return Matrix(
        model,
        shown,
        tuple(
            row
            for row in rows
            if (not capability or row.capability == capability) and (not status or status in row.statuses)
        ),
        capabilities=tuple(sorted({row.capability for row in rows})),
        older=max(0, len(everything) - skip - columns),
    )


@dataclass(frozen=True, slots=True)
class Detail:
    """Outcome with failing cases and its reference version's outcome."""

    column: Column
    outcome: Mapping[str, Any]
    """``Outcome.to_dict()`` with ``source`` and ``at_us``."""
    cell: VersionCell
    before: OutcomeRow | None
    versions: tuple[Column, ...]
    """Others that know the test."""


def read_detail(engine: Engine, model: str, version: str, suite: str, test: str) -> Detail | None:
    """Outcome in detail; None for an unknown one.

    The names may be cut at other slashes than their own: an address does not tell them apart.
    """
    with engine.connect() as connection:
        found = read_outcome(connection, model, version, suite, test)
        if found is None:
            key = find_key(connection, model, f"{version}/{suite}/{test}")
            if key is None:
                return None
            version, suite, test = key
            found = read_outcome(connection, model, version, suite, test)
            assert found is not None
        everything = _columns(connection, model)
        column = next(each for each in everything if each.version == version)
        known = _read(connection, model, (*everything[:COLUMNS], column))
    row = next(row for row in _rows((column,), known) if (row.suite, row.test) == (suite, test))
    return Detail(
        column,
        found,
        row.cells[version],
        known.outcomes.get(column.against or "", {}).get((suite, test)),
        tuple(each for each in everything if (suite, test) in known.outcomes.get(each.version, {})),
    )


def _columns(connection: Connection, model: str) -> tuple[Column, ...]:
    tested = tested_versions(connection, model)
    asked = select(_LIVE.c.version, func.max(_LIVE.c.updated_us).label("at_us"))
    live = {
        row.version: row.at_us
        for row in connection.execute(asked.where(_LIVE.c.model == model).group_by(_LIVE.c.version))
    }
    registered = {
        row.version: row for row in connection.execute(select(_VERSION).where(_VERSION.c.model == model))
    }
    judged = _judged_against(connection, model)
    champion = next((name for name, row in registered.items() if row.status == "champion"), None)
    found = []
    for version in {*tested, *live, *([champion] if champion and tested else [])}:
        row = registered.get(version)
        against = judged.get(version)
        if against is None and version == champion:
            against = row.replaced if row is not None else None
        elif against is None and (row is None or row.status == "challenger"):
            against = champion  # what served before and was never judged is held against none
        found.append(
            Column(
                version,
                row.status if row is not None else "",
                row.created_us if row is not None else tested.get(version, live.get(version, 0)),
                against if against != version else None,
            )
        )
    return tuple(
        sorted(found, key=lambda each: (_ORDER.get(each.status, len(_ORDER)), -each.at_us, each.version))
    )


def _judged_against(connection: Connection, model: str) -> dict[str, str]:
    """Champion that the gate last compared each candidate with."""
    query = (
        select(_VERDICT.c.candidate, _VERDICT.c.champion)
        .where(_VERDICT.c.model == model)
        .order_by(_VERDICT.c.created_us)
    )
    return {row.candidate: row.champion for row in connection.execute(query)}


def _read(connection: Connection, model: str, columns: Sequence[Column]) -> Known:
    versions = {column.version for column in columns}
    outcomes: dict[str, dict[tuple[str, str], OutcomeRow]] = {}
    wanted = versions | {column.against for column in columns if column.against}
    for outcome in list_outcomes(connection, model, wanted):
        outcomes.setdefault(outcome.version, {})[outcome.suite, outcome.test] = outcome
    paired: dict[str, dict[tuple[str, str], PairedOutcomes]] = {}
    verdicts = connection.execute(
        select(_VERDICT.c.candidate, _VERDICT.c.evidence["suites"].label("suites"))
        .where(_VERDICT.c.model == model, _VERDICT.c.candidate.in_(versions))
        .order_by(_VERDICT.c.created_us)
    )
    for row in verdicts:
        found = [PairedOutcomes.read(each) for each in row.suites]
        paired[row.candidate] = {(each.suite, each.test): each for each in found if each is not None}
    live: dict[str, dict[str, LiveRateView]] = {}
    for view in list_rates(connection, model):  # the newest revision first
        live.setdefault(view.version, {}).setdefault(view.test, view)
    return Known(outcomes, paired, live)


def _rows(columns: Sequence[Column], known: Known) -> list[VersionsRow]:
    shown = [known.outcomes.get(column.version, {}) for column in columns]
    first: dict[tuple[str, str], OutcomeRow] = {}
    for outcomes in reversed(shown):  # what the newest version says of a test describes it
        first |= outcomes
    names = {test for _, test in first}
    alone = {test for column in columns for test in known.live.get(column.version, {})} - names
    keys = [*first, *(("", test) for test in alone)]
    rows = []
    for suite, test in keys:
        told = first.get((suite, test))
        rows.append(
            VersionsRow(
                told.capability if told else "on live traffic only",
                told.kind if told else "",
                suite,
                test,
                told.description if told else "",
                {column.version: _cell(column, suite, test, known) for column in columns},
            )
        )
    return sorted(rows, key=lambda row: (not row.suite, row.capability, row.suite, row.test))


def _cell(column: Column, suite: str, test: str, known: Known) -> VersionCell:
    outcome = known.outcomes.get(column.version, {}).get((suite, test))
    before = known.outcomes.get(column.against or "", {}).get((suite, test))
    paired = known.paired.get(column.version, {}).get((suite, test))
    return VersionCell(
        outcome,
        None if outcome is None or before is None else change_of(before, outcome, paired),
        known.live.get(column.version, {}).get(test),
    )
