"""Folders of files as objects, each with a canonical JSON manifest ``{name. SHA-256}``."""

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from outrider.errors import OutriderError

from .objects import CorruptObject, LocalObjects, ObjectStore, is_digest

FOLDER = "folders"
MOST_FILES = 1000
_PART = re.compile(r"[A-Za-z0-9_][\w.+ =-]{0,199}", re.ASCII)
_COPY = "-copy"
_DEEPEST = 8
_MANIFEST_BYTES = 1_048_576


class WrongFolder(OutriderError):  # noqa: N818 - reads as the thing it is
    pass


def keep_folder(objects: ObjectStore, files: Mapping[str, Path]) -> str:
    """Returns the digest of the manifest; ``files`` by relative name."""
    check_names(files)
    for name, path in files.items():
        if path.is_symlink() or not path.is_file():
            raise WrongFolder(f"{name}: a file expected, {path} is {_what(path)}")
    kept = {}
    for name, path in sorted(files.items()):
        with path.open("rb") as file:
            kept[name] = objects.put_file(file)
    return keep_manifest(objects, kept)


def keep_manifest(objects: ObjectStore, files: Mapping[str, str]) -> str:
    check_names(files)
    return objects.put(json.dumps(dict(sorted(files.items())), separators=(",", ":")).encode())


def files_of(objects: ObjectStore, digest: str) -> dict[str, str]:
    if objects.size(digest) > _MANIFEST_BYTES:
        raise WrongFolder(f"object {digest} is no manifest of a folder")
    try:
        files = json.loads(objects.get(digest))
    except ValueError:
        raise WrongFolder(f"object {digest} is no manifest of a folder") from None
    if not isinstance(files, dict) or not all(isinstance(v, str) and is_digest(v) for v in files.values()):
        raise WrongFolder(f"object {digest} is no manifest of a folder")
    check_names(files)
    return files


def opened_folder(objects: LocalObjects, digest: str, cache: Path, *, copies: bool = False) -> Path:
    """Verified files on this disk; ``copies`` may be written to, links not."""
    files = files_of(objects, digest)
    place = cache / (f"{digest}{_COPY}" if copies else digest)
    if _holds(place, files):
        os.utime(place)
        return place
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Path(tempfile.mkdtemp(dir=cache, prefix=".part-"))
    try:
        for name, content in files.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            _bring(objects.path(content), made / name, copies=copies)
            if _sha256(made / name) != content:
                raise CorruptObject(f"object {content} in {objects.folder} is damaged; restore it")
        _put_in_place(made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return place


def unopened(cache: Path, *, older_than_s: float, in_service: Collection[str] = ()) -> list[Path]:
    """Opened folders unused since then, but ``in_service``, and leftovers."""
    before = time.time() - older_than_s
    found = []
    for path in sorted(cache.iterdir()) if cache.is_dir() else ():
        with suppress(FileNotFoundError):  # another one removes it
            used = path.name.removesuffix(_COPY) in in_service
            if path.stat().st_mtime < before and not used:
                found.append(path)
    return found


def check_names(names: Iterable[str]) -> None:
    """Refuse names outside the folder, and files that are folders too."""
    known = set(names)
    if not known or len(known) > MOST_FILES:
        raise WrongFolder(f"1 to {MOST_FILES} files expected, got {len(known)}")
    for name in sorted(known):
        parts = name.split("/")
        if len(parts) > _DEEPEST or not all(_PART.fullmatch(part) for part in parts):
            raise WrongFolder(
                f"{name!r}: a name below the folder expected, of letters, digits, points and dashes, "
                f"at most {_DEEPEST} deep"
            )
        if above := next(
            (o for o in ("/".join(parts[:n]) for n in range(1, len(parts))) if o in known), None
        ):
            raise WrongFolder(f"{name!r}: {above!r} is a file already, and cannot be its folder")


def _holds(place: Path, files: Mapping[str, str]) -> bool:
    found = {path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir()}
    if found != files.keys() or any((place / name).is_symlink() for name in files):
        return False
    try:
        return all(_sha256(place / name) == content for name, content in files.items())
    except OSError:  # removed meanwhile
        return False


def _bring(source: Path, target: Path, *, copies: bool) -> None:
    if not copies:
        with suppress(OSError):  # another file system
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _put_in_place(made: Path, place: Path) -> None:
    """Another process may do the same."""
    made.chmod(0o700)
    for _ in range(3):
        try:
            made.rename(place)
            return
        except OSError:  # a damaged one is there, or an equal one has just come
            away = Path(tempfile.mkdtemp(dir=place.parent, prefix=".part-"))
            with suppress(FileNotFoundError):
                place.rename(away / "old")
            shutil.rmtree(away, ignore_errors=True)
    raise OutriderError(f"{place} cannot be made: another process keeps it")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _what(path: Path) -> str:
    return "a link" if path.is_symlink() else "a folder" if path.is_dir() else "not there"
