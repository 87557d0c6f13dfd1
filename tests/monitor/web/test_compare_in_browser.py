"""A real browser shows the page of a comparison: long answers stay inside, scrolled to where one reads."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from outrider.dataops.comparisons import Comparisons, read_report
from outrider.monitor.compare.pair_texts import shuffled
from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.report import CompareReport, ComparisonOrigin
from outrider.monitor.compare.run import ComparisonRun, drive
from outrider.monitor.server.local_server import LocalServer
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import StorageSettings
from outrider.monitor.views.comparisons.page import ComparePage
from tests.monitor.compare_askers import Sampled, traffic
from tests.monitor.services import every_app
from tests.requirements import require_program
from tests.soak import PATIENCE_S

from .sample import MODEL, Sample

ADDRESS = "gateway.internal.example.com:8443/v1/chat/completions"
LONG = "Thank you for your letter about the parcel. " * 40 + "https://example.com/" + "long" * 60


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    """Report with long answers of a candidate with a long name."""
    plan = ComparePlan()
    run = ComparisonRun(Sampled("production", seed=1), [Sampled(ADDRESS, wrong=0.3, seed=2)], plan)
    drive(run, traffic(), Until(), stop=threading.Event(), tell=lambda _: None)
    run.close()
    origin = ComparisonOrigin(
        1_790_000_000_000_000, {ADDRESS: f"https://{ADDRESS}", "production": "https://" + "p" * 90}
    )
    found = CompareReport.of(
        run, plan, ending="decided", funnel={"seen": 20_000}, seconds=1.0, origin=origin
    ).data
    found["production"]["prompt"] = "You route letters.\n" + "Answer in one word. " * 30
    found["candidates"][0]["prompt"] = "You route letters.\nBe brief." + "x" * 200
    found["candidates"][0]["models"] = ["router-large-2026-11-01", "router-small"]
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


@pytest.mark.parametrize("width", [400, 1100])
def test_a_kept_comparison_is_labelled_by_keyboard_under_the_policy_of_the_service(
    width: int, found: Mapping[str, Any], sample: Sample, tmp_path: Path
) -> None:
    chromium = require_program("chromium", "apt-get install -y chromium")
    comparisons = Comparisons(tmp_path)
    id_ = comparisons.keep(read_report(json.dumps(found).encode()), now_us=1)
    settings = Settings(
        base=tmp_path, storage=StorageSettings(folder=str(tmp_path)), models={MODEL: ModelSettings()}
    )
    app = every_app(sample.engine, sample.journal, settings)
    with LocalServer(app) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 800})
        tab.set_default_timeout(PATIENCE_S * 1000)
        said: list[str] = []
        tab.on("console", lambda message: said.append(message.text))
        tab.goto(f"{server.url}/compare")
        tab.click(f"a[href='/compare/{id_}']")
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        tab.wait_for_selector("text=0 of 40 pairs labelled")
        for at, key in enumerate("abne", 1):
            tab.keyboard.press(key)
            tab.wait_for_selector(f"text={at} of 40 pairs labelled")
        tab.click("button[data-key=a]")
        tab.wait_for_selector("text=5 of 40 pairs labelled")
        browser.close()
    assert said == []
    kept = comparisons.read(id_)
    assert kept is not None
    first = kept.report["candidates"][0]["to_label"][:5]
    shown = [shuffled(pair["id"]) for pair in first]
    wanted = [shown[0][0], shown[1][1], "neither", "both", shown[4][0]]
    assert [pair["right"] for pair in first] == wanted
