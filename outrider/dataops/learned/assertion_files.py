"""Assertion file of learned assertions, written once, whole or not."""

from collections.abc import Sequence
from pathlib import Path

from outrider.assertions.learn import Proposal, merged
from outrider.dataops.whole_file import write_whole


def accept(proposals: Sequence[Proposal], path: Path) -> bool:
    """Put proposals into a perhaps new file; True if changed.

    Accepting the same again changes nothing; a proposal of the same name that was learned anew replaces the
    old one; what a person wrote is never touched.

    Raises
    ------
    ConfigError
        If the file is no Python, or a name is taken by something that was not learned.
    """
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = merged(before, proposals)
    if after == before:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, after, mode=path.stat().st_mode & 0o777 if path.exists() else 0o644)
    return True
