"""Access of commands to dataset versions and their rows."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outrider.errors import ConfigError

from .api import Api

if TYPE_CHECKING:
    import pyarrow as pa

    from outrider.assertions import Batch


def version_of(api: Api, reference: str) -> dict[str, Any]:
    """Dataset version of a reference: NAME or NAME@X (number, tag or time)."""
    dataset, _, selector = reference.partition("@")
    if not dataset:
        raise ConfigError(f"{reference!r}: dataset, or dataset@version expected, for example churn-flagged@3")
    found: dict[str, Any] = api.get(f"/v1/datasets/{dataset}/versions/{selector or 'newest'}")
    return found


def named(name: str, version: str | None) -> str:
    """Dataset reference, with the version from an option, if given."""
    if version is None:
        return name
    if "@" in name:
        raise ConfigError(f"{name} with --version {version}: one of them expected")
    return f"{name}@{version}"


@contextmanager
def streamed_rows(
    api: Api,
    reference: str,
    *,
    part: str | None = None,
    columns: Sequence[str] = (),
    provenance: bool = False,
) -> "Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]":
    """Schema and batches of a dataset version, through a temporary file."""
    import pyarrow as pa

    dataset, _, selector = reference.partition("@")
    path = f"/v1/datasets/{dataset}/versions/{selector or 'newest'}/rows"
    with tempfile.TemporaryFile() as file:
        api.download(path, file, part=part, column=list(columns) or None, provenance=provenance or None)
        file.seek(0)
        with pa.ipc.open_stream(pa.PythonFile(file, "r")) as reader:
            yield reader.schema, iter(reader)


def rows_of(api: Api, version: dict[str, Any], part: str | None = None) -> "Batch":
    """Rows of a dataset version, or of one part."""
    from outrider.assertions import Batch

    from .tables import from_ipc

    path = f"/v1/datasets/{version['dataset']}/versions/{version['number']}/rows"
    return Batch.from_arrow(from_ipc(api.get_bytes(path, part=part)))
