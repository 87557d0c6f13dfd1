"""Data of a running service as pandas frames, for notebooks and tests.

import outrider

service = outrider.connect()  # finds OUTRIDER_URL and OUTRIDER_KEY
service.flags(level="critical")
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa

from .assertions import Batch
from .commands import api
from .commands.tables import from_ipc
from .dataops.loaders.frames import frame_of

Level = Literal["info", "warning", "critical"]
LEVELS = pd.CategoricalDtype(["info", "warning", "critical"], ordered=True)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_MICROSECONDS = {"ts_us", "suspended_until_us"}  # other columns in µs are durations
_SAID = {"predicted", "label", "record_id", "entity", "slice", "note", "description"}  # somebody's own texts
_PAGE = 1000
_REQUESTS = 100_000
_FLAG: dict[str, Any] = {
    **dict.fromkeys(("id", "model", "record_id", "assertion", "revision", "slot", "version"), "str"),
    "severity": "float64",
    "level": LEVELS,
    "evidence": "object",
    "ts": "datetime64[us, UTC]",
    **dict.fromkeys(("entity", "slice", "predicted", "label", "label_source"), "str"),
    **dict.fromkeys(("by_replica", "review", "model_is_wrong"), "boolean"),
    "permalink": "str",
}
"""Columns where there is no flag, so that what is done with a frame of flags can be done with none."""
_STREAMS = 10_000
_SHARE = ("share", "low", "high", "flagged", "seen")
_SERIES_KEY = ("measure", "statistic", "unit", "name", "version", "slice")
_REQUEST = ("record_id", "model", "policy", "reason", "round", "created", "is_audit", "is_labelled")


def connect(url: str | None = None, key: str | None = None) -> "Connection":
    """Connection to a service.

    Parameters
    ----------
    url
        Default ``OUTRIDER_URL``, else the service that runs on the data folder of the ``outrider.toml`` here,
        else its ``server.port``.
    key
        Default ``OUTRIDER_KEY``, else the file ``OUTRIDER_KEY_FILE``, else the key in that data folder.

    Raises
    ------
    ServerError
        If no service is found, or the key cannot be read.
    ConfigError
        If ``url`` is no http or https address, or the configuration cannot be read.
    """
    return Connection(api.connect(url=url, key=key))


class Connection:
    """Reads from one service; every answer is a frame of its own.

    ``model`` may be left out where the service has one model. Times are UTC (``datetime64[us, UTC]``).
    """

    def __init__(self, service: api.Api) -> None:
        self._api = service

    def __repr__(self) -> str:
        return f"Connection({self.url!r})"

    @property
    def url(self) -> str:
        """Address of the service."""
        return self._api.url

    def models(self) -> pd.DataFrame:
        """Every version of every model, with its status."""
        return _frame(self._api.get("/v1/models")["models"])

    def flags(
        self,
        model: str | None = None,
        *,
        assertion: str | None = None,
        slot: str | None = None,
        level: Level | None = None,
        reviewed: bool | None = None,
        limit: int | None = 10_000,
    ) -> pd.DataFrame:
        """Flags, newest first, with prediction, label and review of each.

        Parameters
        ----------
        slot
            ``champion``, or the version of a challenger.
        limit
            At most so many; None for all.

        Returns
        -------
        pandas.DataFrame
            ``level`` is an ordered category, ``by_replica``, ``review`` and ``model_is_wrong`` are nullable,
            ``permalink`` is the record's page.
        """
        name = api.one_model(self._api, model)
        query = {"model": name, "assertion": assertion, "slot": slot, "level": level}
        if reviewed is not None:
            query["reviewed"] = "true" if reviewed else "false"
        frame = _frame(self._pages("/v1/flags", "flags", query, limit))
        if frame.empty:
            return pd.DataFrame({column: pd.Series(dtype=kind) for column, kind in _FLAG.items()})
        frame["level"] = frame["level"].astype(LEVELS)
        for column in ("by_replica", "review", "model_is_wrong"):
            frame[column] = frame[column].astype("boolean")
        frame["permalink"] = [self._page(name, "records", key) for key in frame["record_id"]]
        return frame.drop(columns=["seq", "row"])

    def records(self, model: str | None = None, *, after: int = 0, limit: int | None = None) -> pd.DataFrame:
        """Records as stored in the journal, oldest first.

        Parameters
        ----------
        after
            Continue there: ``frame.attrs["after"]`` of the frame before.
        limit
            Stop behind the block in which so many are reached; None for all.

        Returns
        -------
        pandas.DataFrame
            Columns under their full names (``inputs.age``); those that a block lacks are missing there.
        """
        name = api.one_model(self._api, model)
        frames: list[pd.DataFrame] = []
        while limit is None or sum(map(len, frames)) < limit:
            body, headers = self._api.get_page("/v1/records", model=name, after=after)
            after = int(headers["x-outrider-next"])
            if not body:
                break
            frames.append(frame_of(Batch.from_ipc(body)))
        found = _joined(frames)
        if len(found):
            found["permalink"] = [self._page(name, "records", key) for key in found["id"]]
        found.attrs["after"] = after
        return found

    def record(self, record_id: str, model: str | None = None) -> dict[str, Any]:
        """Record with payload, flags, labels, live tests and dataset versions."""
        name = api.one_model(self._api, model)
        found: dict[str, Any] = self._api.get(f"/v1/records/{name}/{record_id}")
        return found

    def datasets(self, model: str | None = None) -> pd.DataFrame:
        """Every version of every dataset."""
        return _frame(self._api.get("/v1/datasets", model=model)["datasets"])

    def dataset(
        self,
        name: str,
        version: int | str = "newest",
        *,
        part: Literal["train", "held_out"] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Rows of a dataset version.

        Parameters
        ----------
        version
            Number, tag, digest, or time such as ``2026-11-01T12:00`` (UTC): the newest version of then.
        columns
            The only ones to read, under their full names.
        """
        rows = self._rows(name, version, part, columns)
        return frame_of(Batch.from_arrow(rows)).filter(rows.column_names)

    def dataset_batch(
        self,
        name: str,
        version: int | str = "newest",
        *,
        part: Literal["train", "held_out"] | None = None,
    ) -> Batch:
        """Dataset version's rows as a Batch, for behavioral tests and assertions."""
        return Batch.from_arrow(self._rows(name, version, part))

    def _rows(
        self, name: str, version: int | str, part: str | None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        path = f"/v1/datasets/{name}/versions/{version}/rows"
        return from_ipc(self._api.get_bytes(path, part=part, column=None if columns is None else [*columns]))

    def assertions(self, model: str | None = None) -> pd.DataFrame:
        """Assertions and live tests with counts, rates, precision and cost."""
        name = api.one_model(self._api, model)
        return _frame(self._api.get("/v1/assertions", model=name)["assertions"])

    def profile(
        self,
        model: str | None = None,
        *,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        version: str | None = None,
        slot: str | None = None,
        slice: str | None = None,
    ) -> pd.DataFrame:
        """Columns of stored records over a range, one row each.

        Parameters
        ----------
        since, until
            Time with its zone, ISO 8601; all that is kept by default.
        slot
            Version of a challenger whose answers are meant; the champion's by default.
        slice
            Value of ``slice_by``.

        Returns
        -------
        pandas.DataFrame
            By column name; shares in [0, 1], ``quantiles``, ``bins`` and ``categories`` as in the API.
            ``attrs`` has records, range, versions and what the bins are of.
        """
        name = api.one_model(self._api, model)
        begin, end = (one.isoformat() if isinstance(one, datetime) else one for one in (since, until))
        found = self._api.get(
            f"/v1/models/{name}/profile", since=begin, until=end, version=version, slot=slot, slice=slice
        )
        frame = pd.DataFrame(found.pop("columns"))
        frame.attrs = found
        return frame if frame.empty else frame.set_index("name")

    def drift(
        self,
        model: str | None = None,
        *,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        reference: str = "24h",
        version: str | None = None,
        slice: str | None = None,
    ) -> pd.DataFrame:
        """Columns of stored records that drift from a reference, worst first.

        Parameters
        ----------
        since, until
            Current window, times with their zone, ISO 8601; the last hour by default.
        reference
            ``24h``, ``7d``: so long before it; ``SINCE..UNTIL``; ``dataset``: what the champion learned from.
        version, slice
            Judged version, and value of ``slice_by``, of both windows.

        Returns
        -------
        pandas.DataFrame
            By column name: ``status``, ``words``, ``distance``, statistics, ``problems``, ``changes``,
            ``distribution`` as in the API. ``attrs`` has the verdict and both windows.
        """
        name = api.one_model(self._api, model)
        begin, end = (one.isoformat() if isinstance(one, datetime) else one for one in (since, until))
        found = self._api.get(
            f"/v1/models/{name}/drift",
            since=begin, until=end, reference=reference, version=version, slice=slice,
        )  # fmt: skip
        rows = [_drift_row(each) for each in found.pop("columns")]
        frame = pd.DataFrame(rows)
        frame.attrs = found
        return frame if frame.empty else frame.set_index("column")

    def label_requests(
        self, model: str | None = None, *, status: Literal["open", "labelled", "all"] = "open"
    ) -> pd.DataFrame:
        """Records of the label queue, in the order of their choice."""
        name = api.one_model(self._api, model)
        found = self._api.get("/v1/label-requests", model=name, status=status, limit=_REQUESTS)
        return _frame(found["requests"]) if found["requests"] else pd.DataFrame(columns=[*_REQUEST])

    def incidents(
        self,
        model: str | None = None,
        *,
        status: Literal["current", "open", "acknowledged", "muted", "resolved", "all"] = "current",
        assertion: str | None = None,
    ) -> pd.DataFrame:
        """Incidents, newest first."""
        query = {"model": model, "status": status, "assertion": assertion, "limit": _PAGE}
        return _frame(self._api.get("/v1/incidents", **query)["incidents"])

    def alarms(self, model: str | None = None) -> pd.DataFrame:
        """Watched streams, the nearest to an alarm first.

        Returns
        -------
        pandas.DataFrame
            ``kind``, ``name``, ``slice`` (None for all records), ``level``, ``status``, shares before and in
            the last hour with their intervals (``before_share``, ``now_low`` …), ``evidence`` and ``needed``
            as odds to 1, ``nearness``, ``alpha``, ``smallest_share``, ``incident``, ``text``. ``attrs`` has
            the sentence and the counts by status.
        """
        name = api.one_model(self._api, model)
        found = self._api.get(f"/v1/models/{name}/alarms", limit=_STREAMS)
        rows = [
            {key: value for key, value in each.items() if key not in ("before", "now")}
            | {f"{when}_{key}": (each[when] or {}).get(key) for when in ("before", "now") for key in _SHARE}
            for each in found.pop("streams")
        ]
        frame = _frame(rows)
        frame.attrs = found
        return frame

    def series(
        self,
        model: str | None = None,
        *,
        measure: Sequence[str] | None = None,
        name: str | None = None,
        version: str | None = None,
        slice: str | None = None,
        by: Literal["slice"] | None = None,
        since: str | None = None,
        until: str | None = None,
        step: str | None = None,
    ) -> pd.DataFrame:
        """Figures over time, a row per step, series and judged version.

        Parameters
        ----------
        measure
            ``records``, ``flags``, ``live_tests``, ``latency`` …; None for all.
        since, until
            ISO 8601; default the last day of records.
        step
            ``5m``, ``1h``, ``1d`` …; default what fits.

        Returns
        -------
        pandas.DataFrame
            ``start``, ``measure``, ``statistic``, ``unit``, ``name``, ``version``, ``slice``, ``value``,
            ``low``, ``high``, ``records``, ``method``; steps without any record are left out.
            Events stand in ``attrs["events"]``.
        """
        cut = {"version": version, "slice": slice, "by": by, "since": since, "until": until, "step": step}
        return self._over_time("series", model, {"measure": measure, "name": name, **cut})

    def performance(
        self,
        model: str | None = None,
        *,
        version: str | None = None,
        slice: str | None = None,
        by: Literal["slice"] | None = None,
        since: str | None = None,
        until: str | None = None,
        step: str | None = None,
    ) -> pd.DataFrame:
        """Performance over time, as :meth:`series` gives figures."""
        cut = {"version": version, "slice": slice, "by": by, "since": since, "until": until, "step": step}
        return self._over_time("performance", model, cut)

    def fairness(
        self,
        model: str | None = None,
        *,
        by: str | Sequence[str] | None = None,
        positive: str = "1",
        version: str | None = None,
        since: str | None = None,
        until: str | None = None,
        step: str | None = None,
    ) -> pd.DataFrame:
        """Rates of groups and their gaps over time, as :meth:`series` gives figures.

        Parameters
        ----------
        by
            A grouping of ``group_by``: its column, or its columns; the first by default.
        positive
            The answer that is a selection.

        Returns
        -------
        pandas.DataFrame
            As of :meth:`series`: ``statistic`` is ``selection_rate``, ``tpr`` … of the group in ``name``, or
            ``selection_rate_gap``, ``selection_rate_ratio`` … of all. ``attrs`` has ``groups`` and ``gaps``
            of the whole range, of ``version``.
        """
        columns = [by] if isinstance(by, str) else by
        found = self._api.get(
            "/v1/fairness", model=api.one_model(self._api, model), by=columns,
            positive=positive, version=version, since=since, until=until, step=step,
        )  # fmt: skip
        frame = _series_frame(found["over_time"])
        frame.attrs |= {name: found[name] for name in ("groups", "gaps", "version")}
        return frame

    def _over_time(self, path: str, model: str | None, query: Mapping[str, Any]) -> pd.DataFrame:
        name = api.one_model(self._api, model)
        return _series_frame(self._api.get(f"/v1/models/{name}/{path}", **query))

    def outcomes(self, model: str | None = None) -> pd.DataFrame:
        """Outcomes by behavioral test and model version, newest version first."""
        name = api.one_model(self._api, model)
        rows: list[Mapping[str, Any]] = []
        skip = 0
        while True:
            found = self._api.get(f"/v1/suites/{name}/matrix", skip=skip, columns=50)
            rows += _outcome_rows(found)
            skip += len(found["versions"])
            if not found["older"] or not found["versions"]:
                return _frame(rows)

    def _pages(
        self, path: str, key: str, query: Mapping[str, object], limit: int | None
    ) -> Iterator[Mapping[str, Any]]:
        after, left = None, limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            page = self._api.get(path, limit=size, after=after, **query)
            yield from page[key]
            after = page["after"]
            if after is None:
                return
            left = None if left is None else left - len(page[key])

    def _page(self, model: str, *parts: str) -> str:
        return "/".join([self.url, "m", *(quote(part, safe="") for part in (model, *parts))])


def _series_frame(found: Mapping[str, Any]) -> pd.DataFrame:
    start = pd.to_datetime(pd.Series(found["start"], dtype="str"), utc=True, format="ISO8601")
    parts = [
        pd.DataFrame(
            {"start": start.astype("datetime64[us, UTC]")}
            | {name: row[name] for name in _SERIES_KEY}
            | {name: pd.Series(row[name], dtype="float64") for name in ("value", "low", "high")}
            | {"records": row["records"], "method": row["method"]}
        ).dropna(subset="value")
        for row in found["series"]
    ]
    columns = ["start", *_SERIES_KEY, "value", "low", "high", "records", "method"]
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
    frame.attrs["events"] = found["events"]
    return frame


def _drift_row(column: Mapping[str, Any]) -> dict[str, Any]:
    shapes = [each["distance"] for each in column["changes"] if each["change"] == "shape"]
    own = {name: value for name, value in column.items() if name != "statistics"}
    return {**own, "distance": shapes[0] if shapes else None, **column["statistics"]}


def _outcome_rows(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for row in found["rows"]:
        test = {name: row[name] for name in ("suite", "test", "capability", "kind", "description")}
        for version, cell in row["cells"].items():
            if cell["outcome"] is not None:
                change = {f"change_{name}": value for name, value in (cell["change"] or {}).items()}
                yield {"version": version, **test, **cell["outcome"], **change}


def _frame(rows: Iterator[Mapping[str, Any]] | Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of JSON with times as times, and texts as pandas strings."""
    frame = pd.DataFrame(list(rows))
    for column in frame.columns:
        if column in _MICROSECONDS:
            frame[column] = _times(frame[column], has_zero=column == "ts_us")
        elif column not in _SAID and _are_times(frame[column]):
            times = pd.to_datetime(frame[column], utc=True, format="ISO8601")
            frame[column] = times.astype("datetime64[us, UTC]")
    return frame.rename(columns={name: name.removesuffix("_us") for name in _MICROSECONDS})


def _times(column: "pd.Series[Any]", *, has_zero: bool) -> "pd.Series[Any]":
    """Microseconds since 1970 as times of any year; without ``has_zero`` what never happened is NaT."""
    us = column.fillna(0).to_numpy(dtype=np.int64)
    times = us.astype("datetime64[us]")
    if not has_zero:
        times[us <= 0] = np.datetime64("NaT")
    return pd.Series(times, index=column.index).dt.tz_localize("UTC")


def _are_times(column: "pd.Series[Any]") -> bool:
    """True where all values are times as the API writes them; None is the time of no event."""
    known = column.dropna()
    return len(known) > 0 and all(isinstance(each, str) and _TIME.fullmatch(each) for each in known)


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    if not frames:
        return pd.DataFrame()
    # An integer column that one block lacks must not become a float.
    whole = [
        name for name in dict.fromkeys(c for f in frames for c in f) if any(name not in f for f in frames)
    ]
    given = [
        frame.astype({name: "Int64" for name in whole if name in frame and frame[name].dtype.kind in "iu"})
        for frame in frames
    ]
    return pd.concat(given, ignore_index=True)
