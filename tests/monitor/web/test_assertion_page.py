"""The page of an assertion shows its figures, marks what the evidence names, and takes what people decide."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from outrider.assertions import Batch
from outrider.assertions.library import bounds
from outrider.assertions.library.text import length
from outrider.dataops.state import tables
from outrider.dataops.state.database import write
from outrider.monitor.http.auth import KeyGate
from outrider.monitor.http.keyring import csrf_token
from outrider.monitor.views.assertions.reader import histogram
from outrider.monitor.views.proposals.reader import Learner
from outrider.monitor.views.suites.written_cases import CaseWriter
from outrider.monitor.web.highlights import described_fields, named_fields, shown_fields
from tests.asgi import get
from tests.keyrings import keyring_in, logged_in, owner_key
from tests.scopes import every_scope

from .conftest import make_app
from .sample import MODEL, Sample, add, build
from .test_browser import look, served


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    """A sample that these tests may change."""
    made = build(tmp_path_factory.mktemp("own"), blocks=24)
    yield made
    made.engine.dispose()
    made.journal.close()


class Browser:
    """A session behind the gate; forms are posted as the page has them."""

    def __init__(
        self, sample: Sample, learner: Learner | None = None, cases: CaseWriter | None = None
    ) -> None:
        folder = Path(str(sample.engine.url.database)).parent
        keyring = keyring_in(folder)
        app = make_app(sample, learner=learner, cases=cases)
        self.app = KeyGate(app, keyring, routes=every_scope())
        self.session = logged_in(keyring, owner_key(folder))["cookie"].removeprefix("outrider=")

    def ask(
        self,
        method: str,
        path: str,
        data: dict[str, str] | None = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            cookies = {"outrider": self.session}
            async with httpx.AsyncClient(transport=transport, cookies=cookies) as client:
                return await client.request(method, f"http://localhost{path}", data=data, headers=headers)

        return asyncio.run(send())

    def page(self, path: str) -> str:
        return self.ask("GET", path).text

    def press(self, path: str, action: str, button: str) -> httpx.Response:
        """Press the first button of that text in a form with that action on a page."""
        for form in re.findall(r"<form class=\"inline\".*?</form>", self.page(path), flags=re.DOTALL):
            found = re.search(rf"<button([^>]*)>{button}</button>", form)
            if f'action="{action}"' in form and found:
                data = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
                data |= dict(re.findall(r'name="(\w+)" value="([^"]*)"', found[1]))
                return self.ask(
                    "POST", action, {key: value.replace("&amp;", "&") for key, value in data.items()}
                )
        raise AssertionError(f"no button {button!r} for {action} on {path}")


@pytest.fixture
def browser(own: Sample) -> Browser:
    return Browser(own)


def rows(sample: Sample, sql: str) -> list[tuple[object, ...]]:
    with sample.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(sql))]


@pytest.mark.parametrize("name", ["track_agrees", "inv_shift", "image_is_lively"])
def test_it_renders_under_a_strict_policy(own: Sample, name: str) -> None:
    answer = get(make_app(own), f"/assertions/{MODEL}/{name}")
    assert answer.status_code == 200
    assert not re.findall(r"<[^>]+\s(?:style|on\w+)\s*=", answer.text)
    assert not re.findall(r"<style|<script(?![^>]*\ssrc=)", answer.text)
    for what in ("Precision", "Coverage", "False failures", "Fire rate", "Severity", "Fires together with"):
        assert what in answer.text
    assert get(make_app(own), f"/assertions/{MODEL}/none").status_code == 404


def test_the_overview_leads_there_and_names_what_is_broken(own: Sample) -> None:
    html = get(make_app(own), f"/m/{MODEL}").text
    assert f'href="/assertions/{MODEL}/track_agrees"' in html
    broken = get(make_app(own), f"/assertions/{MODEL}/image_is_lively").text
    assert "no verdict after 2.0 s" in broken
    assert "deadline" in broken


def test_fields_that_the_evidence_names_are_marked_and_come_first(own: Sample) -> None:
    with write(own.engine) as connection:
        connection.execute(
            text("UPDATE flag SET evidence = :said WHERE assertion = 'margin_is_wide'"),
            {"said": '{"field": "outputs.margin", "image": "inputs.image"}'},
        )
    html = get(make_app(own), f"/assertions/{MODEL}/margin_is_wide").text
    card = html[html.index('<li class="flag') :].partition("</li>")[0]
    facts = re.findall(r'<div( class="named")?><dt>([^<]+)</dt><dd>(<mark>)?', card)
    assert facts[0] == (' class="named"', "outputs.margin", "<mark>")
    assert all(not mark for _, _, mark in facts[1:])
    assert "inputs.image" not in [name for _, name, _ in facts]  # it is seen as a picture, which is marked
    assert 'class="picture here"' in card


def test_outputs_of_a_flagged_record_without_any_are_those_of_the_replica(own: Sample) -> None:
    name = "image_is_lively"
    (flag, seq, record), *_ = rows(
        own, f"SELECT id, seq, record_id FROM flag WHERE assertion = '{name}' ORDER BY seq DESC LIMIT 1"
    )
    answers = Batch.from_records([{"id": record, "outputs": {"label": 123}}], model=MODEL)
    with write(own.engine) as connection:
        add(connection, tables.Answer, model=MODEL, version="4", seq=seq, payload=answers.to_ipc())
        connection.execute(text(f"UPDATE flag SET slot = '4', version = '4' WHERE id = '{flag}'"))
    html = get(make_app(own), f"/assertions/{MODEL}/{name}").text
    assert "<dt>outputs.label</dt><dd>123</dd>" in html


def test_a_column_is_named_by_key_text_or_element() -> None:
    columns = ["inputs.age", "inputs.note", "outputs.boxes", "attrs.device"]
    assert named_fields({}, columns) == set()
    assert named_fields({"inputs": {"age": 3}}, columns) == {"inputs.age"}
    assert named_fields({"fields": ["device", "note"]}, columns) == {"attrs.device", "inputs.note"}
    assert named_fields({"worst": "outputs.boxes[3]"}, columns) == {"outputs.boxes"}
    assert named_fields({"age": "too long " * 40}, columns) == {"inputs.age"}
    fields, named = shown_fields({"inputs": {"age": 3, "image": [[1.0]]}}, {"age": 3})
    assert [(one.name, one.text, one.named) for one in fields] == [("inputs.age", "3", True)]
    assert named == {"inputs.age"}
    assert shown_fields(None, {"age": 3}) == ((), set())


def test_without_evidence_the_fields_that_the_description_names_are_marked() -> None:
    record = {"inputs": {"age": 3, "note": "n"}, "outputs": {"answer": "a"}}
    looks = length(longest=3).description
    assert shown_fields(record, {}, description=looks)[1] == {"outputs.answer"}
    assert shown_fields(record, {"note": "n"}, description=looks)[1] == {"inputs.note"}  # evidence says more
    assert shown_fields(record, {}, description=bounds("inputs.age", low=0).description)[1] == {"inputs.age"}
    assert described_fields("inputs.ages and more.inputs.age and age", ["inputs.age"]) == set()


def test_severities_fall_into_bins_that_hold_all_of_them() -> None:
    rng = np.random.default_rng(0)
    for values in (rng.uniform(0.5, 2, 500), rng.lognormal(0, 4, 500), np.array([3.0]), np.zeros(0)):
        found = histogram(values)
        assert sum(found.counts) == len(values)
        assert len(found.edges) == (len(found.counts) + 1 if found.counts else 0)


def test_reviews_are_given_on_the_page_and_move_precision(own: Sample, browser: Browser) -> None:
    path = f"/assertions/{MODEL}/no_bright_column"
    answer = browser.press(path, "/reviews", "false alarm")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith(f"{path}#flag-")
    assert rows(own, "SELECT assertion, is_error, source FROM review") == [("no_bright_column", 0, "page")]
    assert "false alarm</span>" in browser.page(path)
    assert "1 reviewed" in browser.page(path)
    again = browser.press(f"/m/{MODEL}/flags", "/reviews", "model wrong")
    assert again.headers["location"].startswith(f"/m/{MODEL}/flags#flag-")


def test_a_form_without_its_token_changes_nothing(own: Sample, browser: Browser) -> None:
    before = rows(own, "SELECT count(*) FROM review")
    flag = str(rows(own, "SELECT id FROM flag LIMIT 1")[0][0])
    for token in ({}, {"csrf_token": "guess"}):
        answer = browser.ask("POST", "/reviews", {"flag": flag, "is_error": "1", **token})
        assert answer.status_code == 403
    assert rows(own, "SELECT count(*) FROM review") == before


def test_an_assertion_is_suspended_and_resumed_by_buttons(own: Sample, browser: Browser) -> None:
    path = f"/assertions/{MODEL}/track_agrees"
    assert browser.press(path, f"{path}/suspend", "for a day").headers["location"] == path
    state = "SELECT suspended_until_us, suspension FROM assertion WHERE name = 'track_agrees'"
    until, why = rows(own, state)[0]
    assert until
    assert why == "by hand, on its page"
    assert "by hand, on its page" in browser.page(path)
    browser.press(path, f"{path}/resume", "resume now")
    assert rows(own, f"{state} AND suspended_until_us BETWEEN 1 AND {until} - 1 AND suspension = ''")
    browser.press(path, f"{path}/suspend", "until resumed")
    assert "Suspended until resumed" in browser.page(path)
    assert "is suspended until resumed" in browser.page(f"/m/{MODEL}")
    browser.press(path, f"{path}/resume", "resume now")


def test_incidents_are_acknowledged_muted_and_resolved_by_buttons(own: Sample, browser: Browser) -> None:
    status = "SELECT status FROM incident WHERE id = 'inc_2'"
    text = browser.page(f"/m/{MODEL}")
    for said in (
        "track_agrees has flagged ",
        "rolled back 1",
        "Proposed: roll the champion back",
    ):
        assert said in text, said
    for page, button, now in (
        (f"/m/{MODEL}", "acknowledge", "acknowledged"),
        (f"/assertions/{MODEL}/track_agrees", "mute for a day", "muted"),
        (f"/m/{MODEL}", "resolve", "resolved"),
    ):
        assert browser.press(page, "/incidents/inc_2", button).status_code == 303
        assert rows(own, status) == [(now,)]
    assert "inc_2" not in browser.page(f"/m/{MODEL}")


def test_quarantined_records_are_retried_and_dropped_by_buttons(own: Sample, browser: Browser) -> None:
    path, state = f"/m/{MODEL}/datasets", "SELECT state FROM quarantine ORDER BY id"
    assert rows(own, state) == [("held",)]
    assert browser.press(path, f"/m/{MODEL}/quarantine", "Retry").headers["location"] == path
    assert rows(own, state) == [("retried",)]
    assert "Quarantined rows" not in browser.page(path)
    form = {"csrf_token": csrf_token(browser.session), "action": "drop"}
    assert browser.ask("POST", f"/m/{MODEL}/quarantine", form).status_code == 422
    form |= {"record": "card-00001-f1"}
    assert browser.ask("POST", f"/m/{MODEL}/quarantine", form).status_code == 404
    assert rows(own, state) == [("retried",)]
    with write(own.engine) as connection:
        connection.execute(text("UPDATE quarantine SET state = 'held'"))
    browser.press(path, f"/m/{MODEL}/quarantine", "Drop")
    assert rows(own, state) == [("dropped",)]


def test_a_form_leads_back_to_this_host_only(browser: Browser) -> None:
    token = csrf_token(browser.session)
    for there in ("https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere.example", ""):
        form = {"csrf_token": token, "next": there}
        answer = browser.ask("POST", f"/assertions/{MODEL}/track_agrees/resume", form)
        assert answer.headers["location"] == "/"


def test_what_a_form_says_wrongly_is_refused(browser: Browser) -> None:
    form = {"csrf_token": csrf_token(browser.session), "for_s": "soon"}
    assert browser.ask("POST", f"/assertions/{MODEL}/track_agrees/suspend", form).status_code == 422
    form |= {"for_s": "60", "action": "explode"}
    assert browser.ask("POST", "/incidents/inc_1", form).status_code == 422


def test_a_real_browser_draws_it_without_a_complaint(own: Sample, tmp_path: Path) -> None:
    with served(make_app(own)) as url:
        document, console = look(f"{url}/assertions/{MODEL}/margin_is_wide", tmp_path)
    assert document.count("<canvas") == 1
    assert document.count("<rect") >= 20
    assert console == ""
