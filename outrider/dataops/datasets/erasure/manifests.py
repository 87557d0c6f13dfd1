"""Manifests of dataset versions, without traces of erased rows."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from outrider.dataops.datasets.row_counts import row_counts
from outrider.dataops.datasets.versions import Life, Version
from outrider.errors import NotFound

from .recount import Recount

OBSERVED = ": observed "
_FIGURES = ("class_shift", "range_growth")
"""Rules whose text tells figures of the rows."""


def without_lives(
    version: Version,
    lives: Sequence[Life],
    *,
    sizes: Mapping[int, tuple[str, int, int]],
    ended: Collection[int],
    recount: Recount,
) -> dict[str, Any]:
    """Manifest of a version without counts and figures of erased rows.

    Data Docs and figures of warnings go, of versions that held the rows and of the first one without them.

    Parameters
    ----------
    lives
        All lives of the erased rows in its dataset.
    sizes
        By file of the version: digest of its new content, bytes now, and bytes less than before.
    ended
        Files that the version replaced as a whole.
    recount
        Gives aggregates anew; has seen every version before.
    """
    number, manifest = version.number, dict(version.manifest)
    if sizes:
        manifest["bytes"] = version.bytes - sum(less for _, _, less in sizes.values())
    held = [life for life in lives if life.is_in(number)]
    if not held:
        recount.pass_over(version)
        if all(life.removed != number for life in lives):
            return manifest
    manifest["counts"] = row_counts([], manifest["counts"], gone=[life.origin for life in held])
    manifest["changes"] = _changes(manifest["changes"], number, lives, ended)
    manifest["validation"] = _validation(version, lives)
    if held and (kept := manifest["validation"].get("aggregates")):
        try:
            found = recount.of(version, kept, is_whole=bool(ended) or version.parent is None)
            manifest["validation"]["aggregates"] = found
        except NotFound:  # a file is lost: figures with the rows in them may not stay
            del manifest["validation"]["aggregates"]
    if held:
        manifest["erased"] = manifest.get("erased", 0) + len(held)
    return manifest


def _changes(
    known: Mapping[str, int], number: int, lives: Sequence[Life], ended: Collection[int]
) -> dict[str, int]:
    begun = {life.place for life in lives if life.number == number}
    added = sum(life.number == number == life.file for life in lives)
    left = sum(
        life.removed == number and life.place not in begun and life.file not in ended for life in lives
    )
    less = {"added": added, "relabelled": len(begun) - added, "removed": left}
    return {name: max(0, count - less.get(name, 0)) for name, count in known.items()}


def _validation(version: Version, lives: Sequence[Life]) -> dict[str, Any]:
    known = version.manifest["validation"]
    found = {key: value for key, value in known.items() if key != "data_docs"}
    judged = sum(life.number == version.number for life in lives)
    if "rows" in found:
        found["rows"] = max(0, found["rows"] - judged)
    if "warnings" in found:
        found["warnings"] = [warning | {"text": _text(warning)} for warning in found["warnings"]]
    return found


def _text(warning: Mapping[str, Any]) -> str:
    if warning["rule"] in _FIGURES:
        return f"{warning['field']}: differs from the version before ({warning['rule']})"
    return str(warning["text"]).partition(OBSERVED)[0]


def without_ids(manifest: dict[str, Any], ids: frozenset[str]) -> dict[str, Any]:
    """Manifest whose warnings and leaks do not name erased rows."""
    found = dict(manifest)
    if warnings := manifest["validation"].get("warnings"):
        told = [_without_id(warning, ids) for warning in warnings]
        found["validation"] = manifest["validation"] | {"warnings": told}
    if leaks := manifest.get("leaks"):
        found["leaks"] = {
            name: _without_pairs(told, ids) if isinstance(told, list) else told
            for name, told in leaks.items()
        }
    return found


def _without_id(warning: Mapping[str, Any], ids: frozenset[str]) -> dict[str, Any]:
    kept = [name for name in warning["ids"] if name not in ids]
    return {**warning, "ids": kept, "rows": max(0, warning["rows"] - len(warning["ids"]) + len(kept))}


def _without_pairs(leaks: Sequence[Mapping[str, Any]], ids: frozenset[str]) -> list[dict[str, Any]]:
    """Leaks without pairs of erased rows, and without those that had no other."""
    found = []
    for leak in leaks:
        kept = [pair for pair in leak["pairs"] if ids.isdisjoint(pair)]
        gone = [pair for pair in leak["pairs"] if not ids.isdisjoint(pair)]
        ours, theirs = (len({pair[side] for pair in gone} - {pair[side] for pair in kept}) for side in (0, 1))
        if not gone or leak["rows"] > ours:
            counts = {"rows": leak["rows"] - ours, "others": max(0, leak["others"] - theirs)}
            found.append({**leak, **counts, "pairs": kept})
    return found
