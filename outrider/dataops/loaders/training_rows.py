"""Training rows of a champion, as the reference of its profiles."""

from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.dataops.datasets.references import open_version
from outrider.dataops.datasets.scan import Scan, scan
from outrider.dataops.models import registry
from outrider.dataops.models.lineage import learned_from
from outrider.dataops.payloads.objects import CorruptObject, ObjectStore
from outrider.errors import Erased, NotFound

REFERENCE_ROWS = 65_536
"""Most rows of a dataset version that bins are fitted on: its first."""


def training_rows(
    engine: Engine, objects: ObjectStore, model: str, *, least: int
) -> tuple[str, Batch] | None:
    """None if unknown, or fewer than ``least``."""
    with engine.connect() as connection:
        champion = registry.champion(connection, model)
        if champion is None:
            return None
        known = learned_from(connection, model, [champion.version])[champion.version]
        for name in sorted({name for name, _ in known.datasets}, key=_number, reverse=True):
            try:
                version = open_version(connection, name)
                rows = scan(connection, objects, version, part="train", batch_rows=REFERENCE_ROWS)
                first = _first(rows, model)
            except (NotFound, Erased, CorruptObject, OSError):
                continue  # traffic stands in
            if first is not None and first.rows >= least:
                return f"dataset {name}", first
    return None


def _first(rows: Scan, model: str) -> Batch | None:
    found: list[Batch] = []
    for piece in rows:
        left = REFERENCE_ROWS - sum(batch.rows for batch in found)
        found.append(Batch.from_arrow(piece.slice(0, left), model=model))
        if piece.num_rows >= left:
            break
    return Batch.concat(found) if found else None


def _number(name: str) -> tuple[int, str]:
    number = name.rpartition("@")[2]
    return int(number) if number.isdecimal() else 0, name
