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
"""``changed``: another version of it was accepted; ``accepted``: the worker has not loaded it yet;
``taken``: something that was not learned has its name."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Result of one run of learning."""

    learned_us: int
    records: int
    seconds: float
    proposals: tuple[Proposal, ...]


def learned_path(data_folder: Path, model: str) -> Path:
    """File of a model's proposals.

    Examples
    --------
    >>> learned_path(Path("data"), "a/b").as_posix()
    'data/proposals/a%2Fb.json'
    """
    return data_folder / "proposals" / f"{quote(model, safe='')}.json"


def save_learned(path: Path, found: Learned) -> None:
    """Replace the stored proposals of a model."""
    body = {
        "learned_us": found.learned_us,
        "records": found.records,
        "seconds": found.seconds,
        "proposals": [proposal.as_dict() for proposal in found.proposals],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(body))


def load_learned(path: Path) -> Learned | None:
    """Stored proposals of a model; None before any learning.

    Raises
    ------
    ConfigError
        If the file holds something else.
    """
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        proposals = tuple(Proposal.from_dict(fields) for fields in body["proposals"])
        return Learned(int(body["learned_us"]), int(body["records"]), float(body["seconds"]), proposals)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} holds no proposals ({error}): learn again") from error


def states(proposals: Sequence[Proposal], path: Path | None, active: Mapping[str, str]) -> dict[str, State]:
    """State of each proposal by name; the file is read, never run.

    Parameters
    ----------
    path
        File that accepted proposals are written into.
    active
        Revision of each assertion and live test that judges now.
    """
    text = _read(path)
    return {one.name: _state(one, text, active.get(one.name)) for one in proposals}


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
