"""The behavioral matrix and its drill-down, as pages and as JSON."""

import hashlib
import re
from html import unescape
from io import BytesIO
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from PIL import Image

from tests.asgi import get

from .sample import MODEL
from .sample_outcomes import HOSTILE_NAME, HOSTILE_TEXT

MATRIX = f"/m/{MODEL}/behavior"


def rows(html: str) -> list[str]:
    return [
        re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", row))).strip()
        for row in re.findall(r"<tr.*?</tr>", html, re.S)
    ]


def test_versions_are_columns_champion_and_challengers_first(app: FastAPI) -> None:
    html = get(app, MATRIX).text
    assert re.findall(r'<span class="version">(.*?)</span>', html) == [
        "3",
        "4",
        "pr-&lt;b&gt;7&lt;/b&gt;",
        "2",
        "1",
    ]
    shift = next(row for row in rows(html) if row.startswith("inv_shift"))
    assert "✓ 0.0 % 0 of 200" in shift
    assert "✗ 70.0 % 140 of 200" in shift


def test_regressions_are_outlined_with_what_they_rest_on(app: FastAPI) -> None:
    html = get(app, MATRIX).text
    outlined = re.findall(r'<a class="outcome (\w+) regression" href="([^"]+)".*?</a>', html, re.S)
    assert (f"{MATRIX}/2/test_digits/inv_shift") in [link for _, link in outlined]
    shift = next(row for row in rows(html) if row.startswith("inv_shift"))
    assert "worse than 3: intervals apart" in shift  # published by hand: nobody asked both the same cases
    assert re.search(r"worse than 1: same cases, p = \d", shift)  # the gate did


def test_live_rates_stand_beside_offline_ones_with_their_alarm(app: FastAPI) -> None:
    html = get(app, MATRIX).text
    found = rows(html)
    at = next(number for number, row in enumerate(found) if row.startswith("inv_shift"))
    assert found[at + 1].startswith("on live traffic live ✓ 2.0 % 84 of 4,210 ✗ 9.3 % 195 of 2,100 · alarm")
    assert any(row.startswith("live_only live · 0.0 % 0 of 12 · undecided") for row in found)
    assert 'id="live-inv_shift"' in html
    page = get(app, f"/assertions/{MODEL}/inv_shift").text
    assert f"{MATRIX}#live-inv_shift" in page


@pytest.mark.parametrize(
    ("query", "tests"),
    [
        ("capability=reading", ["test_eights"]),
        ("status=error", ["test_long_texts"]),
        ("status=alarm", ["inv_shift", "on live traffic"]),
        ("status=regression&capability=fairness", ["test_equal_selection"]),
        ("status=skipped", []),
    ],
)
def test_rows_are_filtered(app: FastAPI, query: str, tests: list[str]) -> None:
    html = get(app, f"{MATRIX}?{query}").text
    named = [row for row in rows(html) if re.match(r"(test_|inv_|on live traffic live)", row)]
    assert [row[: len(name)] for row, name in zip(named, tests, strict=True)] == tests
    if not tests:
        assert "No test matches these filters" in html


def test_older_versions_are_on_further_pages(app: FastAPI) -> None:
    first = get(app, f"/v1/suites/{MODEL}/matrix?columns=2").json()
    assert [each["version"] for each in first["versions"]] == ["3", "4"]
    assert first["older"] == 3
    second = get(app, f"{MATRIX}?skip=4").text
    assert re.findall(r'<span class="version">(.*?)</span>', second) == ["1"]
    assert f'href="{MATRIX}">← newer' in second
    assert get(app, f"{MATRIX}?skip=x").status_code == 200


def test_failing_cases_show_what_was_changed(app: FastAPI) -> None:
    html = get(app, f"{MATRIX}/2/test_digits/{quote(HOSTILE_NAME, safe='')}").text
    assert "<del>not</del><ins>&lt;i&gt;never&lt;/i&gt;</ins> go<del>o</del>d" in html
    assert "<del>negative</del><ins>&lt;b&gt;positive&lt;/b&gt;</ins>" in html
    assert "same cases: 9 newly failed, 0 mended" in html


def test_pictures_of_failing_cases_are_served_before_after_and_difference(app: FastAPI) -> None:
    html = get(app, f"{MATRIX}/2/test_digits/inv_shift").text
    sources = [unescape(each) for each in re.findall(r'<img src="(/m/[^"]+)"', html)]
    assert len(sources) == 30
    assert [re.findall(r"part=(\w+)", each)[0] for each in sources[:3]] == ["before", "after", "difference"]
    for source in sources[:3]:
        answer = get(app, source)
        assert answer.headers["content-type"] == "image/png"
        with Image.open(BytesIO(answer.content)) as image:
            assert image.size == (20, 20)
    assert get(app, sources[0].replace("case=", "case=99")).status_code == 404


