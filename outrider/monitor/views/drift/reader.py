"""Drift of a model's newest traffic, decided on stored profiles.

Run as ``python -m`` where much is to be read, apart from intake's process.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from sqlalchemy import Connection, Engine
from typing_extensions import TypedDict

from outrider.assertions.drift import DriftReport, profile_drift
from outrider.assertions.drift.pictures import Picture
from outrider.assertions.drift.sampling import FEWEST_BLOCKS, block_starts
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.assertions.times import utc, utc_text
from outrider.dataops.ledger.profiles import LATER_ROWS
from outrider.dataops.ledger.stored_profiles import (
    ProfileRange,
    count_windows,
    newest_end,
    newest_layout,
    read_blocks,
    read_profile,
)
from outrider.dataops.loaders.training_rows import training_rows
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, open_database
from outrider.monitor.http.declared import FieldsOf
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.process.helper import begin_helping
from outrider.monitor.queries.long_reads import LongReads
from outrider.monitor.views.series.span import step_us
from outrider.monitor.views.service import Service

MODULE = "outrider.monitor.views.drift.reader"
DATASET, DEFAULT = "dataset", "24h"
HOUR_US, MINUTE_US = 3_600_000_000, 60_000_000
MOST_HERE = 500
"""Stored windows that are read in intake's process: half a second."""
LIMIT_S = 120.0
_FAR_US = 1 << 62


class DriftChange(TypedDict):
    """Change of a column.

    ``reference`` and ``current`` are shares, null for the shape of a distribution.
    """

    change: str
    drifts: bool
    distance: float | None
    floor: float | None
    p_value: float | None
    adjusted_p_value: float | None
    reference: float | None
    current: float | None


DriftDistribution: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        Picture,
        "DriftDistribution",
        about="Shares of both windows in the same bars.\n\nOf ``names``, or between ``edges``.",
    ),
]


class DriftingColumn(TypedDict):
    """Verdict on a column: ``drift``, ``undecided`` or ``no drift shown``."""

    column: str
    role: str
    kind: str
    status: str
    words: str
    problems: list[str]
    changes: list[DriftChange]
    statistics: dict[str, float | None]
    dispersion: float | None
    smallest_found: float | None
    distribution: DriftDistribution | None


class DriftWindow(TypedDict):
    """Records of a window; ``name`` says which."""

    name: str
    records: int
    effective: float | None
    since: str | None
    until: str | None
    versions: list[str]


class DriftFacts(TypedDict):
    """Columns of current traffic against a reference, worst first."""

    sentence: str
    is_drift: bool
    is_decided: bool
    alpha: float
    least_distance: float
    least_share: float
    reference: DriftWindow
    current: DriftWindow
    problems: list[str]
    note: str
    ignored: dict[str, str]
    columns: list[DriftingColumn]


@dataclass(frozen=True, slots=True)
class DriftRequest:
    """Windows to compare: by default the last hour with profiles.

    ``reference`` is ``dataset``, ``24h`` or ``7d`` before the current window, or ``SINCE..UNTIL``.
    """

    model: str
    since_us: int | None = None
    until_us: int | None = None
    reference: str = DEFAULT
    version: str | None = None
    slice: str | None = None


class DriftReader:
    """Reads of drift: few windows here, more in a process of its own, one at a time."""

    def __init__(self, service: Service, *, most_here: int = MOST_HERE) -> None:
        self._engine, self._settings = service.engine, service.settings
        self._most_here = most_here
        self._apart = LongReads(
            MODULE, busy="drift is being read already: wait for it", failed="no drift", limit_s=LIMIT_S
        )

    def read(self, wanted: DriftRequest) -> DriftFacts:
        """Drift of a model's columns.

        ProblemError 422 for an impossible window, 409 while another long read runs, 503 without an
        answer.
        """
        try:
            with self._engine.connect() as connection:
                both = _windows(connection, wanted)
                ranges = [both.current] + ([] if both.reference is None else [both.reference])
                windows = sum(count_windows(connection, wanted.model, each) for each in ranges)
                if both.reference is not None and windows <= self._most_here:
                    return stored_drift(connection, self._objects, wanted)
        except ValueError as error:
            raise _refused(str(error)) from error
        return self._asked(wanted)

    @property
    def _objects(self) -> Path:
        return self._settings.data_folder / "objects"

    def _asked(self, wanted: DriftRequest) -> DriftFacts:
        found = self._apart.ask([self._settings.database_url, str(self._objects), json.dumps(asdict(wanted))])
        if "refused" in found:
            raise _refused(found["refused"])
        facts: DriftFacts = found
        return facts


def _refused(text: str) -> ProblemError:
    field, _, reason = text.partition(": ")
    return ProblemError(problem(422, reason, field=field))


@dataclass(frozen=True, slots=True)
class _Windows:
    current: ProfileRange
    reference: ProfileRange | None


