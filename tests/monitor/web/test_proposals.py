"""Learning from stored traffic on the page and over HTTP; accepting writes Python and runs none."""

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from outrider.assertions import load_assertions
from outrider.assertions.learn import merged
from outrider.dataops.flags import quality
from outrider.dataops.learned.proposals import learned_path
from outrider.dataops.state import tables
from outrider.dataops.state.database import write
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import StorageSettings
from outrider.monitor.views.proposals.reader import Learner, learned_file, learner_of
from tests.declared_bodies import check_body
from tests.monitor.services import every_app
from tests.soak import PATIENCE_S

from .sample import MODEL, Sample, add, build
from .test_assertion_page import Browser

PAGE = f"/m/{MODEL}/proposals"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sample]:
    made = build(tmp_path_factory.mktemp("stored"), blocks=24)
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture(scope="module")
def learned(stored: Sample, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one run over the sample leaves behind."""
    settings = of(stored, tmp_path_factory.mktemp("learned"))
    learner = Learner(settings)
    learner.start(MODEL)
    with pytest.raises(ProblemError, match="under way"):
        learner.start(MODEL)
    wait(learner)
    return learned_path(settings.data_folder, MODEL).read_text()


def of(stored: Sample, base: Path, *, assertions: tuple[str, ...] = ("checks.py", "learned.py")) -> Settings:
    """A configuration of its own over the sample's journal."""
    settings = Settings(
        base=base,
        storage=StorageSettings(folder="data"),
        models={MODEL: ModelSettings(assertions=assertions), "churn": ModelSettings()},
    )
    settings.data_folder.mkdir()
    settings.journal_path.symlink_to(Path(stored.engine.url.database or "").with_name("journal.db"))
    return settings


def wait(learner: Learner, model: str = MODEL) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while learner.read(model, {}).status == "learning":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def having(settings: Settings, learned: str) -> Settings:
    path = learned_path(settings.data_folder, MODEL)
    path.parent.mkdir()
    path.write_text(learned)
    return settings


def test_one_click_learns_and_one_accepts(stored: Sample, tmp_path: Path) -> None:
    settings = of(stored, tmp_path)
    learner = Learner(settings)
    browser = Browser(stored, learner)
    assert "nothing was learned" in browser.page(PAGE)
    assert browser.press(PAGE, f"{PAGE}/learn", "Learn from stored traffic").status_code == 303
    assert 'hx-trigger="every 2s"' in browser.page(PAGE)  # while it learns
    wait(learner)
    page = browser.page(PAGE)
    assert "score_range" in page
    assert "score_range = bounds(" in page
    assert "hx-trigger" not in page
    answer = browser.press(PAGE, f"{PAGE}/accept", "Accept")
    assert (answer.status_code, answer.headers["location"]) == (303, PAGE)
    file = tmp_path / "learned.py"
    [first] = load_assertions(file)
    assert f'id="proposal-{first.name}"' in browser.page(PAGE)
    assert "<code>outrider reload</code> shows the reason" in browser.page(PAGE)
    found = learner.read(MODEL, {}).found
    assert found is not None
    browser.press(PAGE, f"{PAGE}/accept", f"Accept all {len(found.proposals) - 1}")
    assert {judge.name for judge in load_assertions(file)} == {one.name for one in found.proposals}
    assert ">Accept" not in browser.page(PAGE)


def test_a_session_without_the_forms_token_changes_nothing(
    stored: Sample, tmp_path: Path, learned: str
) -> None:
    browser = Browser(stored, Learner(having(of(stored, tmp_path), learned)))
    for action in ("learn", "accept"):
        assert browser.ask("POST", f"{PAGE}/{action}", {"next": PAGE}).status_code == 403
    assert not (tmp_path / "learned.py").exists()


def test_proposals_that_nobody_saw_are_not_accepted(stored: Sample, tmp_path: Path, learned: str) -> None:
    learner = Learner(having(of(stored, tmp_path), learned))
    with pytest.raises(ProblemError, match="newer proposals exist"):
        learner.accept(MODEL, None, {}, learned_us=1)


def test_states_follow_the_file_and_the_worker(stored: Sample, tmp_path: Path, learned: str) -> None:
    settings = having(of(stored, tmp_path), learned)
    learner = Learner(settings)
    found = learner.read(MODEL, {}).found
    assert found is not None
    one, other = found.proposals[:2]

    def state(active: dict[str, str] | None = None) -> str:
        return learner.read(MODEL, active or {}).states[one.name]

    assert state() == "proposed"
    assert state({one.name: "a person's own"}) == "taken"
    file, changed, _ = learner.accept(MODEL, [one.name], {})
    assert (file, changed, learner.accept(MODEL, [one.name], {})[1]) == (tmp_path / "learned.py", True, False)
    assert state({one.name: "of an earlier one"}) == "accepted"
    [loaded] = load_assertions(file)
    assert state({one.name: loaded.revision}) == "active"
    file.write_text(merged("", [dataclasses.replace(one, support=1)]))
    assert state() == "accepted"
    file.write_text(
        merged("", [dataclasses.replace(one, parameters=other.parameters, factory=other.factory)])
    )
    assert state() == "changed"
    file.write_text(f"{other.name} = 'written by hand'\n")
    with pytest.raises(ProblemError, match="has this name"):
        learner.accept(MODEL, [other.name], {})
    assert file.read_text() == f"{other.name} = 'written by hand'\n"


def test_files_are_written_and_never_run(stored: Sample, tmp_path: Path, learned: str) -> None:
    file = tmp_path / "learned.py"
    file.write_text("import pathlib\n\npathlib.Path(__file__).with_name('ran').touch()\n")
    learner = Learner(having(of(stored, tmp_path), learned))
    learner.accept(MODEL, None, {})
    learner.read(MODEL, {})
    assert "bounds(" in file.read_text()
    assert not (tmp_path / "ran").exists()
    assert str(file) not in {getattr(module, "__file__", None) for module in sys.modules.values()}


def test_without_a_file_the_page_says_what_to_add(stored: Sample, tmp_path: Path, learned: str) -> None:
    settings = having(of(stored, tmp_path, assertions=("checks.py",)), learned)
    assert learned_file(settings, MODEL) is None
    learner = Learner(settings)
    browser = Browser(stored, learner)
    page = browser.page(PAGE)
    assert "assertions = [&#34;checks.py&#34;, &#34;learned.py&#34;]" in page
    assert ">Accept" not in page
    with pytest.raises(ProblemError, match=f"models.{MODEL}"):
        learner.accept(MODEL, None, {})
    assert [path.name for path in tmp_path.glob("*.py")] == []


def test_a_rule_of_a_column_that_drifts_is_marked(stored: Sample, tmp_path: Path, learned: str) -> None:
    body = json.loads(learned)
    moved = body["proposals"][0] | {"drift": {"outputs.score": 0.31}}
    settings = having(of(stored, tmp_path), json.dumps(body | {"proposals": [moved, *body["proposals"][1:]]}))
    page = Browser(stored, Learner(settings)).page(PAGE)
    assert page.count(">drifts<") == 1 + sum(bool(one["drift"]) for one in body["proposals"][1:])
    assert "outputs.score by 0.31 within these records" in page


def test_why_learning_failed_is_shown(stored: Sample, tmp_path: Path) -> None:
    learner = Learner(of(stored, tmp_path))
    learner.start("churn")
    wait(learner, "churn")
    assert "no record of churn is stored yet" in Browser(stored, learner).page("/m/churn/proposals")
    hurried = Learner(learner._settings, limit_s=0.01)
    hurried.start(MODEL)
    wait(hurried)
    assert "not done after 0.01 s" in hurried.read(MODEL, {}).detail


def ask(app: FastAPI, method: str, url: str, json: object = None) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.request(method, f"http://test{url}", json=json)

    answer = asyncio.run(send())
    check_body(app, answer)
    return answer


def test_the_api_does_what_the_page_does(stored: Sample, tmp_path: Path) -> None:
    settings = of(stored, tmp_path)
    learner = Learner(settings)
    app = every_app(stored.engine, settings=settings, readers={learner_of: learner})
    url = f"/v1/proposals?model={MODEL}"
    assert ask(app, "GET", url).json()["status"] == "none"
    started = ask(app, "POST", "/v1/proposals", {"model": MODEL})
    assert (started.status_code, started.json()["status"]) == (202, "learning")
    assert ask(app, "POST", "/v1/proposals", {"model": MODEL}).status_code == 409
    wait(learner)
    found = ask(app, "GET", url).json()
    assert (found["status"], found["records"]) == ("done", stored.records)
    chosen = found["proposals"][0]
    assert chosen["python"].startswith("# Learned: ")
    low, high = chosen["interval"]
    assert low <= chosen["expected_fire_rate"] <= high
    accepted = ask(app, "POST", "/v1/proposals/accept", {"model": MODEL, "names": [chosen["name"]]})
    assert accepted.json()["file"] == str(tmp_path / "learned.py")
    assert "outrider reload" in accepted.json()["note"]
    assert ask(app, "GET", url).json()["proposals"][0]["state"] == "accepted"
    missing = ask(app, "POST", "/v1/proposals/accept", {"model": MODEL, "names": ["nothing"]})
    assert missing.status_code == 404
    assert ask(app, "GET", "/v1/proposals?model=other").status_code == 404


def test_a_name_that_judges_already_is_taken(stored: Sample, tmp_path: Path, learned: str) -> None:
    learner = Learner(having(of(stored, tmp_path), learned))
    with write(stored.engine) as connection:
        add(
            connection,
            tables.AssertionRow,
            model=MODEL,
            name="score_range",
            revision="by hand",
            kind="assertion",
            level="info",
            description="",
            owner="",
            active=True,
            suspended_until_us=0,
            first_seen_us=1,
        )
    active = quality.active_revisions(stored.engine, MODEL)
    assert learner.read(MODEL, active).states["score_range"] == "taken"
    learner.accept(MODEL, None, active)
    assert "score_range" not in (tmp_path / "learned.py").read_text()
