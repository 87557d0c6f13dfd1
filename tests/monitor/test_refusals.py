"""Refused records stand in counts: on pages, in the API and on the command line, over restarts."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from outrider.monitor.http.refusals import MOST, RefusalBook
from outrider.monitor.server.app import build_app
from outrider.monitor.views.every import every_router
from outrider.monitor.views.service import Service
from tests.asgi import get
from tests.databases import migrated_for
from tests.keyrings import keyring_in

from .test_intake import ONE, running


def kinds(book: RefusalBook, model: str | None = None) -> list[tuple[Any, ...]]:
    found = book.listed(model, ("churn", "digits"))
    return [(kind.model, kind.reason, kind.field, kind.count, kind.example) for kind in found]


def test_refused_records_are_counted_by_reason_and_field_and_kept_over_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as call:
        assert call("POST", "/v1/records", json=ONE).status_code == 202
        assert kinds(call.intake.refusals) == []
        odd = [{"model": "digits", "id": f"b{n}", "inputs": {"image": "secret"}} for n in range(21)]
        call("POST", "/v1/records", json=[ONE | {"id": "a2"}, *odd])
        call("POST", "/v1/records", json=ONE | {"model": "chrun"})
        call("POST", "/v1/records?model=churn", content=b"{", headers={"content-type": "application/json"})
        found = sorted(kinds(call.intake.refusals))
        assert found == [
            ("chrun", "unknown_model", "model", 1, "a1"),
            ("churn", "malformed", "", 1, None),
            ("digits", "schema", "inputs.image", 21, "b0"),
        ]
        assert {kind[0] for kind in kinds(call.intake.refusals, "digits")} == {"digits", "chrun"}
    file = tmp_path / "outrider-data" / "run" / "refused.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in file.read_text()
    with running(tmp_path) as call:
        assert sorted(kinds(call.intake.refusals)) == found


def test_a_flood_of_kinds_is_bounded_and_loses_no_count() -> None:
    book = RefusalBook(now_us=iter(range(10_000)).__next__)
    for number in range(3 * MOST):
        book.note(model="m", reason="schema", field=f"inputs.f{number}\x1b", record_id="x" * 10_000)
    found = book.listed()
    assert len(found) == MOST
    assert sum(kind.count for kind in found) == 3 * MOST
    assert found[0].field == f"inputs.f{3 * MOST - 1}�"
    assert len(found[0].example or "") == 200
    assert max((kind.count, kind.field) for kind in found) == (2 * MOST + 1, "*")


def test_a_file_that_is_none_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "refused.json").write_text('[{"model": 1}]')
    assert RefusalBook(tmp_path / "refused.json").listed() == []


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    with running(tmp_path) as call:
        settings, book = call.intake.settings, call.intake.refusals
        call("POST", "/v1/records", json=ONE)
        odd = [{"model": "digits", "id": f"<b{n}>", "inputs": {"image": "x"}} for n in range(21)]
        call("POST", "/v1/records", json=odd)
    migrated_for(settings).dispose()
    routers = [every_router(Service.open(settings, keyring_in(settings.data_folder), refusals=book))]
    return build_app(fault=lambda: None, routers=routers)


def test_overview_and_data_page_and_api_show_them(app: FastAPI) -> None:
    overview = get(app, "/m/digits").text
    assert "<b>21</b> records were refused and are not judged" in overview
    for page in (overview, get(app, "/m/digits/datasets").text):
        assert "<code>inputs.image</code>" in page
        assert "&lt;b0&gt;" in page
        assert "<b0>" not in page
    assert "None: every record that came was taken." in get(app, "/m/churn").text
    (row,) = get(app, "/v1/rejected?model=digits").json()["rejected"]
    assert (row["reason"], row["field"], row["count"], row["example"]) == (
        "schema",
        "inputs.image",
        21,
        "<b0>",
    )
    assert row["last"].endswith("Z") or "+00:00" in row["last"]
    assert get(app, "/v1/rejected?model=nobody").status_code == 404
