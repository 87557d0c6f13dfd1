"""Version that coming rows are judged against."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Engine, select

from outrider.assertions import Batch
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.improvement_tables import DatasetRow
from outrider.dataops.state.tables import table_of

from . import versions as datasets
from .validation import Earlier

_ROW = table_of(DatasetRow)
_AT_ONCE = 500


def earlier_of(
    engine: Engine, objects: ObjectStore, dataset: str, keys: Sequence[str], *, stays: bool
) -> Earlier | None:
    """Newest version of a dataset, its rows read on demand, or None.

    Parameters
    ----------
    keys
        Ids of the coming rows: they take the place of rows with the same id.
    stays
        Whether the version's rows stay beside the coming ones.
    """
    with engine.connect() as connection:
        version = datasets.newest(connection, dataset)
        if version is None:
            return None
        replaced: list[str] = []
        for some in _steps(keys) if stays else ():
            query = select(_ROW.c.record_id).where(_ROW.c.dataset == dataset, _ROW.c.record_id.in_(some))
            replaced += connection.scalars(query.distinct())

    def read() -> Batch:
        with engine.connect() as connection:
            return datasets.read(connection, objects, version)

    return Earlier(version.manifest["validation"].get("aggregates"), read, stays, replaced)


def _steps(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), _AT_ONCE):
        yield keys[start : start + _AT_ONCE]
