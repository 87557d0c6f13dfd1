"""Lineage: edges between model versions, datasets, jobs and record sets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import Connection, func, or_, select
from sqlalchemy.dialects.sqlite import insert

from outrider.dataops.state.improvement_tables import (
    DatasetRow,
    DatasetVersion,
    GateVerdict,
    Job,
    LineageEdge,
    ModelVersion,
)
from outrider.dataops.state.tables import table_of
from outrider.errors import NotFound

Kind = Literal["model", "dataset", "job", "records"]
_EDGE = table_of(LineageEdge)
_MODEL = table_of(ModelVersion)
_DATASET = table_of(DatasetVersion)
_ROW = table_of(DatasetRow)
_JOB = table_of(Job)
_VERDICT = table_of(GateVerdict)


def node_id(name: str, version: str | int) -> str:
    """Node name of a model or dataset version, such as ``digits@2``."""
    return f"{name}@{version}"


def add_edges(
    connection: Connection,
    child_kind: Kind,
    child: str,
    parents: Sequence[tuple[Kind, str, str]],
    *,
    now_us: int,
) -> None:
    """Add new edges (kind, id, role) from parents to ``child``."""
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
        connection.execute(insert(_EDGE).on_conflict_do_nothing(), rows)


def report(
    connection: Connection,
    model: str,
    version: str,
    *,
    dataset: str | None,
    job: str | None,
    now_us: int,
) -> dict[str, str]:
    """Note dataset and job of a version made elsewhere.

    The dataset of the job stands in for one that is not named.

    Returns
    -------
    dict
        Job and dataset as far as they are known.

    Raises
    ------
    NotFound
        If there is no such dataset version or job of the model.
    """
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


def has_edge(connection: Connection, kind: Kind, node: str, *, role: str) -> bool:
    """Test for an edge of this role at a node's either end."""
    is_child = (_EDGE.c.child_kind == kind) & (_EDGE.c.child == node)
    is_parent = (_EDGE.c.parent_kind == kind) & (_EDGE.c.parent == node)
    query = select(_EDGE.c.role).where(_EDGE.c.role == role, is_child | is_parent)
    return connection.execute(query.limit(1)).first() is not None


def outcome_of(*, promoted: bool, passed: bool, status: str | None) -> str:
    """Outcome of a candidate's verdict, in a word.

    Parameters
    ----------
    promoted, passed
        The verdict.
    status
        Of the candidate now.
    """
    if promoted:
        return "promoted"
    if not passed:
        return "refused"
    return "waiting for a person" if status == "challenger" else "passed"


def trace(connection: Connection, model: str, version: str | None = None) -> dict[str, Any]:
    """Ancestors of a model version, as a tree of plain dictionaries.

    Every node has ``kind``, ``id``, ``role`` (in its child), facts of its own, and ``parents``. A node that
    stands higher up in the tree already is named again with ``seen: True`` and without its parents.
    ``version`` defaults to the champion.

    Raises
    ------
    NotFound
        If there is no such version.
    """
    query = select(_MODEL.c.version).where(_MODEL.c.model == model)
    query = query.where(_MODEL.c.status == "champion" if version is None else _MODEL.c.version == version)
    found = connection.scalar(query)
    if found is None:
        raise NotFound(f"model {model!r} has no {'champion' if version is None else f'version {version!r}'}")
    return _node(connection, "model", node_id(model, found), "", set())


def _node(
    connection: Connection, kind: str, name: str, role: str, seen: set[tuple[str, str]]
) -> dict[str, Any]:
    node: dict[str, Any] = {"kind": kind, "id": name, "role": role}
    if (kind, name) in seen:
        return node | {"seen": True, "parents": []}
    seen.add((kind, name))
    edges = connection.execute(
        select(_EDGE.c.parent_kind, _EDGE.c.parent, _EDGE.c.role)
        .where(_EDGE.c.child_kind == kind, _EDGE.c.child == name)
        .order_by(_EDGE.c.role, _EDGE.c.parent)
    ).all()
    facts = {"model": _model_facts, "dataset": _dataset_facts, "job": _job_facts}.get(kind)
    if facts is not None:
        node |= facts(connection, name)
    node["parents"] = [_node(connection, edge.parent_kind, edge.parent, edge.role, seen) for edge in edges]
    return node


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
        passed = bool(verdict.evidence.get("passed"))
        word = outcome_of(promoted=verdict.promoted, passed=passed, status=row.status)
        facts["gate"] = {"promoted": verdict.promoted, "outcome": word, "reasons": verdict.reasons}
    return facts


def _dataset_facts(connection: Connection, name: str) -> dict[str, Any]:
    dataset, _, number = name.rpartition("@")
    row = connection.execute(
        select(_DATASET).where(_DATASET.c.dataset == dataset, _DATASET.c.number == int(number))
    ).first()
    if row is None:
        return {}
    living = or_(_ROW.c.removed.is_(None), _ROW.c.removed > row.number)
    rows = _ROW.c.dataset == dataset, _ROW.c.number <= row.number, living
    parts = connection.execute(select(_ROW.c.part, func.count()).where(*rows).group_by(_ROW.c.part))
    sources = connection.execute(
        select(_ROW.c.label_source, func.count()).where(*rows).group_by(_ROW.c.label_source)
    )
    assertions: Counter[str] = Counter()
    for names, count in connection.execute(
        select(_ROW.c.assertion, func.count()).where(*rows).group_by(_ROW.c.assertion)
    ):
        assertions.update({name: count for name in (names or "").split(",") if name})
    return {
        "rows": row.rows,
        "digest": row.digest,
        "created_us": row.created_us,
        "parts": {row[0]: row[1] for row in parts},
        "assertions": dict(sorted(assertions.items())),
        "label_sources": {source or "": count for source, count in sources},
    }


def _job_facts(connection: Connection, name: str) -> dict[str, Any]:
    row = connection.execute(select(_JOB).where(_JOB.c.id == name)).first()
    if row is None:
        return {}
    return {"status": row.status, "params": row.params, "created_us": row.created_us}
