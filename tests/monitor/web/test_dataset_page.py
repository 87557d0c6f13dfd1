"""Page of one dataset version: what is in it, what changed, and that content is no markup."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi import FastAPI
from sqlalchemy import insert, text

from outrider.assertions import Batch
from outrider.dataops.datasets import changes, quarantine
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.diff_reasons import reasons
from outrider.dataops.datasets.erased import erase_rows
from outrider.dataops.datasets.references import set_tag
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.models.lineage import add_edges
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import improvement_tables
from outrider.dataops.state.database import write
from outrider.monitor.views.datasets import diff as dataset_diff
from tests.asgi import get
from tests.monitor.services import every_app

from .sample import HOSTILE, MODEL, Sample, build

EVIL = "<script>alert(1)</script>"
FLAGS = '[["blurry", "rev-3", 0.812]]'
MIX = {"rows": 3, "columns": {"label.label": {"of": {"[0, 1]": [1, 2, 0]}}}}


def rows(ids: list[str], labels: list[int]) -> Batch:
    columns = {
        "id": ids,
        "ts": np.full(len(ids), np.datetime64("2026-01-05", "us")),
        "inputs.text": [EVIL] * len(ids),
        "label.label": labels,
    }
    return Batch.from_columns(columns, model=MODEL)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Sample]:
    """A sample that these tests may change."""
    made = build(tmp_path / "own", blocks=4)
    yield made
    made.engine.dispose()
    made.journal.close()


@pytest.fixture
def app(own: Sample, tmp_path: Path) -> FastAPI:
    objects = LocalObjects(tmp_path / "objects")
    steps: list[tuple[list[str], list[int], str, list[str]]] = [
        (["a", HOSTILE, "c"], [0, 1, 1], "crowd", []),
        ([HOSTILE], [0], "expert", ["c"]),
    ]
    for ids, labels, source, removed in steps:
        with write(own.engine) as connection:
            draft = changes.prepare(
                connection,
                objects,
                dataset="kept",
                batch=rows(ids, labels),
                provenance=[Provenance(name, "blurry", source, flags=FLAGS, reviewer="ada") for name in ids],
                append=True,
                removed=removed,
            )
            version = changes.commit(connection, draft, validation={"aggregates": MIX}, now_us=1)
    with write(own.engine) as connection:
        add_edges(connection, "model", "digits@9", [("dataset", version.id, "fresh")], now_us=1)
    return every_app(own.engine, own.journal, models=(MODEL,), objects=objects)


def test_a_version_shows_what_it_is_what_changed_and_who_learned_from_it(app: FastAPI) -> None:
    html = get(app, f"/m/{MODEL}/datasets/kept/2").text
    assert "<h1>kept@2</h1>" in html
    assert "crowd → expert" in html
    assert "1 → 0" in html
    assert "digits@9" in html
    assert 'blurry 0.812 <span class="mono faint">rev-3</span>' in html
    assert "reviewed by ada" in html
    assert "<td>removed</td>" in html
    assert 'value="2"></meter>' in html  # rows of class 1
    assert EVIL not in html
    assert HOSTILE not in html
    assert f'href="/m/{MODEL}/datasets/kept/1">its parent 1</a>' in html
    first = get(app, f"/m/{MODEL}/datasets/kept/1").text
    assert "Against version" not in first
    assert f'href="/m/{MODEL}/datasets/kept/2"' in get(app, f"/m/{MODEL}/datasets").text


def test_the_page_of_a_record_says_why_it_is_in_a_dataset(app: FastAPI, own: Sample) -> None:
    with own.engine.connect() as connection:
        record = str(connection.scalar(text("SELECT max(id) FROM record")))
    with write(own.engine) as connection:
        values = "record_id = :id, model_version = '3', weight = 2.5, label_seq = 9, label_row = 4"
        query = text(f"UPDATE dataset_row SET {values} WHERE record_id = 'a'")
        connection.execute(query, {"id": record})
    html = get(app, f"/m/{MODEL}/records/{record}").text
    assert "train, label 9.4 from crowd, version 3 judged, weight 2.5" in html
    assert 'blurry 0.812 <span class="mono faint">rev-3</span>' in html


def test_a_dataset_shows_growth_provenance_of_labels_quarantine_and_versions(
    app: FastAPI, own: Sample
) -> None:
    with write(own.engine) as connection:
        held = {HOSTILE: "inputs.x: too small", "b": "inputs.x: too small"}
        quarantine.hold(connection, "kept", held, rules="", labels={}, now_us=1)
        quarantine.settle(connection, "drop", dataset="kept", records=["b"])
    html = get(app, f"/m/{MODEL}/datasets/kept").text
    assert "<h1>kept</h1>" in html
    assert 'aria-label="2 rows in version 2"' in html
    assert '<th scope="row">expert</th><td class="n">1</td>' in html
    assert '<th scope="row">blurry</th><td class="n">2</td>' in html
    assert "1 dropped, 1 held" in html
    assert '<td class="small">inputs.x: too small</td><td class="n">1</td>' in html
    assert "1 relabelled, 1 removed" in html
    assert f'href="/m/{MODEL}/datasets/kept/diff?old=1&amp;new=2">difference</a>' in html
    assert HOSTILE not in html
    first = get(app, f"/m/{MODEL}/datasets/kept?upto=1").text
    assert "kept/1" in first
    assert "newest versions" in first
    assert get(app, f"/m/{MODEL}/datasets/other").status_code == 404
    assert get(app, "/m/other/datasets/kept").status_code == 404


def test_a_difference_says_which_rows_why_and_by_column(app: FastAPI, own: Sample) -> None:
    with write(own.engine) as connection:
        withdrawal = {"seq": 70, "row": 0, "model": MODEL, "record_id": "c", "source": "ada", "label": {}}
        given_later = withdrawal | {"seq": 71, "value": "1", "label": {"label": 1}, "received_us": 2}
        for row in ({"received_us": 1} | withdrawal, given_later):
            connection.execute(insert(improvement_tables.Label), [row | {"ts_us": 1}])
    html = get(app, f"/m/{MODEL}/datasets/kept/diff?old=1&new=2").text
    assert "<h1>kept: 1 → 2</h1>" in html
    assert "label corrected, from expert" in html
    assert "label withdrawn by ada" in html
    assert '<th scope="row">label.label</th><td class="n">1</td>' in html
    assert "1 → 0: 1" in html
    assert "1 to 2 of 2" in html
    assert HOSTILE not in html
    back = get(app, f"/m/{MODEL}/datasets/kept/diff?old=2&new=1").text
    assert "0 → 1: 1" in back
    assert "flagged by blurry; label from crowd" in back
    assert "The rows of both are the same" in get(app, f"/m/{MODEL}/datasets/kept/diff?old=2&new=2").text
    assert get(app, f"/m/{MODEL}/datasets/kept/diff?old=1&new=9").status_code == 404
    assert get(app, f"/m/{MODEL}/datasets/kept/diff?old=1").status_code == 422


def test_a_difference_with_too_many_rows_for_a_page_names_the_command(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_diff, "MOST_CHANGES", 1)
    html = get(app, f"/m/{MODEL}/datasets/kept/diff?old=1&new=2").text
    assert "too many for a page: `outrider dataset diff kept 1 2`" in html


def test_a_row_that_was_written_anew_names_its_columns(own: Sample, tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path / "objects")
    for text_, label, real in (("one", 1, 1.0), ("two", 1, float("nan"))):
        batch = rows(["a"], [label])
        batch = batch.with_columns({"inputs.text": [text_], "attrs.x": [real]})
        with write(own.engine) as connection:
            draft = changes.prepare(
                connection,
                objects,
                dataset="anew",
                batch=batch,
                provenance=[Provenance("a")],
                append=True,
            )
            version = changes.commit(connection, draft, validation={}, now_us=1)
    with own.engine.connect() as connection:
        old = datasets.get(connection, "anew", 1)
        (row,) = datasets.diff(connection, objects, old, version, limit=5).rows
        assert sorted(row.columns) == ["attrs.x", "inputs.text"]
        assert reasons(connection, version, [row]) == [f"other content: {', '.join(row.columns)}"]


def test_versions_of_others_and_lost_files_are_said(app: FastAPI, own: Sample, tmp_path: Path) -> None:
    assert get(app, f"/m/{MODEL}/datasets/kept/7").status_code == 404
    with own.engine.connect() as connection:
        digest = str(connection.scalar(text("SELECT sha256 FROM dataset_file WHERE dataset = 'kept'")))
    (tmp_path / "objects" / digest[:2] / digest).unlink()
    html = get(app, f"/m/{MODEL}/datasets/kept/2").text
    assert f"no object {digest}" in html
    with write(own.engine) as connection:
        connection.execute(text("UPDATE dataset_version SET model = 'other' WHERE dataset = 'kept'"))
    assert get(app, f"/m/{MODEL}/datasets/kept/2").status_code == 404


def test_a_version_shows_its_tags(app: FastAPI, own: Sample) -> None:
    with write(own.engine) as connection:
        set_tag(connection, "kept", "reviewed", "2", moves=False, now_us=1)
    assert "<dt>tags</dt><dd>reviewed</dd>" in get(app, f"/m/{MODEL}/datasets/kept/2").text
    assert "<dt>tags</dt>" not in get(app, f"/m/{MODEL}/datasets/kept/1").text


def test_a_version_says_that_rows_were_erased(app: FastAPI, own: Sample, tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path / "objects")
    docs = f"/m/{MODEL}/datasets/kept/1/data-docs"
    assert get(app, docs).status_code == 404
    assert "erased" not in get(app, f"/m/{MODEL}/datasets/kept/2").text
    erase_rows(own.engine, objects, ["c"])
    first = get(app, f"/m/{MODEL}/datasets/kept/1").text
    assert "1 row was erased from this version" in first
    assert "its file is gone" not in first
    second = get(app, f"/m/{MODEL}/datasets/kept/2").text
    assert "erased" not in second
    assert "<td>removed</td>" not in second
    gone = get(app, docs)
    assert gone.status_code == 410
    assert "they told figures of rows that were erased" in gone.text
