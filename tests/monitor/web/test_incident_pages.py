"""Page of an incident, of every kind; the page of alarms; their forms."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import insert, select, update

from outrider.assertions.times import utc_text
from outrider.dataops.alarms.stored_incidents import get as stored
from outrider.dataops.models import registry
from outrider.dataops.state.database import write
from outrider.dataops.state.improvement_tables import ChampionChange, ModelVersion
from outrider.dataops.state.series_tables import FirstSeen
from outrider.dataops.state.tables import FlagCount, Incident, RecordCount, table_of
from tests.asgi import get, request
from tests.monitor.services import every_app

from .sample import HOSTILE, MODEL, Sample, build

MINUTE_US = 60_000_000
AGO_US = 2 * MINUTE_US
SHARES: dict[str, Any] = {
    when: {"share": share, "low": share / 2, "high": 2 * share, "flagged": 8, "seen": 200}
    for when, share in (("before", 0.012), ("now", 0.31))
}
GUARANTEE = {"alpha": 0.01, "horizon_s": 604_800.0}
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "flags": (
        {
            "assertion": "margin_is_wide", "slice": "till-2",
            "details": {
                **SHARES, "guarantee": GUARANTEE, "records": ["card-00030-f0", "gone"], "event": None,
                "explained_by": [{"assertion": "margin_is_wide", "slice": "till-2", **SHARES}],
                "action": "label",
            },
        },
        "margin_is_wide flags ",
    ),
    "critical": (
        {"kind": "flags", "level": "critical", "assertion": "track_agrees",
         "details": {"before": None, "now": None, "guarantee": None,
                     "explained_by": [{"assertion": "track_agrees", "slice": "a", "flags": 3}]}},
        "track_agrees has flagged 9 records of a since",
    ),
    "live_test": (
        {"assertion": "inv_shift", "note": "version 1 fails 40 of 200", "details": {"rate": 0.12}},
        "version 1 fails 40 of 200",
    ),
    "silence": (
        {"assertion": "records", "flags": 0, "note": "no records since 2026-01-05T10:00:00Z",
         "details": {"before": {"share": 0.98}, "now": {"share": 0.0, "seen": 14}, "explained_by": [],
                     "event": None, "records": [], "action": "check_sender", "guarantee": GUARANTEE}},
        "no records since 2026-01-05 10:00 UTC",
    ),
    "clock": ({"model": "", "assertion": "service clock", "note": "the clock was set"}, "the clock was set"),
    "event_time": ({"assertion": "event time", "note": "far ahead"}, "far ahead"),
    "version_mismatch": (
        {"assertion": "version mismatch", "note": "90 % version 1", "details": {"versions": {"1": 9}}},
        "90 % version 1",
    ),
    "drift": (
        {"assertion": "inputs.age", "level": "info", "flags": 0,
         "details": {"sentence": "inputs.age has moved up", "before": 31.0, "now": {"value": 43.5},
                     "explained_by": [{"column": "inputs.age", "before": 31.0, "now": 43.5},
                                      {"column": "inputs.pay", "sentence": "nulls", **SHARES,
                                       "now": {"share": 0.31, "seen": 1135.21}},
                                      ], "severity": "ticket", "reference": {"dataset": ""}}},
        "inputs.age has moved up",
    ),
    "performance": (
        {"assertion": "accuracy",
         "details": {"sentence": "version 1 is wrong more often", **SHARES, "error_bound": None,
                     "former": None,
                     "confused": [{"predicted": "cat", "label": "dog", "before": 0.01, "now": 0.09}],
                     "explained_by": [{"assertion": "loss", "slice": "till-1", **SHARES},
                                      {"version": "__other__", **SHARES}]}},
        "version 1 is wrong more often",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    made = build(tmp_path_factory.mktemp("incidents"), blocks=6)
    start = int(made.start.timestamp() * 1e6) - AGO_US
    at = utc_text(start + 9_000_000)
    with write(made.engine) as connection:
        for table in (RecordCount, FlagCount):  # of complete minutes
            connection.execute(update(table_of(table)).values(minute_us=table_of(table).c.minute_us - AGO_US))
        for name, (more, _) in KINDS.items():
            row: dict[str, Any] = {
                "id": f"i_{name}", "model": MODEL, "slice": "", "kind": name, "status": "open",
                "opened_us": start + 15_000_000, "last_flag_us": start + 15_000_000, "muted_until_us": 0,
                "resolved_us": None, "flags": 9, "level": "warning", "first_record": "", "note": "",
            }  # fmt: skip
            details = more.get("details", {})
            if "explained_by" in details:
                details = details | {"onset": {"first": at, "likeliest": at, "last": at}}
            connection.execute(insert(table_of(Incident)).values(row | more | {"details": details}))
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture(scope="module")
def app(own: Sample, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return every_app(own.engine, own.journal, models=(MODEL,), folder=tmp_path_factory.mktemp("none"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_page_that_begins_with_one_sentence(app: FastAPI, kind: str) -> None:
    answer = get(app, f"/incidents/i_{kind}")
    assert answer.status_code == 200
    html = answer.text
    (heading,) = re.findall(r"<h1>(.*?)</h1>", html, re.DOTALL)
    assert heading.startswith(KINDS[kind][1])
    assert not re.findall(r"<[^>]+\s(?:style|on\w+)\s*=", html), "inline styles and handlers are blocked"
    assert "How sure" in html
    assert ">opened<" in html.replace("\n", "")
    assert 'value="acknowledge"' in html
    assert ("Over time" in html) == (kind != "clock")
    assert html.count("<label") == 0 or "aria-label" in html


def test_incidents_of_one_time_name_each_other(app: FastAPI) -> None:
    html = get(app, "/incidents/i_flags").text
    (beside,) = re.findall(r"<h2>Beside it</h2>.*?</section>", html, re.DOTALL)
    assert re.search(r'<a href="/incidents/i_[^"]+">[^<]+ since', beside)
    assert 'href="/incidents/i_flags"' not in beside
    assert "Beside it" not in get(app, "/incidents/i_clock").text


def test_drift_is_a_ticket_of_whole_entities(app: FastAPI) -> None:
    html = get(app, "/incidents/i_drift").text
    assert "a ticket: nobody is paged" in html
    assert ("of 1,135<" in html, "1,135.2" in html, "reference.dataset" in html) == (True, False, False)
    assert "a ticket" not in get(app, "/incidents/i_flags").text


def test_details_are_words(app: FastAPI) -> None:
    html = get(app, "/incidents/i_performance").text
    assert re.search(r"cat that is dog, 1\.0\s% before, 9\.0\s% since\.", html)
    assert "9 wrong answers in all" in html
    assert not re.search(r"None<|confused\[", html)
    assert "Proposed: label some of its records." in get(app, f"/m/{MODEL}/alarms").text


def test_the_chart_shades_the_onset_and_marks_the_opening(app: FastAPI) -> None:
    html = get(app, "/incidents/i_flags").text
    assert "Share of entities flagged by margin_is_wide" in html
    assert re.search(r'<g class="onset"><title>onset between [^<]+</title><rect x="[\d.]+"', html)
    assert "<title>incident opened, " in html
    assert "version 1" in html


def test_events_of_the_model_stand_below_the_chart(app: FastAPI, own: Sample) -> None:
    at_us = int(own.start.timestamp() * 1e6) - AGO_US + 8_000_000
    seen = [
        {"model": MODEL, "kind": "prompt_version", "name": name, "at_us": at_us - before_us}
        for name, before_us in (("p1", MINUTE_US), ("p2", 0))  # the first of a kind is no event
    ]
    with write(own.engine) as connection:
        connection.execute(insert(table_of(FirstSeen)), seen)
    html = get(app, "/incidents/i_flags").text
    at = utc_text(at_us)[:16].replace("T", " ")
    assert f"{at}</time> first records of prompt version p2" in html


def test_causes_records_and_the_guarantee_stand_on_the_page(app: FastAPI) -> None:
    html = get(app, "/incidents/i_flags").text
    assert re.search(
        r'<rect class="before"[^>]* width="3.87"/><rect class="after"[^>]* width="100.0"/>', html
    )
    assert f'href="/m/{MODEL}/records/card-00030-f0"' in html
    assert "Not stored any more: gone." in html
    assert "within 7 days with a chance of at most 1 %" in html
    assert re.search(r"<dt>Now</dt><dd>\d+\.\d.*?entities.*?, each once a minute", html)
    assert re.search(r"<dt>When it opened</dt><dd>31\.0", html)
    assert "reviewed=no" in html
    assert "None: it is what did not come." in get(app, "/incidents/i_silence").text


def test_causes_lead_to_assertions_where_they_are_some(app: FastAPI) -> None:
    linked = f'href="/assertions/{MODEL}/'
    causes = {kind: get(app, f"/incidents/i_{kind}").text.partition("What explains it")[2] for kind in KINDS}
    assert linked in causes["flags"].partition("</section>")[0]
    assert linked not in causes["performance"].partition("</section>")[0]
    assert "loss on till-1" in causes["performance"]
    assert "other versions" in causes["performance"]


def test_an_incident_that_is_not_there_says_so(app: FastAPI) -> None:
    answer = get(app, "/incidents/none")
    assert answer.status_code == 404
    assert "outrider incidents" in answer.text


def test_an_alert_finds_its_incident_by_its_labels(app: FastAPI) -> None:
    found = get(app, f"/incidents?model={MODEL}&kind=silence&assertion=records")
    assert (found.status_code, found.headers["location"]) == (303, "/incidents/i_silence")
    assert (
        get(app, f"/incidents?model={MODEL}&kind=flags&assertion=x").headers["location"]
        == f"/m/{MODEL}/alarms"
    )
    assert get(app, "/incidents?assertion=//evil.example").headers["location"] == "/"


def test_the_page_of_alarms_says_what_is_watched_and_what_stands(app: FastAPI) -> None:
    html = get(app, f"/m/{MODEL}/alarms").text
    assert 'href="/incidents/i_flags"' in html
    assert "streams could be judged" in html
    assert "suspended: it does not judge" in html
    assert 'aria-label="100 % of the way to an alarm"' in html


@pytest.mark.parametrize("page", ["/", f"/m/{MODEL}", "/assertions/digits/margin_is_wide"])
def test_other_pages_lead_to_the_incident(app: FastAPI, page: str) -> None:
    assert re.search(r'href="/incidents/(i_|inc_)\w+"', get(app, page).text)


def post(app: FastAPI, path: str, form: str) -> Any:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    return request(app, "POST", path, headers=kind, content=form.encode())


def test_what_people_do_is_its_history(app: FastAPI, own: Sample) -> None:
    at = "/incidents/i_event_time"
    assert post(app, at, f"action=acknowledge&next={at}").headers["location"] == at
    assert post(app, at, f"action=mute&for_s=3600&next={at}").status_code == 303
    assert post(app, at, f"action=resolve&note=%3Cscript%3E+sender+mended&next={at}").status_code == 303
    html = get(app, at).text
    told = re.findall(r'<tr><th scope="row">(\w+)', html[html.index("History") :])
    assert told == ["opened", "acknowledged", "muted", "resolved"]
    assert "&lt;script&gt; sender mended" in html
    assert 'value="acknowledge"' not in html
    with own.engine.connect() as connection:
        steps = stored(connection, "i_event_time").details["history"]
    assert steps[1]["until"] > steps[1]["at"]


def test_the_champion_is_rolled_back_by_a_button_that_names_the_version(app: FastAPI, own: Sample) -> None:
    version, change = table_of(ModelVersion), table_of(ChampionChange)
    at = "/incidents/i_flags"
    assert "Roll back" not in get(app, at).text
    with write(own.engine) as connection:
        connection.execute(version.update().where(version.c.version == "3").values(replaced="1"))
        row = {"model": MODEL, "action": "promoted", "by": "gate", "reason": "", "at_us": 1}
        for number in ("1", "3"):
            connection.execute(insert(change).values(row | {"version": number}))
    html = get(app, at).text
    assert "make version 1 champion again" in html
    assert HOSTILE not in html
    assert post(app, f"/m/{MODEL}/rollback", f"to=1&reason=incident&next={at}").headers["location"] == at
    with own.engine.connect() as connection:
        found = registry.champion(connection, MODEL)
        reasons = connection.scalars(select(change.c.reason).where(change.c.action == "rolled_back")).all()
    assert found is not None
    assert (found.version, reasons[-1]) == ("1", "incident")
