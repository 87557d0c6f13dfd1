"""Digests of the files that a training run executes or starts from."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outrider.dataops.model_kinds.source import Source


def file_digests(source: Source, options: Mapping[str, Any], base: Path) -> dict[str, str]:
    """SHA-256 of each user's file by its name.

    Of a model's folder, of the sizes and times of its files.
    """
    found: dict[str, str] = {}
    named = [source.reference, source.adapter]
    named += [options.get(name) for name in ("augment", "trainer", "architecture")]
    for reference in named:
        if not isinstance(reference, str) or "://" in reference:
            continue
        name = reference.partition(":")[0]
        if Path(name).is_absolute():  # a kept folder, whose digest its source names
            continue
        path = base / name
        if path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.is_dir():
            found[name] = _folder_digest(path)
    return found


def _folder_digest(folder: Path) -> str:
    """Of a folder that may hold gigabytes."""
    digest = hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        status = path.stat()
        digest.update(f"{path.relative_to(folder)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
