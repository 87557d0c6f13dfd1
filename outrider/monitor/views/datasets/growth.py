"""Dataset for its page: growth, provenance of its labels, quarantine, versions."""

from dataclasses import dataclass

from sqlalchemy import Engine, func, select

from outrider.dataops.datasets import quarantine
from outrider.dataops.datasets.quarantine import QuarantinedRow
from outrider.dataops.datasets.versions import Version
from outrider.dataops.state.improvement_tables import DatasetVersion, Quarantine
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound
from outrider.monitor.queries.improvement import DatasetView, dataset_view

VERSIONS, HELD_ROWS, REASONS, POINTS = 25, 20, 10, 200
_VERSION, _QUARANTINE = table_of(DatasetVersion), table_of(Quarantine)


@dataclass(frozen=True, slots=True)
class DatasetPageView:
    """Page of a dataset."""

    name: str
    newest: DatasetView
    growth: list[tuple[int, int, int]]
    """Number, rows and time of versions, evenly chosen where there are many."""
    count: int
    """Versions in all."""
    versions: list[DatasetView]
    """Some of them, newest first."""
    older: int | None
    """Number of the newest version that is not among them."""
    states: dict[str, int]
    """Quarantined rows by state."""
    reasons: list[tuple[str, int]]
    """Most frequent reasons of those that are held."""
    held: list[QuarantinedRow]
    """Newest of them."""


def read_dataset_page(engine: Engine, model: str, name: str, *, upto: int | None = None) -> DatasetPageView:
    """Read a model's dataset, with versions up to ``upto``.

    Raises
    ------
    NotFound
        If the model has no such dataset.
    """
    own = _VERSION.c.dataset == name, _VERSION.c.model == model
    facts = select(_VERSION.c.number, _VERSION.c.rows, _VERSION.c.created_us).where(*own)
    shown = select(_VERSION).where(*own).order_by(_VERSION.c.number.desc())
    if upto is not None:
        shown = shown.where(_VERSION.c.number <= upto)
    state, reasons, rows = _QUARANTINE.c.state, _QUARANTINE.c.reasons, func.count().label("rows")
    mine = _QUARANTINE.c.dataset == name
    with engine.connect() as connection:
        growth = [
            (row.number, row.rows, row.created_us) for row in connection.execute(facts.order_by("number"))
        ]
        if not growth:
            raise NotFound(f"model {model!r} has no dataset {name!r}")
        more = connection.execute(shown.limit(VERSIONS + 1)).all()
        newest = connection.execute(select(_VERSION).where(*own, _VERSION.c.number == growth[-1][0])).one()
        states = connection.execute(select(state, rows).where(mine).group_by(state))
        frequent = select(reasons, rows).where(mine, state == "held").group_by(reasons)
        held = connection.execute(frequent.order_by(rows.desc()).limit(REASONS))
        return DatasetPageView(
            name,
            dataset_view(Version(**newest._mapping)),
            _evenly(growth),
            len(growth),
            [dataset_view(Version(**row._mapping)) for row in more[:VERSIONS]],
            more[VERSIONS].number if len(more) > VERSIONS else None,
            {row.state: row.rows for row in states},
            [(row.reasons, row.rows) for row in held],
            quarantine.list_quarantine(connection, datasets=[name], limit=HELD_ROWS),
        )


def _evenly(growth: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """At most ``POINTS`` of them and the last one."""
    step = -(-len(growth) // POINTS)
    return [*growth[:-1:step], growth[-1]]
