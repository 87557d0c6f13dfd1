"""Assertion file of learned assertions, written once, whole or not."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from outrider.assertions.learn import Proposal, merged


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
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(after)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(temporary, path.stat().st_mode & 0o777 if path.exists() else 0o644)
    os.replace(temporary, path)
    return True
