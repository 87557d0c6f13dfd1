"""Registry of model versions, and changes of the champion."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from outrider.dataops.outbox import WebhookTarget, enqueue
from outrider.dataops.payloads.folders import WrongFolder, files_of
from outrider.dataops.payloads.objects import CorruptObject, ObjectStore
from outrider.dataops.state.improvement_tables import ModelVersion
from outrider.dataops.state.tables import table_of
from outrider.errors import GateRefused, NotFound

from .champion_history import Action, former_champions, note_change
from .lineage import Kind, add_edges, node_id

_MODEL = table_of(ModelVersion)
FORMER = "former"
"""Status of a replaced champion that still answers while the new one is watched."""
IN_SERVICE = ("champion", "challenger", FORMER)
NAMED = "named in the configuration"
"""Note of versions that the configuration names; those of others say what made them."""


class NotPromotable(GateRefused):
    """Version's status forbids promotion, or nothing to roll back to."""


@dataclass(frozen=True, slots=True)
class Model:
    """Version of a model."""

    model: str
    version: str
    status: str
    weights: str | None
    digest: str
    replaced: str | None
    created_us: int
    changed_us: int
    note: str
    source: str
    """`outrider.dataops.model_kinds.source.Source` as JSON."""

    @property
    def id(self) -> str:
        return node_id(self.model, self.version)

    @property
    def kept(self) -> dict[str, str]:
        """Digest of each stored folder, by use."""
        return dict(json.loads(self.source).get("kept", {}))


def register(
    connection: Connection,
    *,
    model: str,
    version: str,
    status: str,
    digest: str,
    weights: str | None,
    now_us: int,
    source: str,
    note: str = "",
    made_from: Sequence[tuple[Kind, str, str]] = (),
) -> Model:
    """An existing version stays unchanged."""
    row = _find(connection, model, version)
    if row is None:
        connection.execute(
            insert(_MODEL).values(
                model=model,
                version=version,
                status=status,
                weights=weights,
                digest=digest,
                created_us=now_us,
                changed_us=now_us,
                note=note,
                source=source,
            )
        )
        add_edges(connection, "model", node_id(model, version), made_from, now_us=now_us)
    return get(connection, model, version)


def register_initial(
    connection: Connection,
    objects: ObjectStore,
    *,
    model: str,
    version: str,
    content: bytes,
    is_weights: bool,
    now_us: int,
    source: str,
    digest: str | None = None,
) -> Model:
    """Register the configured model as champion, unless versions exist.

    ``content`` is loaded if ``is_weights``, else it describes the version; ``digest`` covers more than
    ``content``.
    """
    known = champion(connection, model)
    if known is not None:
        return known
    kept = objects.put(content)
    made = register(
        connection,
        model=model,
        version=version,
        status="champion",
        digest=digest or kept,
        weights=kept if is_weights else None,
        now_us=now_us,
        note=NAMED,
        source=source,
    )
    note_change(
        connection,
        model=model,
        version=version,
        replaced=None,
        action="registered",
        by="configuration",
        reason=NAMED,
        verdict=None,
        now_us=now_us,
    )
    return made


def get(connection: Connection, model: str, version: str) -> Model:
    row = _find(connection, model, version)
    if row is None:
        raise NotFound(f"model {model!r} has no version {version!r}")
    return row


def champion(connection: Connection, model: str) -> Model | None:
    row = connection.execute(
        select(_MODEL).where(_MODEL.c.model == model, _MODEL.c.status == "champion")
    ).first()
    return None if row is None else Model(**row._mapping)


def all_versions(connection: Connection, model: str | None = None) -> list[Model]:
    query = select(_MODEL).order_by(_MODEL.c.model, _MODEL.c.created_us, _MODEL.c.version)
    if model is not None:
        query = query.where(_MODEL.c.model == model)
    return [Model(**row._mapping) for row in connection.execute(query)]


def versions_in_service(connection: Connection) -> list[Model]:
    query = select(_MODEL).where(_MODEL.c.status.in_(IN_SERVICE))
    return [Model(**row._mapping) for row in connection.execute(query)]


def names_of_versions(connection: Connection) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for row in connection.execute(select(_MODEL.c.model, _MODEL.c.version)):
        found.setdefault(row.model, set()).add(row.version)
    return {model: frozenset(versions) for model, versions in found.items()}


def next_version(connection: Connection, model: str) -> str:
    """The next whole number after every version that is one."""
    taken = connection.scalars(select(_MODEL.c.version).where(_MODEL.c.model == model))
    numbers = [int(version) for version in taken if version.isdecimal()]
    return str(max(numbers, default=0) + 1)


def weights_bytes(connection: Connection, objects: ObjectStore, model: str, version: str) -> bytes:
    """``NotFound`` for functions, folders and endpoints."""
    found = get(connection, model, version)
    if found.weights is None:
        raise NotFound(f"{found.id} has no weights of its own: it is a function, a folder or an endpoint")
    return objects.get(found.weights)


def lost_objects(objects: ObjectStore, found: Model) -> list[str]:
    named = {*filter(None, [found.weights]), *found.kept.values()}
    for manifest in found.kept.values():
        with suppress(NotFound):
            named.update(files_of(objects, manifest).values())
    return sorted(digest for digest in named if not objects.has(digest))


