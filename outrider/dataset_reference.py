"""From ``NAME@VERSION`` to the records of a dataset version."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from outrider.errors import ConfigError, Erased, NotFound

if TYPE_CHECKING:
    from outrider.assertions import Batch

DatasetPart: TypeAlias = Literal["train", "held_out"]


def load_dataset(reference: str, *, part: DatasetPart | None = None, folder: Path | None = None) -> "Batch":
    """Records of a dataset version, from a service or data folder.

    The service at ``OUTRIDER_URL``, or a project's data folder.

    Parameters
    ----------
    reference
        ``name@3``, or a digest behind the ``@``; ``name`` alone is the newest version.
    part
        Only these rows: ``train`` to learn from, ``held_out`` to judge by.
    folder
        The project's, with ``outrider.toml``, where ``OUTRIDER_URL`` is not set; default the current one.

    Raises
    ------
    ConfigError
        If there is no such dataset or version; the message names what there is.
    """
    name, _, number = reference.partition("@")
    is_digest = len(number) == 64 and set(number) <= set("0123456789abcdef")
    if not name or (number and not number.isdecimal() and number != "newest" and not is_digest):
        raise ConfigError(f"{reference!r} is no dataset: name@3 expected, or name for the newest version")
    version: int | str | None = number if is_digest else int(number) if number.isdecimal() else None
    if os.environ.get("OUTRIDER_URL"):
        return _of_service(name, version, part)
    return _of_folder(name, version, part, folder or Path())


def _of_service(name: str, version: int | str | None, part: DatasetPart | None) -> "Batch":
    from outrider.connection import connect

    service = connect()
    try:
        return service.dataset_batch(name, "newest" if version is None else version, part=part)
    except (Erased, NotFound) as error:
        raise ConfigError(f"{service.url}: {error}") from None


def _of_folder(name: str, version: int | str | None, part: DatasetPart | None, folder: Path) -> "Batch":
    from outrider.dataops.datasets import versions as datasets
    from outrider.dataops.payloads.objects import LocalObjects
    from outrider.dataops.state.database import open_database
    from outrider.monitor.settings.config import load_settings

    settings = load_settings(folder / "outrider.toml")
    if not (settings.data_folder / "state.db").is_file():
        raise ConfigError(f"{settings.data_folder} has no datasets: set OUTRIDER_URL, or serve the project")
    engine = open_database(settings.database_url)
    try:
        with engine.connect() as connection:
            try:
                found = datasets.get(connection, name, version)
            except Erased as error:
                raise ConfigError(f"{error} in {settings.data_folder}") from None
            except NotFound as error:
                known = ", ".join(f"{v.dataset}@{v.number}" for v in datasets.all_versions(connection))
                raise ConfigError(f"{error} in {settings.data_folder}; there is {known or 'none'}") from None
            objects = LocalObjects(settings.data_folder / "objects")
            return datasets.read(connection, objects, found, part=part)
    finally:
        engine.dispose()