def test_figures_are_dots_with_intervals(app: FastAPI) -> None:
    html = get(app, f"{MATRIX}/2/test_fair/test_equal_selection").text
    assert html.count('<svg class="dots"') == 3
    assert '<circle class="at" cx="27.2%"' in html
    assert '<circle class="before" cx="17.64%"' in html
    assert any(row.startswith("women 0.054 0.042") for row in rows(html))


def test_what_raised_says_so(app: FastAPI) -> None:
    assert (
        "ValueError: &lt;u&gt;no column&lt;/u&gt; inputs.text"
        in get(app, f"{MATRIX}/3/test_digits/test_long_texts").text
    )


def test_hostile_content_is_escaped_everywhere(app: FastAPI) -> None:
    name = quote(HOSTILE_NAME, safe="")
    for page in (
        MATRIX,
        f"{MATRIX}/2/test_digits/{name}",
        f"/m/{MODEL}/retrains",
        f"{MATRIX}?capability=<b>&status=<i>",
    ):
        html = get(app, page).text
        assert "<script>alert" not in html, page
        assert "<img src=x" not in html, page
        assert not re.findall(r"<b>(7<|positive)", html), page
        assert not re.findall(r"<[^>]+\s(?:style|on\w+)\s*=", re.sub(r'"[^"]*"', '""', html)), page
    assert HOSTILE_TEXT in unescape(get(app, f"{MATRIX}/2/test_digits/{name}").text)


def test_the_gates_page_leads_to_the_failing_cases(app: FastAPI) -> None:
    html = get(app, f"/m/{MODEL}/retrains").text
    assert f'href="{MATRIX}/2/test_digits/inv_shift"' in html
    assert "failed: robustness: inv_shift (INV, suite test_digits)" in html


def test_the_gates_page_names_the_policy_of_a_verdict(app: FastAPI) -> None:
    digest = hashlib.sha256(b"version = 1\nshadow_rows = 200\n").hexdigest()
    html = get(app, f"/m/{MODEL}/retrains").text
    assert f'policy <code title="SHA-256 {digest}">gate.toml {digest[:12]}</code>' in html


def test_without_outcomes_the_page_says_how_to_get_some(app: FastAPI) -> None:
    html = get(app, "/m/churn/behavior").text
    assert "outrider test --publish" in html
    assert "[models.churn]" in html
    assert get(app, f"{MATRIX}/3/test_digits/nope").status_code == 404
    assert get(app, "/m/nope/behavior").status_code == 404


def test_the_matrix_as_json(app: FastAPI) -> None:
    found = get(app, f"/v1/suites/{MODEL}/matrix?status=regression&capability=robustness").json()
    assert {(each["version"], each["against"]) for each in found["versions"]} == {
        ("3", "1"),  # judged by the gate
        ("2", "1"),
        ("4", "3"),  # not judged yet
        ("pr-<b>7</b>", "3"),
        ("1", None),  # served before
    }
    (row,) = found["rows"]
    cell = row["cells"]["2"]
    assert (cell["outcome"]["failures"], cell["outcome"]["source"]) == (140, "gate")
    assert cell["change"]["verdict"] == "regression"
    assert cell["change"]["p"] < 1e-6
    assert row["cells"]["4"]["live"]["alarm"] is not None
    one = get(app, f"/v1/suites/{MODEL}/outcomes/2/test_digits/inv_shift").json()
    assert len(one["outcome"]["examples"]) == 10
    assert one["change"] == cell["change"]
    assert get(app, "/v1/suites/nope/matrix").status_code == 404
    assert get(app, f"/v1/suites/{MODEL}/outcomes/2/test_digits/nope").status_code == 404


def test_every_cell_leads_to_its_outcome(app: FastAPI) -> None:
    links = re.findall(r'<a class="outcome [^"]*" href="([^"]+)"', get(app, MATRIX).text)
    assert any("%2F" in link for link in links)  # a version may hold a slash
    assert {get(app, unescape(link)).status_code for link in links} == {200}


def test_a_page_number_that_is_none_is_the_first_page(app: FastAPI) -> None:
    assert get(app, f"{MATRIX}?skip={'9' * 5000}").status_code == 200
