"""Pending erasures: files in ``erasures/``, removed when done.

Not rows, because these name what is to be erased, and freed pages keep names.
"""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from outrider.dataops.state.erasure_tables import ErasedHash, Erasure
from outrider.dataops.state.rows import insert_rows, replace_rows
from outrider.dataops.state.tables import table_of
from outrider.dataops.whole_file import write_whole

from .compaction import room_in
from .hashes import HashKey
from .target import ErasureTarget, Found

FOLDER = "erasures"
_ID = re.compile(r"[0-9a-f]{16}")
_ERASURE = table_of(Erasure)


@dataclass(frozen=True, slots=True)
class PendingErasure:
    id: str
    wanted: ErasureTarget
    who: str
    asked_us: int
    problem: str = ""
    """Reason of the last failure."""
    models: tuple[str, ...] = ()
    """Models (``model@version``) trained on rows of its records."""


@dataclass(frozen=True, slots=True)
class DoneErasure:
    id: str
    asked_us: int
    who: str
    found: Mapping[str, Any]
    done_us: int


def ask(folder: Path, wanted: ErasureTarget, *, who: str, now_us: int) -> str:
    """Note an erasure durably; returns its id. OutriderError on a full disk."""
    one = PendingErasure(secrets.token_hex(8), wanted, who, now_us)
    with room_in(folder):
        (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
        _write(folder, one)
    return one.id


def pending(folder: Path) -> list[PendingErasure]:
    found = []
    for path in (folder / FOLDER).glob("*.json"):
        if _ID.fullmatch(path.stem):
            told = json.loads(path.read_text(encoding="utf-8"))
            wanted = ErasureTarget.from_dict(told["wanted"])
            about = told["who"], int(told["asked_us"]), told["problem"], tuple(told["models"])
            found.append(PendingErasure(path.stem, wanted, *about))
    return sorted(found, key=lambda one: (one.asked_us, one.id))


def is_pending(folder: Path) -> bool:
    return any(_ID.fullmatch(path.stem) for path in (folder / FOLDER).glob("*.json"))


def keep_found(folder: Path, one: PendingErasure, found: Found, models: Iterable[str]) -> PendingErasure:
    """Note the ids and models found, which could not be found again."""
    ids = {model: sorted(own) for model, own in found.ids.items()}
    known = tuple(sorted({*one.models, *models}))
    kept = replace(one, wanted=replace(one.wanted, ids=ids), models=known)
    _write(folder, kept)
    return kept


def note_problem(folder: Path, problem: str) -> None:
    for one in pending(folder):
        _write(folder, replace(one, problem=problem))


def forget(folder: Path, one: PendingErasure) -> None:
    (folder / FOLDER / f"{one.id}.json").unlink(missing_ok=True)


def note_done(connection: Connection, one: PendingErasure, found: Mapping[str, Any], *, now_us: int) -> None:
    """Note an erasure as done, keeping larger numbers of an earlier try."""
    query = select(_ERASURE.c.found).where(_ERASURE.c.id == one.id)
    before = (connection.execute(query).scalar() or {}).get("counts", {})
    counts = dict(found["counts"])
    for name, count in before.items():
        counts[name] = max(count, counts.get(name, 0))
    told = json.dumps({**found, "counts": dict(sorted(counts.items()))})
    replace_rows(connection, Erasure, [(one.id, one.asked_us, one.who, told, now_us)])


def note_backups(connection: Connection, one: PendingErasure, backups: Sequence[str]) -> None:
    found = connection.execute(select(_ERASURE.c.found).where(_ERASURE.c.id == one.id)).scalar() or {}
    told = {**found, "backups": list(backups)}
    connection.execute(_ERASURE.update().where(_ERASURE.c.id == one.id).values(found=told))


def done(connection: Connection) -> list[DoneErasure]:
    rows = connection.execute(select(_ERASURE).order_by(_ERASURE.c.done_us.desc(), _ERASURE.c.id))
    return [DoneErasure(row.id, row.asked_us, row.who, row.found, row.done_us) for row in rows]


def note_hashes(
    connection: Connection, one: PendingErasure, found: Found, key: HashKey, *, now_us: int
) -> None:
    """Keep hashes of erased records and subjects, by which labels and repeats are refused and backups
    erased."""
    wanted = one.wanted
    rows = [(key.record(m, id_), "record", one.id, now_us) for m, ids in found.ids.items() for id_ in ids]
    rows += [(key.subject(wanted.model, name), "subject", one.id, now_us) for name in wanted.subjects]
    insert_rows(connection, ErasedHash, rows)


def _write(folder: Path, one: PendingErasure) -> None:
    body = {
        "wanted": one.wanted.to_dict(),
        "who": one.who,
        "asked_us": one.asked_us,
        "problem": one.problem,
        "models": one.models,
    }
    write_whole(folder / FOLDER / f"{one.id}.json", json.dumps(body))
