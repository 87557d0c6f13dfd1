"""Kept comparisons in the service: the API, the list, the page, and labels of pairs."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from outrider.dataops.comparisons import Comparisons
from outrider.monitor.compare.judge import is_drawn
from outrider.monitor.compare.labelled import relabelled
from outrider.monitor.compare.plan import ComparePlan
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import StorageSettings
from outrider.monitor.views.comparisons.page import compare_page
from tests.comparison_reports import report, report_of, run
from tests.monitor.services import every_app
from tests.monitor.test_routes_data import Client

from .sample import MODEL, Sample

FORM = {"content-type": "application/x-www-form-urlencoded"}
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def comparisons(tmp_path: Path) -> Comparisons:
    return Comparisons(tmp_path)


@pytest.fixture
def app(sample: Sample, tmp_path: Path) -> FastAPI:
    settings = Settings(
        base=tmp_path, storage=StorageSettings(folder=str(tmp_path)), models={MODEL: ModelSettings()}
    )
    return every_app(sample.engine, sample.journal, settings)


@pytest.fixture
def client(app: FastAPI) -> Client:
    return Client(app)


def sent(client: Client, found: dict[str, Any]) -> str:
    answer = client.post("/v1/comparisons", json=found)
    assert answer.status_code == 201, answer.text
    page: str = answer.json()["page"]
    assert page == f"/compare/{answer.json()['id']}"
    return page


def labelled(client: Client, page: str, **label: str) -> httpx.Response:
    return client.post(f"{page}/labels", content=str(httpx.QueryParams(label)).encode(), headers=FORM)


def test_a_sent_report_is_listed_and_read_back_with_its_sentences(client: Client) -> None:
    assert "None yet" in client.get("/compare").text
    page = sent(client, report())
    [line] = client.get("/v1/comparisons").json()["comparisons"]
    assert [each["verdict"] for each in line["candidates"]] == ["same", "different"]
    assert line["production"] == "production"
    body = client.get(f"/v1/comparisons/{line['id']}").json()
    assert body["report"] == report()
    listed = client.get("/compare").text
    assert f'href="{page}"' in listed
    assert "twin answers the same as production" in listed


def test_the_page_shows_what_the_page_of_the_command_shows(client: Client) -> None:
    """One template: what differs is the frame, the labels and the links to records."""
    html = client.get(sent(client, report())).text
    of_command = compare_page(report())
    for part in ("Candidates side by side", "twin answers the same as", "<polygon points=", "country=DE"):
        assert part in html
        assert part in of_command
    assert html.count('<li><p class="question">') == of_command.count('<li><p class="question">') > 0
    assert "Which is right?" in html
    assert "Which is right?" not in of_command


def test_records_of_a_model_of_the_service_are_linked(client: Client) -> None:
    assert "/records/" not in client.get(sent(client, report())).text
    page = client.get(sent(client, report() | {"model": MODEL})).text
    assert f'href="/m/{MODEL}/records/{report()["candidates"][1]["examples"][0]["id"]}"' in page
    assert "/records/" not in client.get(sent(client, report() | {"model": "another"})).text


def test_labels_change_the_verdict_and_stay(client: Client, comparisons: Comparisons) -> None:
    page = sent(client, report())
    pairs = report()["candidates"][1]["to_label"]
    for pair in pairs[:30]:
        answer = labelled(client, page, candidate="faulty", id=pair["id"], right="production")
        assert (answer.status_code, answer.headers["location"]) == (303, page)
    html = client.get(page).text
    assert "faulty is worse: right in 0 of 30 labelled pairs" in html
    assert f"30 of {len(pairs)} pairs labelled" in html
    assert sent(client, report()) == page
    assert "faulty is worse" in client.get("/compare").text


@pytest.mark.parametrize(
    "label",
    [
        {},
        {"candidate": "faulty", "id": "nobody's", "right": "production"},
        {"candidate": "nobody", "id": "1", "right": "production"},
        {"candidate": "faulty", "id": "1", "right": EVIL},
    ],
)
def test_a_label_of_no_pair_is_refused(label: dict[str, str], client: Client) -> None:
    answer = labelled(client, sent(client, report()), **label)
    assert answer.status_code == 422
    assert "A pair of this comparison and one of production, candidate, both, neither" in answer.text
    assert EVIL not in answer.text


def test_an_unknown_comparison_is_a_page_of_its_own(client: Client) -> None:
    for path in ("/compare/0123456789abcdef", "/compare/<b>"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "<html" in answer.text
        assert "There is no comparison" in answer.text
    assert labelled(client, "/compare/0123456789abcdef", right="both").status_code == 404
    missing = client.get("/v1/comparisons/0123456789abcdef")
    assert (missing.status_code, missing.json()["detail"]) == (
        404,
        "there is no comparison '0123456789abcdef'",
    )


def test_what_is_no_report_is_refused_by_its_field(client: Client) -> None:
    answer = client.post("/v1/comparisons", json=report() | {"margin": "wide"})
    assert answer.status_code == 422
    assert "margin: Expected `float`, got `str`" in answer.json()["detail"]
    assert client.get("/v1/comparisons").json() == {"comparisons": []}


def texts(value: Any) -> Any:
    """The same report, with markup in every text that a client is free to send."""
    if isinstance(value, dict):
        fixed = ("verdict", "word", "right", "ended", "measure")
        return {
            EVIL if name in ("x", "answered", "no answer", "seen") else name: each
            if name in fixed
            else texts(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [texts(each) for each in value]
    return EVIL if isinstance(value, str) else value


def test_nothing_that_a_report_says_is_markup(client: Client) -> None:
    page = sent(client, texts(report()) | {"model": MODEL})
    for html in (client.get(page).text, client.get("/compare").text):
        assert EVIL not in html
        assert "&lt;script&gt;alert(1)" in html
    policy = client.get(page).headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe-inline" not in policy


@pytest.fixture(params=[False, True], ids=["labels", "judge"])
def plan(request: pytest.FixtureRequest) -> ComparePlan:
    return ComparePlan(has_judge=request.param, seed=3)


def test_labels_of_a_kept_report_count_as_those_of_a_run(plan: ComparePlan) -> None:
    """Truth is the command: each label given to the run gives the report that it gives when kept."""
    made = run(plan)
    faulty = made.results[1]
    if plan.has_judge:
        pairs = faulty.unjudged()
        faulty.take_judgements(pairs, [0.5] * len(pairs))
        faulty.settle()
    kept: dict[str, Any] = report_of(made, plan)
    assert len(faulty.to_label) >= 30
    for at, pair in enumerate(list(faulty.to_label)):
        right = "production" if at % 8 else "both"
        assert made.label("faulty", pair["id"], right)  # type: ignore[arg-type]  # one of four words
        changed = relabelled(kept, "faulty", pair["id"], right)  # type: ignore[arg-type]  # the same
        assert changed is not None
        kept = changed
        assert kept == report_of(made, plan)
    assert kept["candidates"][1]["verdict"] == "worse"
    assert not plan.has_judge or all(is_drawn(pair["id"], 3) for pair in kept["candidates"][1]["to_label"])


def test_a_comparison_is_removed_by_its_button_or_the_api(client: Client) -> None:
    page, other = (sent(client, report() | {"seconds": seconds}) for seconds in (1.0, 2.0))
    pair = report()["candidates"][1]["to_label"][0]["id"]
    labelled(client, page, candidate="faulty", id=pair, right="both")
    assert "with its 1 label" in client.get(page).text
    refused = client.post(f"{page}/remove", content=b"", headers=FORM)
    assert refused.status_code == 422
    assert "which go with it" in refused.text
    assert client.post(f"{page}/remove", content=b"labels=1", headers=FORM).headers["location"] == "/compare"
    id_ = other.rpartition("/")[2]
    assert client.delete(f"/v1/comparisons/{id_}").json() == {"id": id_}
    assert client.delete(f"/v1/comparisons/{id_}").status_code == 404
    assert "None yet" in client.get("/compare").text


def test_a_running_comparison_is_shown_live_and_takes_labels_once_it_has_ended(client: Client) -> None:
    running = report() | {"ended": "running"}
    address, page = f"/v1/comparisons/{'ab' * 8}", f"/compare/{'ab' * 8}"
    assert client.put(address, json=running).json()["page"] == page
    shown = client.get(page).text
    assert "Last heard of" in shown
    assert "data-live" in shown
    assert "<polygon points=" in shown
    assert "Which is right?" not in shown
    assert client.put(address, json=running | {"seconds": 7.0}).status_code == 200
    assert "running" in client.get("/compare").text
    assert client.put(address, json=report()).status_code == 200
    shown = client.get(page).text
    assert "Which is right?" in shown
    assert "data-live" not in shown
    assert "has ended" in client.put(address, json=running).json()["detail"]
    assert client.put("/v1/comparisons/mine", json=running).status_code == 422
