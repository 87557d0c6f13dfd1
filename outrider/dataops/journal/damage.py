"""Search of a journal for damaged blocks."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from .journal import SqliteJournal


@dataclass(slots=True)
class Damage:
    """Damage found in a journal."""

    blocks: dict[int, str] = field(default_factory=dict)
    """Number of every damaged block, with what is wrong with it."""
    checked: int = 0
    """How many blocks were looked at."""
    upto_seq: int = 0
    """The last of them; the journal's last one unless time ran out."""


def find_damage(path: Path, *, most_s: float = 20.0) -> Damage:
    """Check blocks against checksums, in order, for ``most_s`` seconds.

    Raises
    ------
    JournalUnreadable
        If the file is no journal any more.
    """
    found = Damage()
    until = time.monotonic() + most_s
    with SqliteJournal(path, read_only=True) as journal:
        while time.monotonic() < until and (blocks := journal.read(found.upto_seq)):
            found.blocks |= {block.seq: block.damage for block in blocks if block.damage}
            found.checked += len(blocks)
            found.upto_seq = blocks[-1].seq
    return found
