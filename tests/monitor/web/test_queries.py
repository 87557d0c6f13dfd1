"""The numbers on the page are those of the database, and each is read through an index."""

from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from sqlalchemy import Connection, event, select
from sqlalchemy.engine import Row

from outrider.dataops.state.database import now_us
from outrider.monitor.queries.queries import FlagView, flag, label, list_flags, read_record, record
from outrider.monitor.views.overview.reader import read_overview
from outrider.monitor.web.images import as_image, to_png
from tests.asgi import get

from .sample import HOSTILE, MODEL, Sample

BIG = ("record", "flag", "label", "live_answer", "dead_letter", "strike", "dataset_row")


def all_rows(connection: Connection, table: object) -> list[Row[tuple[object, ...]]]:
    return list(connection.execute(select(table)).all())  # type: ignore[call-overload]  # any table


def test_precision_and_accuracy_agree_with_a_slow_loop(sample: Sample) -> None:
    view = read_overview(sample.engine, MODEL, now_us=now_us())
    with sample.engine.connect() as connection:
        predicted = {row.id: (row.predicted, row.slice) for row in all_rows(connection, record)}
        truth = {row.record_id: row.value for row in all_rows(connection, label)}
        fired = {(row.assertion, row.record_id) for row in all_rows(connection, flag)}
    assert {row.name for row in view.assertions} == {name for name, _ in fired}
    for row in view.assertions:
        labelled = [identity for name, identity in fired if name == row.name and identity in truth]
        wrong = [identity for identity in labelled if truth[identity] != predicted[identity][0]]
        assert (row.precision.hits, row.precision.trials) == (len(wrong), len(labelled))
        assert row.flags["champion"] == len([name for name, _ in fired if name == row.name])
    for part, by_version in view.accuracy.items():
        inside = [i for i in truth if part in ("", predicted[i][1])]
        right = [i for i in inside if truth[i] == predicted[i][0]]
        assert (by_version["1"].hits, by_version["1"].trials) == (len(right), len(inside))


def test_the_latest_label_counts_and_all_are_kept(sample: Sample) -> None:
    with sample.engine.connect() as connection:
        some = all_rows(connection, label)[0]
    view = read_record(sample.engine, MODEL, some.record_id)
    assert view is not None
    assert view.labels[0].value == some.value
    assert view.flags == () or view.flags[0].label == some.value


@pytest.mark.parametrize(
    "filters",
    [{}, {"assertion": "track_agrees"}, {"slot": "champion"}, {"level": "info"}, {"reviewed": False}],
)
def test_pages_join_to_the_whole_list(sample: Sample, filters: dict[str, Any]) -> None:
    whole = list_flags(sample.engine, MODEL, limit=1000, **filters)
    joined: list[FlagView] = []
    after: str | None = None
    while True:
        page = list_flags(sample.engine, MODEL, limit=37, after=after, **filters)
        joined += page.flags
        after = page.after
        if after is None:
            break
    assert joined == list(whole.flags)
    assert whole.flags


def test_no_page_reads_a_big_table_from_end_to_end(app: FastAPI, sample: Sample) -> None:
    """SQLite's own plan of every statement that the pages run: a scan of a big table needs a LIMIT in it."""
    statements: list[tuple[str, object]] = []

    def note(
        _connection: object,
        _cursor: object,
        statement: str,
        parameters: object,
        _context: object,
        _many: bool,
    ) -> None:
        statements.append((statement, parameters))

    event.listen(sample.engine, "before_cursor_execute", note)
    try:
        pages = ("", "/flags", "/flags?level=info", "/lineage", "/datasets", "/retrains")
        for page in (*pages, "/records/card-00200-f0"):
            get(app, f"/m/{MODEL}{page}")
    finally:
        event.remove(sample.engine, "before_cursor_execute", note)
    reads = [
        (sql, values) for sql, values in statements if sql.lstrip().upper().startswith(("SELECT", "WITH"))
    ]
    assert len(reads) > 20
    with sample.engine.connect() as connection:
        for sql, values in reads:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).all()  # type: ignore[arg-type]
            if "flag.record_id IN" in sql:
                assert any("flag_of_record" in row[3] for row in plan), plan
            scanned = [row[3] for row in plan if row[3].startswith("SCAN")]
            for step in scanned:
                table = step.split()[1]
                assert table not in BIG or "LIMIT" in sql, f"{step} in {sql}"


def test_the_read_api_speaks_json(app: FastAPI) -> None:
    flags = get(app, f"/v1/flags?model={MODEL}&assertion=inv_shift&limit=2").json()
    assert len(flags["flags"]) == 2
    assert flags["flags"][0]["evidence"]["original"]["score"] == 0.71
    following = get(app, f"/v1/flags?model={MODEL}&assertion=inv_shift&limit=2&after={flags['after']}").json()
    assert following["flags"][0]["id"] not in {row["id"] for row in flags["flags"]}
    record_answer = get(app, f"/v1/records/{MODEL}/card-00200-f0").json()
    assert record_answer["record"]["outputs"]["label"] == int(record_answer["predicted"])
    assertions = get(app, f"/v1/assertions?model={MODEL}").json()["assertions"]
    assert 0 <= assertions[0]["precision"]["low"] <= assertions[0]["precision"]["share"] <= 1
    suites = get(app, f"/v1/suites?model={MODEL}").json()["suites"]
    assert suites[0]["live"][0]["failure"]["trials"] > 0
    overview = get(app, "/v1/overview").json()
    assert [view["model"] for view in overview["models"]] == [MODEL, "churn"]
    assert overview["processes"]["trainer"] is False


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/flags?model=nope", 404),
        (f"/v1/flags?model={MODEL}&after=zzz", 422),
        (f"/v1/records/{MODEL}/nope", 404),
        ("/v1/assertions?model=nope", 404),
    ],
)
def test_errors_are_problems(app: FastAPI, path: str, status: int) -> None:
    answer = get(app, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


def test_a_hostile_id_is_a_record_like_any_other(app: FastAPI, sample: Sample) -> None:
    view = read_record(sample.engine, MODEL, HOSTILE)
    assert view is not None
    assert {row.assertion for row in view.flags} >= {"track_agrees", "inv_shift"}


def test_pictures_keep_the_usual_scales() -> None:
    assert to_png(np.zeros((8, 8), dtype=np.float32)) == to_png(np.zeros((1, 8, 8)))
    assert to_png(np.full((8, 8), 0.5)) == to_png(np.full((8, 8), 127.6))
    colour = np.random.default_rng(0).random((3, 16, 12))
    assert to_png(colour) == to_png(colour.transpose(1, 2, 0))
    assert to_png(np.full((8, 8), np.nan))
    with pytest.raises(ValueError, match="an image"):
        to_png(np.zeros(64))
    assert as_image([1, 2, 3]) is None
    assert as_image([["a", "b"]] * 8) is None
    assert as_image([[0.0] * 8] * 8) is not None
