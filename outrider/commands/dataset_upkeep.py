"""``outrider dataset gc`` and ``compact``: clean up stored dataset files."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.errors import ConfigError

from .output import Config, Json, table, tell

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

    from outrider.dataops.payloads.objects import LocalObjects

KINDS = {"kind": "kind", "files": "files", "bytes": "bytes"}


def gc(
    older_than: Annotated[
        float, typer.Option(min=1.0, help="Objects not written or used for this many hours are deleted.")
    ] = 24.0,
    caches_older_than: Annotated[
        float, typer.Option(min=0.0, help="Cached versions not opened for this many hours are deleted.")
    ] = 168.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count alone, delete nothing.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Delete dataset files that no version references.

    Also works while the service runs.
    """
    from outrider.dataops.loaders.arrow_cache import FOLDER, unused
    from outrider.dataops.models.registry import versions_in_service
    from outrider.dataops.payloads import folders
    from outrider.dataops.upkeep.garbage import collect_garbage

    with _stores(config) as (engine, objects, folder):
        with engine.connect() as connection:
            kept = {one for found in versions_in_service(connection) for one in found.kept.values()}
        age_s = caches_older_than * 3600
        opened = folders.unopened(folder / folders.FOLDER, older_than_s=age_s, in_service=kept)
        found = collect_garbage(
            engine,
            objects,
            caches=[*unused(folder / FOLDER, older_than_s=age_s), *opened],
            older_than_s=older_than * 3600,
            is_dry=dry_run,
        )
    kinds = found.by_kind()
    if not json:
        rows = [{"kind": kind} | counts for kind, counts in kinds.items()]
        table(rows, KINDS, empty="nothing to collect")
    sentence = f"{found.bytes} bytes in {len(found.files)} files {'could be' if dry_run else 'were'} freed"
    report = {"files": len(found.files), "bytes": found.bytes, "kinds": kinds, "dry_run": dry_run}
    tell(report, sentence, json=json)


def compact(
    name: Annotated[str, typer.Argument(help="Name of the dataset.")],
    config: Config = None,
    json: Json = False,
) -> None:
    """Pack the small files of a dataset; versions do not change.

    Also works while the service runs. The trainer does the same on its own if there are many.
    """
    from outrider.dataops.datasets.references import find_version
    from outrider.dataops.upkeep.compaction import compact as packed

    with _stores(config) as (engine, objects, _):
        with engine.connect() as connection:
            find_version(connection, name)
        found = packed(engine, objects, name)
    report = {
        "dataset": name,
        "objects_before": found.before,
        "objects": found.after,
        "packed_rows": found.packed_rows,
        "packed_bytes": found.packed_bytes,
    }
    sentence = (
        f"{name}: {found.before} objects became {found.after}; `outrider dataset gc` deletes the old ones"
    )
    tell(report, sentence if found.packed_rows else f"{name}: nothing to pack", json=json)


@contextmanager
def _stores(config: "Path | None") -> "Iterator[tuple[Engine, LocalObjects, Path]]":
    """Database, object store and data folder of the configuration."""
    from outrider.dataops.access.private_files import keep_files_private
    from outrider.dataops.payloads.objects import LocalObjects
    from outrider.dataops.state.database import open_database
    from outrider.monitor.settings.config import accepted_settings, find_config

    keep_files_private()
    settings = accepted_settings(find_config(config))
    if not (settings.data_folder / "state.db").is_file():
        raise ConfigError(f"{settings.data_folder} has no datasets: serve the project first")
    engine = open_database(settings.database_url)
    try:
        yield engine, LocalObjects(settings.data_folder / "objects"), settings.data_folder
    finally:
        engine.dispose()
