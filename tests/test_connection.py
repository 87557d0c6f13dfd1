"""Reading from a service, without one; with one: tests/end_to_end/test_notebooks.py."""

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
