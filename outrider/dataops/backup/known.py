"""Known backups of a data folder, as `outrider backup` made them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from outrider.dataops.whole_file import write_whole

from .manifest import NAME

FILE = "backups.json"


@dataclass(frozen=True, slots=True)
class KnownBackup:
    """Place and time of a backup."""

    path: str
    created_us: int

    @property
    def is_there(self) -> bool:
        """Test for a backup that can be reached from here."""
        return (Path(self.path) / NAME).is_file()


def known_backups(folder: Path) -> list[KnownBackup]:
    """Backups of a data folder, the oldest first."""
    try:
        told = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return sorted((KnownBackup(**one) for one in told), key=lambda one: one.created_us)


def note_backup(folder: Path, destination: Path, *, now_us: int) -> None:
    """Remember a backup; one that was at its place is forgotten."""
    made = KnownBackup(str(destination.absolute()), now_us)
    others = [one for one in known_backups(folder) if one.path != made.path]
    write_whole(folder / FILE, json.dumps([asdict(one) for one in [*others, made]]))