def objects_of_versions(connection: Connection, objects: ObjectStore) -> set[str]:
    """Digests of all objects that versions are loaded from."""
    named = set(connection.scalars(select(_MODEL.c.weights).where(_MODEL.c.weights.is_not(None))))
    with_folders = _MODEL.c.source.contains('"kept": {')
    for row in connection.execute(select(_MODEL).where(with_folders)):
        for manifest in Model(**row._mapping).kept.values():
            named.add(manifest)
            with suppress(NotFound, WrongFolder, CorruptObject):
                named.update(files_of(objects, manifest).values())
    return named


def set_status(
    connection: Connection, model: str, version: str, status: str, *, now_us: int, note: str = ""
) -> None:
    """Never changes the champion."""
    connection.execute(
        update(_MODEL)
        .where(_MODEL.c.model == model, _MODEL.c.version == version, _MODEL.c.status != "champion")
        .values(status=status, changed_us=now_us, note=note)
    )


def set_source(connection: Connection, model: str, version: str, source: str) -> None:
    """Weights stay."""
    connection.execute(
        update(_MODEL).where(_MODEL.c.model == model, _MODEL.c.version == version).values(source=source)
    )


def promote(
    connection: Connection,
    model: str,
    version: str,
    *,
    now_us: int,
    reason: str,
    by: str,
    verdict: str | None = None,
    is_override: bool = False,
    targets: Sequence[WebhookTarget] = (),
) -> Model:
    """Make a version champion and retire the old one. ``is_override``: past the gate."""
    found = get(connection, model, version)
    if found.status == "champion":
        return found
    if found.status == "failed":
        raise NotPromotable(f"{found.id} failed to be trained and cannot become champion: {found.note}")
    old = champion(connection, model)
    action: Action = "overridden" if is_override else "promoted"
    _crown(connection, found, old, action, by=by, reason=reason, verdict=verdict, now_us=now_us)
    connection.execute(
        update(_MODEL)
        .where(_MODEL.c.model == model, _MODEL.c.version == version)
        .values(replaced=None if old is None else old.version)
    )
    if old is not None:
        add_edges(connection, "model", found.id, [("model", old.id, "replaced")], now_us=now_us)
    _announce(connection, "model.promoted", found, old, by=by, reason=reason, targets=targets, now_us=now_us)
    return get(connection, model, version)


def rollback(
    connection: Connection,
    model: str,
    *,
    now_us: int,
    reason: str,
    by: str,
    to: str | None = None,
    targets: Sequence[WebhookTarget] = (),
) -> Model:
    """Make a former champion champion again, by default the replaced one."""
    current = champion(connection, model)
    if current is None:
        raise NotFound(f"model {model!r} has no champion")
    former = [version for version in former_champions(connection, model) if version != current.version]
    named = f"former champions: {', '.join(former[:10])}" if former else "no version was champion before"
    if to is None and current.replaced is None:
        raise NotPromotable(f"{current.id} replaced no version: there is nothing to roll back to; {named}")
    back = get(connection, model, to if to is not None else str(current.replaced))
    if to is not None and to not in former:
        why = "is champion already" if back.version == current.version else "never was champion"
        raise NotPromotable(f"to: {back.id} {why}; {named}")
    _crown(connection, back, current, "rolled_back", by=by, reason=reason, verdict=None, now_us=now_us)
    _announce(
        connection, "model.rolled_back", back, current, by=by, reason=reason, targets=targets, now_us=now_us
    )
    return get(connection, model, back.version)


def _crown(
    connection: Connection,
    new: Model,
    old: Model | None,
    action: Action,
    *,
    by: str,
    reason: str,
    verdict: str | None,
    now_us: int,
) -> None:
    mine = _MODEL.c.model == new.model
    if old is not None:
        connection.execute(
            update(_MODEL)
            .where(mine, _MODEL.c.version == old.version)
            .values(status="retired", changed_us=now_us, note=f"version {new.version} took over")
        )
    connection.execute(
        update(_MODEL)
        .where(mine, _MODEL.c.version == new.version)
        .values(status="champion", changed_us=now_us, note=reason)
    )
    note_change(
        connection,
        model=new.model,
        version=new.version,
        replaced=None if old is None else old.version,
        action=action,
        by=by,
        reason=reason,
        verdict=verdict,
        now_us=now_us,
    )


def _announce(
    connection: Connection,
    event: str,
    new: Model,
    old: Model | None,
    *,
    by: str,
    reason: str,
    targets: Sequence[WebhookTarget],
    now_us: int,
) -> None:
    data = {"model": new.model, "version": new.version, "replaced": old.version if old else None}
    data |= {"reason": reason, "by": by, "digest": new.digest}
    enqueue(connection, event, data, targets=targets, now_us=now_us)


def _find(connection: Connection, model: str, version: str) -> Model | None:
    row = connection.execute(
        select(_MODEL).where(_MODEL.c.model == model, _MODEL.c.version == version)
    ).first()
    return None if row is None else Model(**row._mapping)
