"""Latest and accepted proposals of :func:`~outrider.assertions.learn.learn`, by model."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from outrider.assertions.learn import Proposal, merged
from outrider.dataops.whole_file import write_whole
from outrider.errors import ConfigError

State = Literal["proposed", "changed", "accepted", "active", "taken"]
"""``changed``: another version was accepted; ``accepted``: not loaded by the worker yet; ``taken``: the name
belongs to something not learned."""


@dataclass(frozen=True, slots=True)
class Learned:
    learned_us: int
    records: int
    seconds: float
    proposals: tuple[Proposal, ...]


def learned_path(data_folder: Path, model: str) -> Path:
    return data_folder / "proposals" / f"{quote(model, safe='')}.json"


def save_learned(path: Path, found: Learned) -> None:
    body = {
        "learned_us": found.learned_us,
        "records": found.records,
        "seconds": found.seconds,
        "proposals": [proposal.as_dict() for proposal in found.proposals],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(body))


def load_learned(path: Path) -> Learned | None:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        proposals = tuple(Proposal.from_dict(fields) for fields in body["proposals"])
        return Learned(int(body["learned_us"]), int(body["records"]), float(body["seconds"]), proposals)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} holds no proposals ({error}): learn again") from error


def states(proposals: Sequence[Proposal], path: Path | None, active: Mapping[str, str]) -> dict[str, State]:
    """By name; the file is read, never run. ``active`` has current revisions."""
    text = _read(path)
    return {item.name: _state(item, text, active.get(item.name)) for item in proposals}


def _state(proposal: Proposal, text: str, judges: str | None) -> State:
    try:
        after = merged(text, [proposal])
    except ConfigError:  # the file has something of that name that was not learned, or is no Python
        return "taken"
    rule = proposal.to_python().partition("\n")[2]
    if after == text or f"\n{rule}\n" in text:  # counts in the comment may be others, the rule is the same
        return "active" if judges == proposal.assertion().revision else "accepted"
    if re.search(rf"^{proposal.name} = ", text, flags=re.MULTILINE):
        return "changed"
    return "proposed" if judges is None else "taken"


def _read(path: Path | None) -> str:
    try:
        return path.read_text(encoding="utf-8") if path is not None else ""
    except (OSError, UnicodeDecodeError):
        return ""


def accept(proposals: Sequence[Proposal], path: Path) -> bool:
    """True if changed. A new proposal replaces a learned rule, never a written one."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = merged(before, proposals)
    if after == before:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, after, mode=path.stat().st_mode & 0o777 if path.exists() else 0o644)
    return True
