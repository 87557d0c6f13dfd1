"""A real browser shows the page of a comparison: long answers stay inside, scrolled to where one reads."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.report import CompareReport
from outrider.monitor.compare.run import ComparisonRun, drive
from outrider.monitor.server.local_server import LocalServer
from outrider.monitor.web.compare_page import ComparePage
from tests.monitor.compare_askers import Sampled, traffic
from tests.requirements import require_program
from tests.soak import PATIENCE_S

ADDRESS = "gateway.internal.example.com:8443/v1/chat/completions"
LONG = "Thank you for your letter about the parcel. " * 40 + "https://example.com/" + "long" * 60


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    """Report with long answers of a candidate with a long name."""
    plan = ComparePlan()
    run = ComparisonRun(Sampled("production", seed=1), [Sampled(ADDRESS, wrong=0.3, seed=2)], plan)
    drive(run, traffic(), Until(), stop=threading.Event(), tell=lambda _: None)
    run.close()
    found = CompareReport.of(run, plan, ending="decided", funnel={"seen": 20_000}, seconds=1.0).found
    for each in found["candidates"][0]["to_label"]:
        each["production"], each["candidate"] = LONG, LONG.replace("letter", "message")
    return found


@pytest.mark.parametrize("width", [400, 1100])
def test_long_answers_stay_inside_and_where_one_reads_them(width: int, found: Mapping[str, Any]) -> None:
    chromium = require_program("chromium", "apt-get install -y chromium")
    labels: list[tuple[str, str, str]] = []

    def label(candidate: str, question: str, right: str) -> bool:
        labels.append((candidate, question, right))
        return True

    page = ComparePage(lambda: found, label)
    with LocalServer(page) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 800})
        tab.set_default_timeout(PATIENCE_S * 1000)
        said: list[str] = []
        tab.on("console", lambda message: said.append(message.text))
        tab.goto(f"{server.url}{page.path}")
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        sides = "[...document.querySelectorAll('.sides p')]"
        assert tab.evaluate(f"{sides}.every(each => each.scrollWidth <= each.clientWidth)")
        tab.evaluate(f"{sides}[0].scrollTop = 60; document.querySelector('main').id = 'old'")
        tab.wait_for_selector("main:not(#old)")
        assert tab.evaluate(f"{sides}[0].scrollTop") > 0
        with tab.expect_response(lambda answer: answer.url.endswith("/labels")):
            tab.keyboard.press("n")
        browser.close()
    assert labels == [(ADDRESS, found["candidates"][0]["to_label"][0]["id"], "neither")]
    assert said == []
