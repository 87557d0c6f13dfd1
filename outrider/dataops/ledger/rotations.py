"""Rotations of a model's entity sample, and state stored with the cursor, so that windows restart at the
same block live, after a restart and in a replay."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from outrider.dataops.state.tables import AdmissionRow, RotationRow, table_of

_ROTATION, _ADMISSION = table_of(RotationRow), table_of(AdmissionRow)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Change of sampled entities after block ``seq``, from receipt ``at_us``."""

    seq: int
    at_us: int


def rotations(connection: Connection, model: str) -> list[Rotation]:
    query = select(_ROTATION.c.seq, _ROTATION.c.at_us).where(_ROTATION.c.model == model)
    return [Rotation(row.seq, row.at_us) for row in connection.execute(query.order_by(_ROTATION.c.seq))]


def standing(connection: Connection, model: str) -> tuple[float, int, int] | None:
    """Unsampled weight; begin and end of the last sampled period, or None."""
    query = select(_ADMISSION.c.carried, _ADMISSION.c.since_us, _ADMISSION.c.until_us)
    row = connection.execute(query.where(_ADMISSION.c.model == model)).first()
    return None if row is None else (row.carried, row.since_us, row.until_us)


def rotation_before(known: Sequence[Rotation], seq: int) -> Rotation | None:
    """The last one that lies before block ``seq``; None where none does.

    Examples
    --------
    >>> known = [Rotation(3, 10), Rotation(7, 20)]
    >>> [rotation_before(known, seq) for seq in (3, 4)]
    [None, Rotation(seq=3, at_us=10)]
    """
    return next((one for one in reversed(known) if one.seq < seq), None)


def until_rotation(known: Sequence[Rotation], at: int, until: int) -> int:
    """End of a read from cursor ``at``: ``until``, or next rotation.

    Examples
    --------
    >>> known = [Rotation(3, 10), Rotation(7, 20)]
    >>> [until_rotation(known, at, 9) for at in (2, 3, 7)]
    [3, 7, 9]
    """
    return min([until, *(one.seq for one in known if one.seq > at)])
