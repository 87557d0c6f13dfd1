"""Lineage: edges between model versions, datasets, jobs and record sets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, select, tuple_
from sqlalchemy.dialects.sqlite import insert

from outrider.dataops.state.improvement_tables import (
    DatasetVersion,
    ErasedVersion,
    GateVerdict,
    Job,
    LineageEdge,
    ModelVersion,
)
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound

Kind = Literal["model", "dataset", "job", "records"]
LEVELS, NODES = 50, 400
"""Most generations and nodes of a tree of ancestors."""
_EDGE = table_of(LineageEdge)
_MODEL = table_of(ModelVersion)
_DATASET = table_of(DatasetVersion)
_JOB = table_of(Job)
_ERASED = table_of(ErasedVersion)
_VERDICT = table_of(GateVerdict)
_ADD_EDGE = insert(_EDGE).on_conflict_do_nothing()


def node_id(name: str, version: str | int) -> str:
    """Such as ``digits@2``."""
    return f"{name}@{version}"


def add_edges(
    connection: Connection,
    child_kind: Kind,
    child: str,
    parents: Sequence[tuple[Kind, str, str]],
    *,
    now_us: int,
) -> None:
    """Edges (kind, id, role) from parents to ``child``."""
    rows = [
        {
            "child_kind": child_kind,
            "child": child,
            "parent_kind": kind,
            "parent": parent,
            "role": role,
            "created_us": now_us,
        }
        for kind, parent, role in parents
    ]
    if rows:
        connection.execute(_ADD_EDGE, rows)


def report(
    connection: Connection,
    model: str,
    version: str,
    *,
    dataset: str | None,
    job: str | None,
    now_us: int,
) -> dict[str, str]:
    """Note dataset and job of a version made elsewhere, and return both."""
    parents: list[tuple[Kind, str, str]] = []
    if job is not None:
        row = connection.execute(select(_JOB).where(_JOB.c.id == job, _JOB.c.model == model)).first()
        if row is None:
            raise NotFound(f"job: model {model!r} has no job {job!r}")
        parents.append(("job", job, "trained by"))
        dataset = dataset or _dataset_of_job(row.result)
    if dataset is not None:
        name, _, number = dataset.rpartition("@")
        held = _DATASET.c.dataset == name, _DATASET.c.number == (int(number) if number.isdecimal() else -1)
        if (
            connection.execute(select(_DATASET.c.number).where(*held, _DATASET.c.model == model)).first()
            is None
        ):
            raise NotFound(f"dataset: model {model!r} has no dataset version {dataset!r} (name@number)")
        parents.append(("dataset", dataset, "fresh"))
    add_edges(connection, "model", node_id(model, version), parents, now_us=now_us)
    return {key: value for key, value in (("job", job), ("dataset", dataset)) if value is not None}


def _dataset_of_job(result: Mapping[str, Any]) -> str | None:
    if "number" in result:
        return node_id(result["dataset"], result["number"])
    return result.get("dataset")


def models_made_from(connection: Connection, datasets: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Versions made from datasets in a role, and their descendants."""
    made = select(_EDGE.c.child, _EDGE.c.parent, _EDGE.c.role).where(
        _EDGE.c.child_kind == "model", _EDGE.c.parent_kind == "dataset"
    )
    first = {child for child, parent, role in connection.execute(made) if (parent, role) in datasets}
    edges = select(_EDGE.c.parent, _EDGE.c.child).where(
        _EDGE.c.child_kind == "model", _EDGE.c.parent_kind == "model"
    )
    children: dict[str, list[str]] = {}
    for parent, child in connection.execute(edges):
        children.setdefault(parent, []).append(child)
    found, waiting = set(first), list(first)
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    named = (name.rpartition("@") for name in found)
    return sorted((model, version) for model, _, version in named)


VerdictOutcome: TypeAlias = Literal["promoted", "refused", "undecided", "waiting for a person", "passed"]
"""``passed`` where somebody has decided since."""


@dataclass(frozen=True, slots=True)
class LearnedFrom:
    """Training rows of a version and of its ancestors."""

    datasets: frozenset[tuple[str, str | None]] = frozenset()
    """Dataset versions, with the part that was learned from; None for all of it."""
    untold_us: int = 0
    """Registration of the newest of these versions without a dataset; 0 if none."""


