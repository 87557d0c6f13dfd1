"""Pauses: the worker follows the rows, capture goes on, the backlog is judged after all."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from outrider.dataops.state import pauses
from outrider.dataops.state.database import write
from outrider.dataops.state.pauses import What
from outrider.errors import NotFound
from tests.asgi import get
from tests.declared_bodies import check_body
from tests.end_to_end.service import write_project
from tests.monitor.services import every_app

from .web.sample import MODEL, Sample, build
from .workbench import Workbench, workbench


def records(name: str, rows: int = 40) -> list[dict[str, Any]]:
    return [{"id": f"{name}{n}", "inputs": {"x": n / rows}, "attrs": {"device": "a"}} for n in range(rows)]


def pause(bench: Workbench, what: What, model: str = "toy") -> None:
    with write(bench.engine) as connection:
        pauses.pause(connection, what, model=model, who="ann", now_us=1)
    bench.worker._refresh(force=True)


def resume(bench: Workbench, what: What) -> None:
    with write(bench.engine) as connection:
        pauses.resume(connection, what, model="")
    bench.worker._refresh(force=True)


def gauge(bench: Workbench, what: str) -> float | None:
    return bench.registry.get_sample_value("outrider_paused", {"model": "toy", "what": what})


@pytest.mark.parametrize("model", ["toy", ""])
def test_nothing_is_judged_while_shadow_models_rest_and_everything_after(tmp_path: Path, model: str) -> None:
    with workbench(write_project(tmp_path)) as bench:
        bench.feed(records("a"))
        bench.work()
        pause(bench, "shadow", model)
        bench.feed(records("b"))
        bench.label({"a0": 0, "b0": 0})
        bench.work()
        assert (bench.count("records"), bench.count("labels")) == (40, 0)
        bench.worker._refresh(force=True)
        assert gauge(bench, "shadow") == 1
        waiting = bench.registry.get_sample_value(
            "outrider_lag_records", {"model": "toy", "role": "champion"}
        )
        assert waiting == 40
        bench.restart()  # a pause outlives the worker
        bench.work()
        assert bench.count("records") == 40
        resume(bench, "shadow")
        bench.work()
        assert (bench.count("records"), bench.count("labels")) == (80, 2)
        assert gauge(bench, "shadow") == 0


def test_another_model_that_rests_changes_nothing(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        pause(bench, "shadow", "other")
        bench.feed(records("a"))
        bench.work()
        assert bench.count("records") == 40


def test_questions_of_resting_live_tests_are_counted_as_shed_and_the_rest_is_judged(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path)) as bench:
        pause(bench, "live-tests")
        bench.feed(records("a"))
        bench.work()
        assert bench.count("records") == 40
        statuses = dict(bench.rows("SELECT status, count(*) FROM live_answer GROUP BY status"))
        assert set(statuses) == {"shed"}
        assert statuses["shed"] > 5
        resume(bench, "live-tests")
        bench.feed(records("b"))
        bench.work()
        statuses = dict(bench.rows("SELECT status, count(*) FROM live_answer GROUP BY status"))
        assert statuses["passed"] > 0


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Sample]:
    made = build(tmp_path, blocks=4)
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture
def app(sample: Sample, tmp_path: Path) -> FastAPI:
    return every_app(sample.engine, sample.journal, models=(MODEL,), folder=tmp_path, health={"worker": True})


def post(app: FastAPI, url: str, json: object) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.post(f"http://test{url}", json=json)

    answer = asyncio.run(send())
    check_body(app, answer)
    return answer


def test_pauses_over_http_and_on_the_page(app: FastAPI) -> None:
    page = f"/m/{MODEL}"
    assert "paused" not in get(app, page).text
    made = post(app, "/v1/pauses", {"what": "shadow", "who": "<ann>"})
    assert made.status_code == 201
    again = post(app, "/v1/pauses", {"what": "shadow", "who": "bob"})
    assert again.json() == made.json()  # the first one stands
    assert get(app, "/v1/pauses").json()["pauses"] == [made.json()]
    text = get(app, page).text
    assert "Shadow models are</b>" not in text
    assert "Shadow models are paused</b> for every model since" in text
    assert "by &lt;ann&gt;" in text
    refused = post(app, "/v1/pauses/resume", {"what": "shadow", "model": MODEL})
    assert refused.status_code == 404
    assert "for every model" in refused.json()["detail"]
    own = post(app, "/v1/pauses", {"what": "shadow", "model": MODEL, "who": "cal"})
    ended = post(app, "/v1/pauses/resume", {"what": "shadow", "model": MODEL})
    assert ended.json() == {"pauses": [own.json()], "still": [made.json()]}
    ended = post(app, "/v1/pauses/resume", {"what": "shadow"})
    assert ended.json()["still"] == []
    assert [row["who"] for row in ended.json()["pauses"]] == ["<ann>"]
    assert "paused" not in get(app, page).text
    assert post(app, "/v1/pauses/resume", {"what": "shadow"}).status_code == 404


def test_what_is_not_known_cannot_be_paused(app: FastAPI) -> None:
    assert post(app, "/v1/pauses", {"what": "everything"}).status_code == 422
    unknown = post(app, "/v1/pauses", {"what": "shadow", "model": "nobody"})
    assert unknown.status_code == 404
    assert "no model 'nobody'" in unknown.json()["detail"]


def test_resuming_all_ends_the_pauses_of_single_models_too(sample: Sample) -> None:
    with write(sample.engine) as connection:
        for model in ("", "a", "b"):
            pauses.pause(connection, "shadow", model=model, who="", now_us=1)
        pauses.pause(connection, "live-tests", model="a", who="", now_us=1)
        assert len(pauses.resume(connection, "shadow", model="a")) == 1
        assert len(pauses.resume(connection, "shadow", model="")) == 2
        assert [row.what for row in pauses.list_pauses(connection)] == ["live-tests"]
        with pytest.raises(NotFound, match="shadow of a is not paused"):
            pauses.resume(connection, "shadow", model="a")