def _windows(connection: Connection, wanted: DriftRequest) -> _Windows:
    until, since = wanted.until_us, wanted.since_us
    if until is None:
        until = newest_end(connection, wanted.model) or now_us()
        until = max(until, since + MINUTE_US) if since is not None else until
    since = until - HOUR_US if since is None else since
    if since >= until:
        raise ValueError(f"since: a time before until expected, got {utc_text(since)} and {utc_text(until)}")
    current = ProfileRange(since_us=since, until_us=until, version=wanted.version, slice=wanted.slice)
    if wanted.reference == DATASET:
        if wanted.slice is not None or wanted.version is not None:
            raise ValueError(
                "reference: a span of traffic expected beside slice and version, which a dataset has not"
            )
        return _Windows(current, None)
    begin, end = _span(wanted.reference, since)
    if begin < until and since < end:
        raise ValueError(
            f"reference: other times than those of the current window expected, got {wanted.reference!r}"
        )
    own = ProfileRange(since_us=begin, until_us=end, version=wanted.version, slice=wanted.slice)
    return _Windows(current, own)


def _span(text: str, before_us: int) -> tuple[int, int]:
    one, is_span, two = text.partition("..")
    try:
        if not is_span:
            return max(before_us - step_us(text), -_FAR_US), before_us
        begin, end = time_us(one), time_us(two)
    except ValueError:
        expected = "dataset, a time such as 24h or 7d, or SINCE..UNTIL in ISO 8601 with a zone"
        raise ValueError(f"reference: {expected} expected, got {text!r}") from None
    if begin >= end:
        raise ValueError(f"reference: a begin before its end expected, got {text!r}")
    return begin, end


def time_us(text: str) -> int:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(text)
    return int(found.timestamp() * 1e6)


def stored_drift(connection: Connection, objects: Path, wanted: DriftRequest) -> DriftFacts:
    """Drift of a model's columns; the text of a ValueError begins with the parameter's name."""
    both = _windows(connection, wanted)
    found = read_profile(connection, wanted.model, both.current)
    layout = newest_layout(connection, wanted.model) or ProfileLayout(())
    current = Profile.empty(layout) if found is None else found.profile
    now = _window(both.current, () if found is None else found.versions)
    if both.reference is None:
        before, parts = _of_dataset(connection.engine, objects, wanted.model, current.layout)
        matched = ""
    else:
        blocks, matched = read_blocks(
            connection, wanted.model, both.reference, fewest=FEWEST_BLOCKS, like=both.current
        )
        versions = {version for block in blocks for version in block.versions}
        before, parts = _window(both.reference, sorted(versions)), [block.profile for block in blocks]
    return _facts(profile_drift(parts, current, matched=matched), before, now)


def _of_dataset(
    engine: Engine, objects: Path, model: str, layout: ProfileLayout
) -> tuple[DriftWindow, list[Profile]]:
    found = training_rows(engine, LocalObjects(objects), model, least=LATER_ROWS)
    if found is None:
        raise ValueError(
            f"reference: a dataset version with {LATER_ROWS} rows or more expected, found none that the "
            f"champion of {model} learned from"
        )
    name, rows = found
    starts = [*block_starts(rows.rows, float(rows.rows)).tolist(), rows.rows]
    parts = [Profile.of(rows.slice(begin, end - begin), layout) for begin, end in pairwise(starts)]
    window: DriftWindow = {
        "name": name, "records": 0, "effective": None, "since": None, "until": None, "versions": [],
    }  # fmt: skip
    return window, parts


def _window(span: ProfileRange, versions: Sequence[str]) -> DriftWindow:
    return {
        "name": f"{_minute(span.since_us)} to {_minute(span.until_us)} UTC",
        "records": 0,
        "effective": None,
        "since": utc_text(span.since_us),
        "until": utc_text(span.until_us),
        "versions": [one for one in versions if one],
    }


def _minute(us: int) -> str:
    time = utc(us)
    return utc_text(us) if time is None else time.strftime("%Y-%m-%d %H:%M")


def _facts(report: DriftReport, before: DriftWindow, now: DriftWindow) -> DriftFacts:
    told = report.to_dict()
    differ = len({*before["versions"], *now["versions"]}) > 1 and bool(before["versions"])
    facts: Any = {
        key: told[key]
        for key in ("sentence", "is_drift", "is_decided", "alpha", "least_distance", "least_share")
    }
    facts["reference"] = before | told["reference"]
    facts["current"] = now | told["current"]
    facts |= {key: told[key] for key in ("problems", "ignored", "columns")}
    facts["note"] = _versions(before, now) if differ else ""
    found: DriftFacts = facts
    return found


def _versions(before: DriftWindow, now: DriftWindow) -> str:
    one, two = (", ".join(each["versions"]) for each in (before, now))
    return f"outputs are of version {one} in the reference and of {two} in the current window"


def main() -> None:
    parser = argparse.ArgumentParser(prog=MODULE)
    parser.add_argument("database")
    parser.add_argument("objects", type=Path)
    parser.add_argument("asked", type=json.loads)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()
    begin_helping(options.parent)
    with open_database(options.database).connect() as connection:
        try:
            found: Any = stored_drift(connection, options.objects, DriftRequest(**options.asked))
        except ValueError as error:
            found = {"refused": str(error)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
