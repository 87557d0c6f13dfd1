"""Reading from a service, without one; with one: tests/end_to_end/test_notebooks.py."""

from datetime import UTC, datetime
from typing import Any

from outrider.commands.api import Api
from outrider.connection import LEVELS, Connection


class Quiet(Api):
    """A service in which nothing fired."""

    def get(self, path: str, **query: object) -> Any:
        assert path == "/v1/flags"
        return {"flags": [], "after": None}


def test_no_flags_are_a_frame_with_the_columns_of_flags() -> None:
    flags = Connection(Quiet("http://nowhere", None)).flags("m")
    assert len(flags) == 0
    assert flags[["ts", "record_id", "assertion", "severity", "permalink"]].empty
    assert flags["level"].dtype == LEVELS
    assert flags["review"].dtype == flags["model_is_wrong"].dtype == "boolean"
    assert flags.groupby([flags["ts"].dt.date, "assertion"], observed=True).size().empty


class Profiled(Api):
    """A service with one column."""

    def get(self, path: str, **query: object) -> Any:
        assert path == "/v1/models/m/profile"
        assert query["since"] == "2026-01-01T00:00:00+00:00"
        return {"records": 7, "columns": [{"name": "inputs.age", "nulls": 0.5}]}


class Drifting(Api):
    """A service with one column that drifts."""

    def get(self, path: str, **query: object) -> Any:
        assert path == "/v1/models/m/drift"
        assert query["reference"] == "dataset"
        shape = {"change": "shape", "distance": 0.4}
        column = {"column": "inputs.age", "status": "drift", "changes": [shape], "statistics": {"psi": 1.5}}
        return {"sentence": "1 of 1 columns drift", "columns": [column]}


def test_drift_is_a_frame_by_column_name() -> None:
    frame = Connection(Drifting("http://nowhere", None)).drift("m", reference="dataset")
    assert frame[["status", "distance", "psi"]].to_dict("index") == {
        "inputs.age": {"status": "drift", "distance": 0.4, "psi": 1.5}
    }
    assert frame.attrs == {"sentence": "1 of 1 columns drift"}


def test_profile_is_a_frame_by_column_name() -> None:
    frame = Connection(Profiled("http://nowhere", None)).profile("m", since=datetime(2026, 1, 1, tzinfo=UTC))
    assert frame.loc["inputs.age", "nulls"] == 0.5
    assert frame.attrs["records"] == 7


class Watching(Api):
    """A service with two watched streams."""

    def get(self, path: str, **query: object) -> Any:
        assert path == "/v1/models/m/alarms"
        share = {"share": 0.1, "low": 0.05, "high": 0.2, "flagged": 10, "seen": 100}
        one = {"kind": "flags", "name": "x", "slice": None, "before": None, "now": share, "nearness": 0.4}
        return {"sentence": "no incident is open", "streams": [one, one | {"slice": "a", "now": None}]}


def test_alarms_are_a_frame_with_their_shares_in_columns() -> None:
    frame = Connection(Watching("http://nowhere", None)).alarms("m")
    assert frame["now_share"].tolist()[0] == 0.1
    assert frame["now_seen"].isna().tolist() == [False, True]
    assert frame["before_share"].isna().all()
    assert frame.attrs == {"sentence": "no incident is open"}
