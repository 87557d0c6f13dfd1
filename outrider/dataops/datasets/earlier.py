"""Version that coming rows are judged against."""

from collections.abc import Sequence

from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.dataops.payloads.objects import ObjectStore

from . import versions as datasets
from .validation import Earlier


def earlier_of(
    engine: Engine,
    objects: ObjectStore,
    dataset: str,
    keys: Sequence[str],
    *,
    stays: bool,
    full: bool = False,
) -> Earlier | None:
    """Newest version of a dataset, its rows read on demand, or None.

    Parameters
    ----------
    keys
        Ids of the coming rows, which take the place of rows with the same id, and of rows that go.
    stays
        Whether the version's rows stay beside the coming ones.
    full
        Whether they are judged again.
    """
    with engine.connect() as connection:
        version = datasets.newest(connection, dataset)
        if version is None:
            return None
        replaced = list(datasets.lives_of(connection, dataset, keys)) if stays else []

    def read() -> Batch:
        with engine.connect() as connection:
            return datasets.read(connection, objects, version)

    validation = version.manifest["validation"]
    return Earlier(validation.get("aggregates"), read, stays, replaced, full, validation.get("nulls", ()))
