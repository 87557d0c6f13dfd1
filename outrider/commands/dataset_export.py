"""``outrider dataset export``: write a version in other tools' formats."""

import json as json_format
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from outrider.dataops.whole_file import sync_all
from outrider.dataset_reference import DatasetPart
from outrider.errors import ConfigError

from .api import Api, connect
from .dataset_rows import version_of
from .output import Config, Json, tell

if TYPE_CHECKING:
    import pyarrow as pa

    from .export_formats import Part, Written

NOTE = "export.json"
"""File that marks a folder as an export; only such a folder may be replaced."""
PARTS = ("train", "held_out")
BATCH_ROWS = 1000


def export(
    name: Annotated[str, typer.Argument(help="Dataset, or dataset@version; the newest by default.")],
    to: Annotated[Path, typer.Option("--to", help="Folder to make.")],
    form: Annotated[
        Literal["parquet", "hf", "images", "chat", "preferences"],
        typer.Option("--format", help="What is written into it."),
    ] = "parquet",
    part: Annotated[DatasetPart | None, typer.Option(help="Only this part.")] = None,
    image: Annotated[str | None, typer.Option(help="Column of the pictures.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Column of the question.")] = None,
    answer: Annotated[str | None, typer.Option(help="Column of the model's answer.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    config: Config = None,
    json: Json = False,
) -> None:
    """Write a version as Parquet, Hugging Face folder, pictures, chats or preferences.

    Train and held-out rows stay separate. The folder appears once it is complete.
    """
    from .export_formats import FORMATS, ExportColumns

    _check_target(to, force=force)
    api = connect(config)
    version = version_of(api, name)
    dataset = version["dataset"]
    id = f"{dataset}@{version['number']}"
    to.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        staged = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}.")))
        parts = [
            found
            for each in ([part] if part else PARTS)
            if (found := _part(stack, api, dataset, version["number"], each, staged)).count or part
        ]
        if not any(found.count for found in parts):
            raise ConfigError(f"{id} has no {part.replace('_', '-') if part else ''} row to export")
        content = staged / "content"
        content.mkdir()
        written = FORMATS[form](parts, content, ExportColumns(image, label, prompt, answer))
        facts = _facts(id, form, version, written)
        (content / NOTE).write_text(json_format.dumps(facts, indent=2) + "\n", encoding="utf-8")
        if form == "hf":
            (content / "README.md").write_text(dataset_card(id, version, parts), encoding="utf-8")
        sync_all(content)
        _put(content, to, staged)
    counts = [f"{count} {kept.replace('_', '-')} rows" for kept, count in written.rows.items()]
    left = [f"; {count} left out: {why}" for why, count in written.left_out.items()]
    tell(facts | {"folder": str(to)}, f"{id}: {', '.join(counts)} written to {to}{''.join(left)}", json=json)


def dataset_card(id: str, version: dict[str, Any], parts: "Sequence[Part]") -> str:
    """README of a Hugging Face folder, with its splits and columns."""
    splits = "".join(f"  - split: {part.name}\n    path: data/{part.name}-*.parquet\n" for part in parts)
    columns = "\n".join(
        f"| `{field.name}` | {str(field.type).replace('|', ' ')} |" for field in parts[0].schema
    )
    rows = ", ".join(f"{part.count} {part.name}" for part in parts)
    return (
        f"---\npretty_name: {json_format.dumps(id)}\n"
        f"configs:\n- config_name: default\n  data_files:\n{splits}---\n\n"
        f"# {id}\n\nRows: {rows}. Model: {version['model']}. Digest: `{version['digest']}`.\n\n"
        f"| column | type |\n|---|---|\n{columns}\n"
    )


def _check_target(to: Path, *, force: bool) -> None:
    if not to.name:
        raise ConfigError(f"--to {to}: a folder with a name of its own expected")
    if not to.exists() and not to.is_symlink():
        return
    if not force:
        raise ConfigError(f"--to {to} exists already: name another folder, or --force replaces an export")
    if to.is_symlink() or not (to / NOTE).is_file():
        raise ConfigError(
            f"--to {to} is no export (it has no {NOTE}): it is not replaced; name another folder"
        )


def _part(stack: ExitStack, api: Api, dataset: str, number: int, part: str, folder: Path) -> "Part":
    """Download a part into a temporary file, from which it is read batch by batch."""
    import pyarrow as pa

    from .export_formats import Part

    path = folder / f"{part}.arrow"
    with path.open("wb") as file:
        api.download(f"/v1/datasets/{dataset}/versions/{number}/rows", file, part=part)
    mapped = stack.enter_context(pa.memory_map(str(path)))

    def batches() -> "Iterator[pa.RecordBatch]":
        mapped.seek(0)
        with pa.ipc.open_stream(mapped) as reader:
            for batch in reader:
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS)

    mapped.seek(0)
    with pa.ipc.open_stream(mapped) as reader:
        schema, count = reader.schema, sum(batch.num_rows for batch in reader)
    return Part(part, schema, count, batches)


def _facts(id: str, form: str, version: dict[str, Any], written: "Written") -> dict[str, Any]:
    return {
        "dataset": id,
        "model": version["model"],
        "digest": version["digest"],
        "format": form,
        "rows": written.rows,
        "left_out": dict(written.left_out),
    } | written.facts


def _put(content: Path, to: Path, staged: Path) -> None:
    """Move the export into place; an earlier one is restored if that fails."""
    aside = staged / "before"
    replaces = to.exists()
    if replaces:
        os.rename(to, aside)
    try:
        os.rename(content, to)
    except OSError:
        if replaces:
            os.rename(aside, to)
        raise
    shutil.rmtree(aside, ignore_errors=True)
