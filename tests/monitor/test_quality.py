"""The figures of an assertion agree with slow loops over the tables; people's actions reach them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from outrider.assertions.flags.quality import Rate, SuspensionRule
from outrider.commands.assertion_quality import rate_text
from outrider.dataops.alarms import stored_incidents
from outrider.dataops.flags import quality, reviews
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import now_us, write
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import WebhookSettings
from tests.asgi import get
from tests.declared_bodies import check_body
from tests.monitor.services import every_app

from .web.conftest import make_app
from .web.sample import MODEL, Sample, add, build

RULE = SuspensionRule()


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Sample]:
    made = build(tmp_path, blocks=24)
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture
def app(sample: Sample, tmp_path: Path) -> FastAPI:
    settings = Settings(
        base=tmp_path,
        models={MODEL: ModelSettings(slice_by="device")},
        webhooks=(WebhookSettings(url="http://127.0.0.1:9/"),),
    )
    return every_app(sample.engine, sample.journal, settings)


def ask(app: FastAPI, method: str, url: str, json: object = None) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.request(method, f"http://test{url}", json=json)

    answer = asyncio.run(send())
    check_body(app, answer)
    return answer


def rows(sample: Sample, sql: str) -> list[Any]:
    with sample.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(sql))]


def read(sample: Sample, name: str) -> quality.AssertionQuality:
    with sample.engine.connect() as connection:
        return quality.read_quality(connection, MODEL, name, now_us=now_us(), rule=RULE)


def test_figures_agree_with_a_slow_loop(sample: Sample) -> None:
    name = "margin_is_wide"
    truth = dict(rows(sample, "SELECT record_id, value FROM label"))
    judged = {i: (p, s) for i, p, s in rows(sample, "SELECT id, predicted, slice FROM record")}
    fired = {r for (r,) in rows(sample, f"SELECT record_id FROM flag WHERE assertion = '{name}'")}
    wrong = {i for i in truth if truth[i] != judged[i][0]}
    found = read(sample, name)
    assert found.precision == Rate(len(fired & wrong), len(fired & truth.keys()))
    assert found.detection.coverage == Rate(len(fired & wrong), len(wrong))
    right = truth.keys() - wrong
    assert found.detection.false_failures == Rate(len(fired & right), len(right))
    assert found.detection.errors == Rate(len(wrong), len(truth))
    assert found.fire_rate == Rate(len(fired), sample.records)
    for part, rate in found.by_slice.items():
        inside = {i for i in fired & truth.keys() if judged[i][1] == part}
        assert rate == Rate(len(inside & wrong), len(inside))
    assert found.lead.episodes >= 1
    assert found.cost_us is None
    add_costs = {"cost_ns": 9_000_000, "judged": 3000}
    with write(sample.engine) as connection:
        for kind, value in add_costs.items():
            connection.execute(
                text("INSERT INTO counter VALUES (:m, 'champion', :n, :v)"),
                {"m": MODEL, "n": f"{kind}:{name}", "v": value},
            )
    assert read(sample, name).cost_us == 3.0


def test_overlaps_agree_with_a_slow_loop(sample: Sample) -> None:
    fired: dict[str, set[str]] = {}
    for name, record in rows(sample, "SELECT assertion, record_id FROM flag"):
        fired.setdefault(str(name), set()).add(str(record))
    with sample.engine.connect() as connection:
        pairs = quality.read_overlaps(connection, MODEL)
    for pair in pairs:
        both = fired[pair.a] & fired[pair.b]
        assert (pair.records_a, pair.records_b, pair.both) == (
            len(fired[pair.a]),
            len(fired[pair.b]),
            len(both),
        )
    assert {"margin_is_wide", "track_agrees"} in [{pair.a, pair.b} for pair in pairs]
    assert pairs == sorted(pairs, key=lambda pair: -pair.jaccard)


def test_a_review_outweighs_the_label_and_counts_without_one(sample: Sample) -> None:
    before = read(sample, "track_agrees").precision
    sql = (
        "SELECT f.id FROM flag f JOIN label l ON l.record_id = f.record_id WHERE f.assertion = 'track_agrees'"
    )
    labelled = [str(flag) for (flag,) in rows(sample, sql)]
    others = rows(sample, "SELECT id FROM flag WHERE assertion = 'track_agrees'")
    unlabelled = [str(flag) for (flag,) in others if flag not in labelled]
    with write(sample.engine) as connection:
        for flag in (labelled[0], unlabelled[0], unlabelled[1]):
            reviews.give(connection, flag, is_error=False, source="Ada", now_us=1)
        reviews.give(connection, unlabelled[1], is_error=True, source="Bob", now_us=2)
    after = read(sample, "track_agrees")
    assert after.reviewed == 3
    assert after.precision == Rate(before.hits - 1 + 1, before.trials + 2)
    with sample.engine.connect() as connection:
        newest = reviews.list_reviews(connection, model=MODEL, assertion="track_agrees")[0]
    assert (newest.flag_id, newest.is_error, newest.source) == (unlabelled[1], True, "Bob")


def test_another_revision_begins_anew(sample: Sample) -> None:
    with write(sample.engine) as connection:
        connection.execute(text("UPDATE assertion SET active = 0 WHERE name = 'track_agrees'"))
        add(
            connection,
            tables.AssertionRow,
            model=MODEL,
            name="track_agrees",
            revision="new",
            kind="assertion",
            level="critical",
            description="",
            owner="",
            active=True,
            suspended_until_us=0,
            first_seen_us=now_us(),
            first_seq=20,
        )
    found = read(sample, "track_agrees")
    assert (found.precision, found.fire_rate) == (Rate(0, 0), Rate(0, 0))
    seen = (
        "SELECT count(DISTINCT l.record_id) FROM label l JOIN record r ON r.id = l.record_id WHERE r.seq > 20"
    )
    assert found.detection.errors.trials == rows(sample, seen)[0][0]


def test_in_a_storm_an_absent_flag_says_nothing(sample: Sample) -> None:
    name = "margin_is_wide"
    before = read(sample, name).detection
    with write(sample.engine) as connection:
        connection.execute(text(f"UPDATE flag_count SET kept = flags - 1 WHERE assertion = '{name}'"))
    after = read(sample, name).detection
    assert after.errors.trials < before.errors.trials
    assert after.coverage.share == 1.0


def test_members_of_an_event_count_as_flagged_and_prove_it(sample: Sample) -> None:
    sql = (
        "SELECT r.id, r.seq FROM record r JOIN label l ON l.record_id = r.id "
        "WHERE l.value != r.predicted AND r.id NOT IN "
        "(SELECT record_id FROM flag WHERE assertion = 'inv_shift') LIMIT 1"
    )
    (missed, seq), *_ = rows(sample, sql)
    before = read(sample, "inv_shift")
    (flag, *_), *_ = rows(
        sample,
        "SELECT id FROM flag WHERE assertion = 'inv_shift' AND record_id NOT IN "
        "(SELECT record_id FROM label)",
    )
    with write(sample.engine) as connection:
        add(connection, tables.FlagRecord, flag_id=flag, record_id=missed, model=MODEL, seq=seq, row=0)
    after = read(sample, "inv_shift")
    assert after.precision == Rate(before.precision.hits + 1, before.precision.trials + 1)
    coverage = before.detection.coverage
    assert after.detection.coverage == Rate(coverage.hits + 1, coverage.trials)


def test_noise_is_proposed_and_never_suspended_silently(sample: Sample, app: FastAPI) -> None:
    flags = rows(sample, "SELECT id FROM flag WHERE assertion = 'no_bright_column'")
    for (flag,) in flags:
        answer = ask(app, "POST", "/v1/reviews", {"flag": flag, "is_error": False, "source": "Ada"})
        assert answer.status_code == 201
    url = f"/v1/assertions/{MODEL}/no_bright_column"
    shown = ask(app, "GET", url).json()["assertion"]
    assert shown["suspended_until"] is None
    assert shown["proposal"][0].startswith("precision 0 % (0 % to ")
    listed = {
        row["name"]: row for row in ask(app, "GET", f"/v1/assertions?model={MODEL}").json()["assertions"]
    }
    assert listed["no_bright_column"]["proposal"] == shown["proposal"]
    assert listed["track_agrees"]["proposal"] == []
    rests = ask(app, "POST", f"{url}/suspend", {"for_s": 3600, "reason": "noise"}).json()
    assert rests["suspension"] == "noise"
    shown = ask(app, "GET", url).json()["assertion"]
    assert (shown["suspended_until"], shown["suspension"]) == (rests["suspended_until"], "noise")
    assert shown["proposal"] == []
    assert ask(app, "POST", f"{url}/resume", {}).json()["suspended_until"] is None
    assert ask(app, "GET", url).json()["assertion"]["suspended_until"] is None
    forever = ask(app, "POST", f"{url}/suspend", {}).json()
    assert forever["suspended_until"].startswith("9999-12-31")
    for endless in ("1e999", 1e300):
        assert ask(app, "POST", f"{url}/suspend", {"for_s": endless}).status_code == 422
    both = {"for_s": 1, "until": "2030-01-01T00:00:00Z"}
    assert ask(app, "POST", f"{url}/suspend", both).status_code == 422
    assert ask(app, "POST", f"/v1/assertions/{MODEL}/none/suspend", {}).status_code == 404


def test_the_api_shows_overlaps_reviews_and_flags_that_wait_for_one(sample: Sample, app: FastAPI) -> None:
    detail = ask(app, "GET", f"/v1/assertions/{MODEL}/margin_is_wide").json()
    assert {pair["a"] for pair in detail["overlaps"]} == {"margin_is_wide"}
    assert len(ask(app, "GET", f"/v1/overlaps?model={MODEL}").json()["overlaps"]) >= 3
    waiting = f"/v1/flags?model={MODEL}&assertion=margin_is_wide&reviewed=false&limit=1000"
    before = ask(app, "GET", waiting).json()["flags"]
    flag = before[0]["id"]
    given = ask(app, "POST", "/v1/reviews", {"flag": flag, "is_error": True, "note": "blurred"})
    assert given.json()["note"] == "blurred"
    assert len(ask(app, "GET", waiting).json()["flags"]) == len(before) - 1
    done = ask(app, "GET", f"/v1/flags?model={MODEL}&reviewed=true").json()["flags"]
    assert [(row["id"], row["review"]) for row in done] == [(flag, True)]
    assert len(ask(app, "GET", f"/v1/reviews?model={MODEL}").json()["reviews"]) == 1
    assert ask(app, "POST", "/v1/reviews", {"flag": "none", "is_error": True}).status_code == 404
    assert ask(app, "GET", f"/v1/assertions/{MODEL}/none").status_code == 404


def test_incidents_are_acknowledged_muted_and_resolved_over_http(sample: Sample, app: FastAPI) -> None:
    current = ask(app, "GET", f"/v1/incidents?model={MODEL}").json()["incidents"]
    assert [(row["id"], row["status"]) for row in current] == [("inc_2", "open")]
    assert len(ask(app, "GET", "/v1/incidents?status=all").json()["incidents"]) == 2
    url = "/v1/incidents/inc_2"
    assert ask(app, "POST", url, {"action": "acknowledge", "note": "Ada"}).json()["status"] == "acknowledged"
    assert ask(app, "POST", url, {"action": "mute"}).status_code == 422
    past = {"action": "mute", "until": "2020-01-01T00:00:00Z"}
    assert ask(app, "POST", url, past).status_code == 422
    muted = ask(app, "POST", url, {"action": "mute", "for_s": 60}).json()
    assert (muted["status"], muted["note"]) == ("muted", "Ada")
    assert muted["muted_until"] > current[0]["opened"]
    assert ask(app, "POST", url, {"action": "resolve", "note": "fixed"}).json()["status"] == "resolved"
    assert ask(app, "POST", url, {"action": "acknowledge"}).status_code == 409
    assert ask(app, "POST", "/v1/incidents/none", {"action": "resolve"}).status_code == 404
    assert rows(sample, "SELECT event FROM outbox") == [("incident.resolved",)]
    with sample.engine.connect() as connection:
        assert stored_incidents.list_incidents(connection, now_us=0, model=MODEL, status="current") == []


def test_figures_say_when_they_are_weighted(sample: Sample, app: FastAPI) -> None:
    request = {"model": MODEL, "policy": "uniform", "reason": "margin_is_wide", "round": 1, "created_us": 1}
    with write(sample.engine) as connection:
        for position, (record,) in enumerate(rows(sample, "SELECT DISTINCT record_id FROM label")):
            more = {"record_id": record, "position": position, "population": 1000 - position, "floor": 1.0}
            add(connection, improvement_tables.LabelRequest, **request, **more, probability=0.002)
    found = ask(app, "GET", f"/v1/assertions/{MODEL}/margin_is_wide").json()["assertion"]["precision"]
    assert found["method"] == "weighted"
    assert found["basis"] == f"weighted, n {found['trials']}, effective n {found['effective']:.0f}"
    assert found["basis"] in rate_text(found)
    body = ask(app, "GET", f"/v1/overview?model={MODEL}").json()["models"][0]
    assert body["accuracy_of_all"]["method"] == "weighted"
    page = get(make_app(sample), f"/assertions/{MODEL}/margin_is_wide")
    assert found["basis"] in page.text
    overview = get(make_app(sample), f"/m/{MODEL}").text
    assert "weighted, n " in overview
