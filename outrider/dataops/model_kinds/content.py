"""Files of a version: digest, and content for the object store."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from outrider.errors import ConfigError

from .source import Source

COUNTED = (".json", ".txt", ".model", ".safetensors", ".jinja")
"""Ends of the names of files of a model folder that decide what it answers."""
FOLDER, ADAPTER = "sha256", "adapter_sha256"
"""Options that say what a folder and an adapter hold; checked whenever they are loaded."""


@dataclass(frozen=True, slots=True)
class Content:
    """Content of a version beyond its source."""

    source: Source
    """The source, with the digests of the folders that stay where they are."""
    digest: str
    """SHA-256 of all that decides what it answers."""
    kept: bytes | None = None
    """Bytes for the object store; None where nothing of it is kept there, or it is kept already."""
    weights: str | None = None
    """SHA-256 of the kept bytes that the version is loaded from; None where it is loaded from elsewhere."""


class NotThere(ConfigError):  # noqa: N818 - reads as the event it is
    """A file that a version is made of does not exist yet."""


def content_of(source: Source, folder: Path, weights: Path | str | None = None) -> Content:
    """Read the files of a version.

    Parameters
    ----------
    weights
        Its weights where they are named apart: a file, or the digest of bytes that are kept already.

    Raises
    ------
    NotThere
        If a file is missing: training may write it yet.
    """
    pinned = pin(source, folder)
    kept = None if isinstance(weights, str) else _kept(source, folder, weights)
    own = weights if isinstance(weights, str) else None if kept is None else hashlib.sha256(kept).hexdigest()
    digests = [str(pinned.options[name]) for name in (FOLDER, ADAPTER) if name in pinned.options]
    digests = digests if own is None else [own, *digests]
    is_plain = len(digests) == 1 and not source.recipe
    parts = "\n".join([*digests, pinned.to_json()])
    digest = digests[0] if is_plain else hashlib.sha256(parts.encode()).hexdigest()
    return Content(pinned, digest, kept, own if source.kind != "function" else None)


def pin(source: Source, folder: Path) -> Source:
    """Source with digests of its folders, any that stands kept."""
    options = dict(source.options)
    if source.kind == "hf":
        options.setdefault(FOLDER, folder_digest(folder / source.reference))
    if source.adapter is not None:
        options.setdefault(ADAPTER, folder_digest(folder / source.adapter))
    return replace(source, options=options)


def check_pins(source: Source, folder: Path) -> None:
    """Refuse folders that hold something else than the source says.

    Raises
    ------
    ConfigError
        Naming the folder, and what to do.
    """
    pinned = [(FOLDER, source.reference), (ADAPTER, source.adapter)]
    for option, name in pinned:
        expected = source.options.get(option)
        if expected is None or name is None:
            continue
        path = folder / name
        found = folder_digest(path)
        if found != expected:
            raise ConfigError(
                f"{path} has changed since the version was registered (sha256 {found[:12]}, "
                f"not {str(expected)[:12]}): a version stays what it is; name the new one as a challenger"
            )


def folder_digest(path: Path) -> str:
    """SHA-256 of a folder's answer-deciding files, by name and content.

    Raises
    ------
    NotThere
        If there are none, or one cannot be read.
    """
    files = sorted(file for file in path.glob("*") if file.suffix in COUNTED and file.is_file())
    if not files:
        raise NotThere(f"{path} does not exist, or holds no model")
    whole = hashlib.sha256()
    for file in files:
        try:
            with file.open("rb") as opened:
                own = hashlib.file_digest(opened, "sha256").hexdigest()
        except OSError as error:
            raise NotThere(f"{file} cannot be read: {error.strerror or error}") from error
        whole.update(f"{file.name}\0{own}\n".encode())
    return whole.hexdigest()


def _kept(source: Source, folder: Path, weights: Path | None) -> bytes | None:
    """Bytes for the object store: weights, an ONNX file, the file of a function."""
    file = weights
    if source.kind == "torch" and file is None:
        raise ConfigError(f"{source.reference}: weights expected: a torch module needs a safetensors file")
    if source.kind == "onnx":
        file = file or folder / source.reference
    elif source.kind == "function":
        file = folder / source.reference.rpartition(":")[0]
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise NotThere(f"{file} cannot be read: {error.strerror or error}") from error