def learned_from(connection: Connection, model: str, versions: Sequence[str]) -> dict[str, LearnedFrom]:
    """A version without a dataset may have learned from anything existing then."""
    edges = select(_EDGE.c.child, _EDGE.c.parent_kind, _EDGE.c.parent, _EDGE.c.role)
    edges = edges.where(_EDGE.c.child_kind == "model", _EDGE.c.role != "replaced")
    parents: dict[str, list[tuple[str, str, str]]] = {}
    for child, kind, parent, role in connection.execute(edges):
        parents.setdefault(child, []).append((kind, parent, role))
    made = select(_MODEL.c.model, _MODEL.c.version, _MODEL.c.created_us)
    registered = {node_id(row.model, row.version): row.created_us for row in connection.execute(made)}
    return {version: _learned(node_id(model, version), parents, registered) for version in versions}


def _learned(
    version: str, parents: Mapping[str, Sequence[tuple[str, str, str]]], registered: Mapping[str, int]
) -> LearnedFrom:
    waiting, seen = [version], set[str]()
    datasets, untold = set[tuple[str, str | None]](), 0
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        own = parents.get(name, ())
        sets = [(parent, role) for kind, parent, role in own if kind == "dataset"]
        datasets |= {(parent, "train" if role == "fresh" else None) for parent, role in sets}
        waiting += [parent for kind, parent, _ in own if kind == "model"]
        if not sets:
            untold = max(untold, registered.get(name, 0))
    return LearnedFrom(frozenset(datasets), untold)


def outcome_of(evidence: Mapping[str, Any], *, promoted: bool, status: str | None) -> VerdictOutcome:
    if promoted:
        return "promoted"
    if evidence["undecided"]:
        return "undecided"
    if not evidence["passed"]:
        return "refused"
    return "waiting for a person" if status == "challenger" else "passed"


def trace(
    connection: Connection, model: str, version: str | None = None, *, start: str | None = None
) -> dict[str, Any]:
    """Ancestors of a version (the champion), as a tree of dictionaries.

    Nodes have ``kind``, ``id``, ``role`` in their child, facts and ``parents``. A repeated node has ``seen:
    True``; one whose parents exceed ``LEVELS`` or ``NODES`` has ``cut: True``, and the root counts hidden
    ancestors in ``more``. ``start`` is another node, such as ``dataset:digits-flagged@7``, or a digest.
    """
    kind, name = _root(connection, model, version) if start is None else _named(connection, start)
    root: dict[str, Any] = {"kind": kind, "id": name, "role": ""}
    seen = {(kind, name)}
    level, cut = [root], []
    for depth in range(LEVELS):
        below: list[dict[str, Any]] = []
        for node in level:
            _complete(connection, node)
            parents = _parents(connection, node)
            if parents and (depth == LEVELS - 1 or (depth and len(seen) + len(parents) > NODES)):
                cut.append(node)
                continue
            node["parents"] = parents
            for parent in parents:
                key = parent["kind"], parent["id"]
                if key in seen:
                    parent |= {"seen": True, "parents": []}
                else:
                    seen.add(key)
                    below.append(parent)
        level = below
    for node in cut:
        node |= {"cut": True, "parents": []}
    if cut:
        root["more"] = _count_beyond(connection, [(node["kind"], node["id"]) for node in cut], seen)
    return root


def _root(connection: Connection, model: str, version: str | None) -> tuple[str, str]:
    query = select(_MODEL.c.version).where(_MODEL.c.model == model)
    query = query.where(_MODEL.c.status == "champion" if version is None else _MODEL.c.version == version)
    found = connection.scalar(query)
    if found is None:
        raise NotFound(f"model {model!r} has no {'champion' if version is None else f'version {version!r}'}")
    return "model", node_id(model, found)


def _named(connection: Connection, start: str) -> tuple[str, str]:
    kind, _, name = start.partition(":")
    if kind == "dataset" and "@" not in name:
        name = _of_digest(connection, name) or name
    is_child = (_EDGE.c.child_kind == kind) & (_EDGE.c.child == name)
    is_parent = (_EDGE.c.parent_kind == kind) & (_EDGE.c.parent == name)
    found = any(
        connection.execute(select(_EDGE.c.role).where(end).limit(1)).first() for end in (is_child, is_parent)
    )
    if not found:
        raise NotFound(
            f"start: no lineage of {start!r}; kind:id of a node expected, such as dataset:digits-flagged@7"
        )
    return kind, name


