"""From ``NAME@VERSION`` to the records of a dataset version."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

from .errors import ConfigError, Erased, NotFound

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from .assertions import Batch
    from .dataops.datasets.versions import Version
    from .dataops.loaders.mapped_rows import MappedRows
    from .dataops.payloads.objects import LocalObjects

DatasetPart: TypeAlias = Literal["train", "held_out"]
CACHED_ROWS = 65_536
"""Most rows of a batch of the Arrow file that is mapped."""


def load_dataset(reference: str, *, part: DatasetPart | None = None, folder: Path | None = None) -> "Batch":
    """Records of a dataset version, from a service or data folder.

    The service at ``OUTRIDER_URL``, or a project's data folder.

    Parameters
    ----------
    reference
        ``name@3``, ``name@tag`` or ``name@2026-11-01T12:00`` (UTC: the newest of then); ``name`` alone is the
        newest version.
    part
        Only these rows: ``train`` to learn from, ``held_out`` to judge by.
    folder
        The project's, with ``outrider.toml``, where ``OUTRIDER_URL`` is not set; default the current one.

    Raises
    ------
    ConfigError
        If there is no such dataset or version; the message names what there is.
    """
    _check_named(reference)
    if os.environ.get("OUTRIDER_URL"):
        return _of_service(reference, part)
    return _of_folder(reference, part, folder or Path())


def _of_service(reference: str, part: DatasetPart | None) -> "Batch":
    from .connection import connect

    name, _, selector = reference.partition("@")

    service = connect()
    try:
        return service.dataset_batch(name, selector or "newest", part=part)
    except (Erased, NotFound) as error:
        raise ConfigError(f"{service.url}: {error}") from None


def open_dataset(
    reference: str,
    *,
    part: DatasetPart | None = None,
    columns: Sequence[str] | None = None,
    folder: Path | None = None,
    cache: Path | None = None,
) -> "MappedRows":
    """Rows of a dataset version for pandas, torch and Hugging Face.

    From a mapped Arrow file.

    Parameters
    ----------
    reference
        ``name@3``, ``name@tag`` or ``name@2026-11-01T12:00`` (UTC: the newest of then); ``name`` alone is the
        newest version.
    part
        Only these rows: ``train`` to learn from, ``held_out`` to judge by.
    columns
        The only ones to read; all by default.
    folder
        The project's, with ``outrider.toml``, where ``OUTRIDER_URL`` is not set; default the current one.
    cache
        Folder of the Arrow file. Default ``arrow`` in the data folder; of a service
        ``~/.cache/outrider/arrow``.

    Raises
    ------
    ConfigError
        If there is no such dataset or version; the message names what there is.
    NotFound
        If the version lacks a column; the message names the nearest first.
    """
    _check_named(reference)
    if os.environ.get("OUTRIDER_URL"):
        return _rows_of_service(reference, part, columns, cache)
    return _rows_of_folder(reference, part, columns, folder or Path(), cache)


def _check_named(reference: str) -> None:
    if not reference.partition("@")[0]:
        raise ConfigError(f"{reference!r} is no dataset: name@3 expected, or name for the newest version")


def _rows_of_service(
    reference: str, part: DatasetPart | None, columns: Sequence[str] | None, cache: Path | None
) -> "MappedRows":
    from .commands.api import connect
    from .commands.dataset_rows import version_of
    from .dataops.loaders.arrow_cache import FOLDER, CachedRows, cached
    from .dataops.loaders.mapped_rows import MappedRows

    api = connect()
    try:
        found = version_of(api, reference)
    except (Erased, NotFound) as error:
        raise ConfigError(f"{api.url}: {error}") from None
    name, number, digest = found["dataset"], found["number"], found["digest"]
    path = f"/v1/datasets/{name}/versions/{number}/rows"

    def write(file: BinaryIO) -> None:
        api.download(path, file, part=part, column=None if columns is None else [*columns])

    rows = CachedRows(name, number, digest, part, columns)
    place = cache or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "outrider" / FOLDER
    return MappedRows(_said(name, number, part), digest, cached(place, rows.name, write), columns)


def _rows_of_folder(
    reference: str,
    part: DatasetPart | None,
    columns: Sequence[str] | None,
    folder: Path,
    cache: Path | None,
) -> "MappedRows":
    from .dataops.datasets.scan import ipc_stream, scan
    from .dataops.loaders.arrow_cache import FOLDER, CachedRows, cached
    from .dataops.loaders.mapped_rows import MappedRows

    with _opened(folder, reference) as (connection, objects, version, data):

        def write(file: BinaryIO) -> None:
            rows = scan(connection, objects, version, part=part, batch_rows=CACHED_ROWS)
            file.writelines(ipc_stream(rows.schema, rows))

        rows = CachedRows(version.dataset, version.number, version.digest, part)
        path = cached(cache or data / FOLDER, rows.name, write)
    said = _said(version.dataset, version.number, part)
    return MappedRows(said, version.digest, path, columns)


def _said(name: str, number: int, part: str | None) -> str:
    return f"{name}@{number}" + (f" {part}" if part else "")


def _of_folder(reference: str, part: DatasetPart | None, folder: Path) -> "Batch":
    from .dataops.datasets import versions as datasets

    with _opened(folder, reference) as (connection, objects, version, _):
        return datasets.read(connection, objects, version, part=part)


@contextmanager
def _opened(folder: Path, reference: str) -> "Iterator[tuple[Connection, LocalObjects, Version, Path]]":
    """Connection, objects, version and data folder of a project."""
    from .dataops.datasets import versions as datasets
    from .dataops.datasets.references import open_version
    from .dataops.payloads.objects import LocalObjects
    from .dataops.state.database import open_database
    from .monitor.settings.config import load_settings

    settings = load_settings(folder / "outrider.toml")
    data = settings.data_folder
    if not (data / "state.db").is_file():
        raise ConfigError(f"{data} has no datasets: set OUTRIDER_URL, or serve the project")
    engine = open_database(settings.database_url)
    try:
        with engine.connect() as connection:
            try:
                found = open_version(connection, reference)
            except Erased as error:
                raise ConfigError(f"{error} in {data}") from None
            except NotFound as error:
                known = ", ".join(f"{v.dataset}@{v.number}" for v in datasets.all_versions(connection))
                raise ConfigError(f"{error} in {data}; there is {known or 'none'}") from None
            yield connection, LocalObjects(data / "objects"), found, data
    finally:
        engine.dispose()
