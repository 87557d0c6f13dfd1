"""Every page answers, escapes, obeys its own CSP, and needs no JavaScript for its tables."""

import re
from io import BytesIO

import pytest
from fastapi import FastAPI
from PIL import Image

from tests.asgi import get

from .sample import HOSTILE, MODEL, Sample

PAGES = ("", "/flags", "/lineage", "/retrains", "/datasets", "/records/card-00200-f0")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_renders_under_a_strict_policy(app: FastAPI, page: str) -> None:
    answer = get(app, f"/m/{MODEL}{page}")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    html = answer.text
    assert not re.findall(r"<[^>]+\s(?:style|on\w+)\s*=", html), "inline styles and handlers are blocked"
    assert not re.findall(r"<style|<script(?![^>]*\ssrc=)", html)
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', html):
        assert get(app, address).status_code == 200, address


def test_home_is_the_fleet_with_the_worst_incident_of_each_model(app: FastAPI) -> None:
    page = get(app, "/").text
    assert f'<a href="/m/{MODEL}">' in page
    assert '<span class="tag critical">critical</span>' in page
    assert "track_agrees" in page


def test_hostile_ids_are_escaped_and_stay_reachable(app: FastAPI, sample: Sample) -> None:
    page = get(app, f"/m/{MODEL}/flags?after=2.0.a")
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;alert(1)" in page.text
    link = re.findall(r'href="(/m/digits/records/%3Cscript[^"#]*)"', page.text)[0]
    record = get(app, link)
    assert record.status_code == 200
    assert "<script>alert" not in record.text
    source = re.findall(r'src="(/m/digits/images/records/[^"]*%3Cscript[^"]*)"', record.text)[0]
    assert get(app, source).headers["content-type"] == "image/png"
    assert HOSTILE not in record.text


def test_versions_show_their_validation_and_lead_to_their_data_docs(app: FastAPI) -> None:
    html = get(app, f"/m/{MODEL}/datasets").text
    assert f'href="/m/{MODEL}/datasets/digits-flagged/1/data-docs">3 expectations</a>' in html
    assert "2 rows kept out" in html
    assert "1 warning<" in html
    assert "expect_column_max_to_be_between(column=&#39;inputs.x&#39;, max_value=1), 1 row such as" in html
    assert HOSTILE not in html


def test_verdicts_draw_their_bounds_around_what_is_allowed(app: FastAPI) -> None:
    html = get(app, f"/m/{MODEL}/retrains").text
    told = re.findall(r'<svg class="interval wide (\w+)"[^>]* aria-label="([^"]+)"', html)
    assert told == [
        ("passed", "digits-heldout@1: -1.1 to +0.6 %, up to +2.0 % passes"),
        ("passed", "digits-flagged@1 held out: -70.0 to -31.0 %, up to +0.0 % passes"),
        ("passed", "live records flagged: -14.0 to +6.0 %, up to +0.0 % passes"),
        ("failed", "digits-heldout@1: +53.0 to +60.0 %, up to +2.0 % passes"),
    ]


def test_a_watch_says_one_sentence_and_draws_its_bounds_around_zero(app: FastAPI) -> None:
    html = get(app, f"/m/{MODEL}/retrains").text
    card = html[html.index('id="watch"') : html.index('class="card story"')]
    assert HOSTILE not in card
    told = re.findall(r'<p class="sentence">(Version 2 .*?) <span', card)
    assert told == [
        "Version 2 is watched beside version &lt;script&gt;alert(1)&lt;/script&gt;/../x: it is proven to be "
        "worse (2,400 records, 1,200 labelled); `outrider rollback digits`."
    ]
    (points,) = re.findall(r'<polyline points="([^"]+)"', card)
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert len(heights) == 3
    assert max(heights) < 45  # above the line of no difference
    assert "proven to be worse" in card
    assert 'retrains#watch">Why</a>' in get(app, f"/m/{MODEL}").text


def test_filters_and_paging_meet_every_flag_once(app: FastAPI) -> None:
    seen: list[str] = []
    address = f"/m/{MODEL}/flags?assertion=margin_is_wide&level=warning"
    while address:
        html = get(app, address).text
        seen += re.findall(r'#flag-(\w+)"', html)
        following = re.findall(r'href="([^"]+)">older', html)
        address = following[0].replace("&amp;", "&") if following else ""
    assert len(seen) == len(set(seen))
    overview = get(app, f"/v1/overview?model={MODEL}").json()["models"][0]
    counted = {row["name"]: row["flags"]["champion"] for row in overview["assertions"]}
    assert len(seen) == counted["margin_is_wide"]


def test_pictures_are_png_of_the_record_and_of_its_evidence(app: FastAPI) -> None:
    html = get(app, f"/m/{MODEL}/flags?assertion=inv_shift").text
    sources = re.findall(r'<img src="(/m/[^"]+)" alt="([^"]+)"', html)
    captions = {caption.partition(" ")[0] for _, caption in sources}
    assert captions == {"image", "perturbed"}
    for source, _ in sources[:2]:
        answer = get(app, source)
        assert answer.headers["content-type"] == "image/png"
        assert "immutable" in answer.headers["cache-control"]
        with Image.open(BytesIO(answer.content)) as image:
            assert image.size == (8, 8)
    assert get(app, f"/m/{MODEL}/images/records/outputs.label/card-00200-f0").status_code == 404
    gone = get(app, f"/m/{MODEL}/images/flags/none/inputs.image")
    assert (gone.status_code, gone.headers["content-type"]) == (404, "image/svg+xml")


def test_htmx_gets_only_the_content(app: FastAPI) -> None:
    whole = get(app, f"/m/{MODEL}").text
    part = get(app, f"/m/{MODEL}", headers={"hx-request": "true"}).text
    assert "<html" in whole
    assert 'hx-trigger="every 2s"' in whole
    assert "<html" not in part
    assert "Assertions" in part


def test_the_overview_says_what_is_wrong(app: FastAPI) -> None:
    html = get(app, f"/m/{MODEL}").text
    assert "deadline: no verdict after 2.0 s" in html
    assert '<span class="dot down"></span> trainer' in html
    assert "came again with other content" in html


def test_an_older_page_does_not_refresh_itself(app: FastAPI) -> None:
    assert "hx-trigger" not in get(app, f"/m/{MODEL}/flags?after=20.3.a").text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/m/nope", 404),
        ("/m/digits/records/nope", 404),
        ("/m/digits/flags?after=x", 422),
        ("/static/../routes.py", 404),
        ("/static/nope.js", 404),
        ("/m/churn", 200),
        ("/m/churn/flags", 200),
        ("/m/churn/lineage", 200),
    ],
)
def test_unknown_and_empty(app: FastAPI, path: str, status: int) -> None:
    assert get(app, path).status_code == status


def test_the_page_of_datasets_says_what_leaked_and_what_moved(app: FastAPI) -> None:
    text = get(app, f"/m/{MODEL}/datasets").text
    assert "3 rows of the first have inputs equal to those of a row of the second" in text
    assert "3 rows were held out for it" in text
    assert "not looked for" in text, "of a version that only took rows away"
