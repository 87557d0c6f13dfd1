"""Registration of a checked upload: objects, version, lineage, and the gate."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Connection

from outrider.dataops.datasets.references import open_version
from outrider.dataops.improvement import jobs
from outrider.dataops.model_kinds.content import FOLDER, opened_source, pin, whole_digest
from outrider.dataops.model_kinds.source import KeptRole, Source
from outrider.dataops.models import registry as models
from outrider.dataops.models.lineage import Kind
from outrider.dataops.payloads.folders import keep_manifest
from outrider.dataops.payloads.objects import LocalObjects

from . import store
from .announced import Announced, WrongUpload
from .checks import ChampionFiles, CheckedUpload
from .store import UploadRow


@dataclass(frozen=True, slots=True)
class KeptUpload:
    source: Source
    weights: str | None
    digest: str


def keep(
    objects: LocalObjects,
    announced: Announced,
    parts: Mapping[str, Path],
    checked: CheckedUpload,
    champion: ChampionFiles,
    cache: Path,
) -> KeptUpload:
    source, digests = checked.source, {file.name: file.sha256 for file in announced.files}
    for file in announced.files:
        objects.take(parts[file.name], file.sha256)
    weights = digests[checked.weights] if checked.weights is not None else None
    if announced.kind == "adapter":
        weights = champion.row.weights
    if checked.files:
        role: KeptRole = "adapter" if announced.kind == "adapter" else "folder"
        manifest = keep_manifest(objects, {name: digests[name] for name in checked.files})
        source = replace(source, kept={**source.kept, role: manifest})
    if announced.kind == "hf":  # so that versions over one base find that it is the same
        opened = opened_source(source, objects, cache)
        options = {name: value for name, value in source.options.items() if name != FOLDER}
        pinned = pin(replace(opened, options=options), cache)
        source = replace(source, options=pinned.options)
    if announced.kind == "endpoint":
        digest = objects.put(source.to_json().encode())
    else:
        digest = whole_digest(source, weights)
    return KeptUpload(source, weights, digest)


def _check_whole(connection: Connection, sent: Mapping[str, str]) -> None:
    """Refuse a version that learned from rows erased meanwhile."""
    for name, digest in sent.items():
        if (found := open_version(connection, name)).digest != digest:
            raise WrongUpload(
                f"rows were erased from {found.id} since it was fetched: fetch it again and train anew",
                expected=found.digest,
                got=digest,
            )


def register(
    connection: Connection, upload: UploadRow, kept: KeptUpload, *, champion: str | None, now_us: int
) -> tuple[str, str]:
    """Version, and the waiting or new job that continues to the gate."""
    announced = upload.announced
    base = None if champion is None else f"{upload.model}@{champion}"
    parents: list[tuple[Kind, str, str]] = []
    dataset, waiting = announced.dataset, None
    if upload.job is not None:
        job = jobs.get(connection, upload.job)
        parents.append(("job", job.id, "trained by"))
        waiting = job if job.status == jobs.WAITING else None
        dataset = dataset or (None if job.result.get("dataset") is None else str(job.result["dataset"]))
        _check_whole(connection, job.result.get("sent", {}))
        if (replayed := job.result.get("replayed")) is not None:
            parents.append(("dataset", str(replayed), "replay"))
    if upload.token and waiting is None:
        raise WrongUpload(f"{upload.job} does not wait for a version any more")
    if dataset is not None:
        parents.append(("dataset", dataset, "fresh"))
    if base is not None:
        parents.append(("model", base, "weights"))
    made = models.register(
        connection,
        model=upload.model,
        version=models.next_version(connection, upload.model),
        status="challenger",
        digest=kept.digest,
        weights=kept.weights,
        now_us=now_us,
        note=announced.note or f"uploaded as {announced.kind} by {upload.begun_by}",
        source=kept.source.to_json(),
        made_from=parents,
    )
    store.finish(connection, upload.id, made.version)
    if waiting is not None:
        found = {name: value for name, value in waiting.result.items() if name != "waits"}
        jobs.go_on(connection, waiting.id, {**found, "candidate": made.version, "champion": champion})
        return made.version, waiting.id
    params = {"candidate": made.version, "dataset": dataset}
    return made.version, jobs.add(
        connection, model=upload.model, kind="retrain", params=params, now_us=now_us
    )
