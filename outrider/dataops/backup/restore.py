"""Restoring of a data folder from a backup, checked before placed."""

from pathlib import Path

from outrider.errors import OutriderError

from .backup import copy_hashed, placed
from .manifest import BackupDamaged, Manifest, Progress, load_manifest, read_contents

ERASURES = "erasures.json"
"""File next to a backup: later erasures, to be repeated on what is restored."""
PENDING = Path("erasures", "0" * 16 + ".json")
"""Its place in a data folder, where the next erasure or start finds it."""


def restore(source: Path, folder: Path, *, progress: Progress, erasures: str | None = None) -> Manifest:
    """Later erasures become pending; ``erasures`` replaces the list next to the backup."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutriderError(
            f"{folder} is not empty and nothing is overwritten: move it away, or name another storage.folder"
        )
    manifest = load_manifest(source)
    with placed(folder) as part:
        _copy(source, part, manifest, progress)
        progress("checking the databases", 0, 1)
        if (found := read_contents(part)) != manifest.contents:
            raise BackupDamaged(
                f"{source}: its databases hold {found}, its manifest says {manifest.contents}"
            )
        if (later := erasures or _later_erasures(source)) is not None:
            (part / PENDING).parent.mkdir(exist_ok=True)
            (part / PENDING).write_text(later, encoding="utf-8")
    return manifest


def _later_erasures(source: Path) -> str | None:
    try:
        return (source / ERASURES).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _copy(source: Path, part: Path, manifest: Manifest, progress: Progress) -> None:
    wrong, done = [], 0
    for entry in manifest.files:
        progress("copying", done, manifest.total_bytes)
        done += entry.bytes
        path = source / entry.path
        if not (part / entry.path).resolve().is_relative_to(part.resolve()):
            wrong.append(f"{entry.path} leads out of the folder")
        elif path.resolve() != source.resolve() / entry.path:
            wrong.append(f"{entry.path} is or lies behind a symbolic link, which no backup writes")
        elif not path.is_file():
            wrong.append(f"{entry.path} is missing")
        elif (digest := copy_hashed(path, part / entry.path)) != entry.sha256:
            wrong.append(f"{entry.path} has SHA-256 {digest}, {entry.sha256} was written")
        else:
            (part / entry.path).chmod(0o600)  # whatever the backup's own modes are: nothing of it is run
    if wrong:
        raise BackupDamaged(f"{source} is damaged, nothing was restored:\n" + "\n".join(wrong))
