"""Files of a version: digest, and content for the object store."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from outrider.dataops.payloads.folders import keep_folder, opened_folder
from outrider.dataops.payloads.objects import LocalObjects, ObjectStore
from outrider.errors import ConfigError

from .source import KeptRole, Source

COUNTED = (".json", ".txt", ".model", ".safetensors", ".jinja")
"""Suffixes of files of a model folder that decide answers."""
FOLDER, ADAPTER = "sha256", "adapter_sha256"
"""Options with the digests of folder and adapter, checked whenever they are loaded."""
ADAPTER_CONFIG = "adapter_config.json"


@dataclass(frozen=True, slots=True)
class Content:
    source: Source
    """With the digests of the folders that stay where they are."""
    digest: str
    """SHA-256 of all that decides answers."""
    kept: bytes | None = None
    """Bytes for the object store, if not there already."""
    weights: str | None = None
    """SHA-256 of the stored bytes that the version is loaded from, if any."""


class NotThere(ConfigError):  # noqa: N818 - reads as the event it is
    """A file that a version is made of does not exist yet."""


def content_of(source: Source, folder: Path, weights: Path | str | None = None) -> Content:
    """``weights``: a separate file, or the digest of stored bytes."""
    pinned = pin(source, folder)
    kept = None if isinstance(weights, str) else _kept(source, folder, weights)
    own = weights if isinstance(weights, str) else None if kept is None else hashlib.sha256(kept).hexdigest()
    return Content(pinned, whole_digest(pinned, own), kept, own if source.kind != "function" else None)


def whole_digest(source: Source, weights: str | None) -> str:
    digests = [str(source.options[name]) for name in (FOLDER, ADAPTER) if name in source.options]
    digests += sorted(source.kept.values())
    digests = digests if weights is None else [weights, *digests]
    if len(digests) == 1 and not source.recipe:
        return digests[0]
    return hashlib.sha256("\n".join([*digests, source.to_json()]).encode()).hexdigest()


def keep_files(objects: ObjectStore, source: Source, files: Mapping[str, Path]) -> Source:
    """Files are a function's artefacts, else an adapter or a whole folder."""
    role: KeptRole = "artefacts"
    if source.kind != "function":
        role = "adapter" if ADAPTER_CONFIG in files else "folder"
    options = dict(source.options)
    if role != "artefacts":  # of what was there before
        options.pop(FOLDER if role == "folder" else ADAPTER, None)
    adapter = None if role == "adapter" else source.adapter
    digest = keep_folder(objects, files)
    return replace(source, adapter=adapter, options=options, kept={**source.kept, role: digest})


def opened_source(source: Source, objects: LocalObjects, cache: Path) -> Source:
    kept = dict(source.kept)
    if (digest := kept.pop("folder", None)) is not None:
        source = replace(source, reference=str(opened_folder(objects, digest, cache).absolute()))
    if (digest := kept.pop("adapter", None)) is not None:
        source = replace(source, adapter=str(opened_folder(objects, digest, cache).absolute()))
    if (digest := kept.pop("artefacts", None)) is not None:
        path = opened_folder(objects, digest, cache, copies=True)  # a user's code may write to it
        kept["artefacts"] = str(path.absolute())
    return replace(source, kept=kept)


def closed_source(made: Source, opened: Source, stored: Source) -> Source:
    """Inherited folders of an opened source as digests again."""
    kept: dict[KeptRole, str] = {}
    if "folder" in stored.kept and made.reference == opened.reference:
        made, kept = replace(made, reference=stored.reference), kept | {"folder": stored.kept["folder"]}
    if "adapter" in stored.kept and made.adapter == opened.adapter:
        made, kept = replace(made, adapter=stored.adapter), kept | {"adapter": stored.kept["adapter"]}
    if "artefacts" in stored.kept and made.kept.get("artefacts") == opened.kept.get("artefacts"):
        kept["artefacts"] = stored.kept["artefacts"]
    return replace(made, kept=kept)


def pin(source: Source, folder: Path) -> Source:
    """Source with digests of folders that are not stored."""
    options = dict(source.options)
    if source.kind == "hf" and "folder" not in source.kept:
        options.setdefault(FOLDER, folder_digest(folder / source.reference))
    if source.adapter is not None:
        options.setdefault(ADAPTER, folder_digest(folder / source.adapter))
    return replace(source, options=options)


def check_pins(source: Source, folder: Path) -> None:
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
    """SHA-256 of names and contents of files that decide answers."""
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
    """Weights, an ONNX file, or the file of a function."""
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