def _of_digest(connection: Connection, digest: str) -> str | None:
    """Newest dataset version that has a digest, or had it until rows were erased."""
    for table in (_DATASET, _ERASED):
        query = select(table.c.dataset, table.c.number).where(table.c.digest == digest)
        if row := connection.execute(query.order_by(table.c.number.desc()).limit(1)).first():
            return node_id(row.dataset, row.number)
    return None


def _complete(connection: Connection, node: dict[str, Any]) -> None:
    facts = {"model": _model_facts, "dataset": _dataset_facts, "job": _job_facts}.get(node["kind"])
    if facts is not None:
        node |= facts(connection, node["id"])


def _parents(connection: Connection, node: Mapping[str, Any]) -> list[dict[str, Any]]:
    edges = connection.execute(
        select(_EDGE.c.parent_kind, _EDGE.c.parent, _EDGE.c.role)
        .where(_EDGE.c.child_kind == node["kind"], _EDGE.c.child == node["id"])
        .order_by(_EDGE.c.role, _EDGE.c.parent)
    )
    return [{"kind": edge.parent_kind, "id": edge.parent, "role": edge.role} for edge in edges]


def _count_beyond(
    connection: Connection, nodes: Sequence[tuple[str, str]], seen: Collection[tuple[str, str]]
) -> int:
    """Ancestors of nodes that are not seen yet."""
    first = select(_EDGE.c.parent_kind, _EDGE.c.parent).where(
        tuple_(_EDGE.c.child_kind, _EDGE.c.child).in_(nodes)
    )
    above = first.cte("above", recursive=True)
    above = above.union(
        select(_EDGE.c.parent_kind, _EDGE.c.parent).where(
            _EDGE.c.child_kind == above.c.parent_kind, _EDGE.c.child == above.c.parent
        )
    )
    return sum((kind, name) not in seen for kind, name in connection.execute(select(above)))


def _model_facts(connection: Connection, name: str) -> dict[str, Any]:
    model, _, version = name.rpartition("@")
    row = connection.execute(
        select(_MODEL).where(_MODEL.c.model == model, _MODEL.c.version == version)
    ).first()
    if row is None:
        return {}
    verdict = connection.execute(
        select(_VERDICT.c.promoted, _VERDICT.c.reasons, _VERDICT.c.evidence)
        .where(_VERDICT.c.model == model, _VERDICT.c.candidate == version)
        .order_by(_VERDICT.c.created_us.desc())
    ).first()
    facts = {"status": row.status, "digest": row.digest, "created_us": row.created_us, "note": row.note}
    if verdict is not None:
        word = outcome_of(verdict.evidence, promoted=verdict.promoted, status=row.status)
        facts["gate"] = {"promoted": verdict.promoted, "outcome": word, "reasons": verdict.reasons}
    return facts


def _dataset_facts(connection: Connection, name: str) -> dict[str, Any]:
    dataset, _, number = name.rpartition("@")
    row = connection.execute(
        select(_DATASET).where(_DATASET.c.dataset == dataset, _DATASET.c.number == int(number))
    ).first()
    if row is None:
        return {}
    counts: dict[str, Any] = row.manifest["counts"]
    facts = {"rows": row.rows, "digest": row.digest, "created_us": row.created_us} | counts
    if row.manifest.get("erased"):
        facts["erased"] = _erased_facts(connection, dataset, int(number), row.digest)
    return facts


def _erased_facts(connection: Connection, dataset: str, number: int, digest: str) -> dict[str, Any]:
    """Erased rows of a version, its digest now and before."""
    query = select(_ERASED).where(_ERASED.c.dataset == dataset, _ERASED.c.number == number)
    gone = connection.execute(query.order_by(_ERASED.c.at_us)).all()
    return {
        "rows": sum(row.rows for row in gone),
        "digest": digest,
        "digests_before": [row.digest for row in gone],
        "at_us": gone[-1].at_us if gone else None,
    }


def _job_facts(connection: Connection, name: str) -> dict[str, Any]:
    row = connection.execute(select(_JOB).where(_JOB.c.id == name)).first()
    if row is None:
        return {}
    return {"status": row.status, "params": row.params, "created_us": row.created_us}
