"""Pages of models with many dataset versions: bounded, and counted once, at the commit."""

import pyarrow as pa
import pytest
from sqlalchemy import event, insert

from outrider.dataops.datasets.changes import row_counts
from outrider.dataops.datasets.digests import LANES
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.state import improvement_tables
from outrider.dataops.state.database import write
from outrider.monitor.queries import improvement
from tests.asgi import get

from .conftest import make_app
from .sample import MODEL, Sample, build

VERSIONS = 1_200


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """A sample whose dataset has many versions, the last of them trained on."""
    own = build(tmp_path_factory.mktemp("long"), blocks=2)
    edges = [
        ("dataset", f"digits-flagged@{number}", "dataset", f"digits-flagged@{number - 1}")
        for number in range(2, VERSIONS + 1)
    ]
    edges.append(("model", f"{MODEL}@3", "dataset", f"digits-flagged@{VERSIONS}"))
    names = ("child_kind", "child", "parent_kind", "parent")
    counts = row_counts([Provenance("a", "blurry", "human"), Provenance("b", None, "weak:one,two")])
    changes = {"added": 0, "relabelled": 2, "removed": 0}
    manifest = {"bytes": 0, "changes": changes, "columns": {}, "counts": counts, "validation": {}}
    version = {"dataset": "digits-flagged", "model": MODEL, "parent": 1, "digest": "d" * 64, "rows": 2}
    version |= {"arrow_schema": pa.schema([]).serialize().to_pybytes(), "state": bytes(2 * LANES)}
    with write(own.engine) as connection:
        connection.execute(
            insert(improvement_tables.LineageEdge),
            [dict(zip(names, edge, strict=True)) | {"role": "parent", "created_us": 1} for edge in edges],
        )
        connection.execute(
            insert(improvement_tables.DatasetVersion),
            [
                version | {"number": number, "manifest": manifest, "created_us": 2**51 + number}
                for number in range(2, VERSIONS + 1)
            ],
        )
    return own


def test_a_long_lineage_is_shown_in_parts_that_link_on(long: Sample) -> None:
    app = make_app(long)
    page = get(app, f"/m/{MODEL}/lineage")
    assert page.status_code == 200
    assert "more follow behind the links" in page.text
    assert f"digits-flagged@{VERSIONS}" in page.text
    address = page.text.partition("/lineage?start=")[2].partition('"')[0]
    following = get(app, f"/m/{MODEL}/lineage?start={address}")
    assert following.status_code == 200
    name = address.replace("%3A", ":").replace("%40", "@")
    assert f"Lineage of {name}" in following.text
    assert f"digits-flagged@{VERSIONS}" not in following.text
    unknown = get(app, f"/m/{MODEL}/lineage?start=dataset:<b>")
    assert "There is no lineage of dataset:&lt;b&gt;" in unknown.text


def test_the_datasets_page_counts_no_rows(long: Sample) -> None:
    statements: list[str] = []

    def note(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    event.listen(long.engine, "before_cursor_execute", note)
    try:
        views = improvement.list_datasets(long.engine, MODEL)
        asked = len(statements)
        page = get(make_app(long), f"/m/{MODEL}/datasets")
    finally:
        event.remove(long.engine, "before_cursor_execute", note)
    assert asked == 2  # BEGIN, and one query for all versions
    assert not [sql for sql in statements if "dataset_row" in sql]
    assert page.status_code == 200
    assert views[0].number == VERSIONS
    assert views[0].by_assertion == (("blurry", 1),)
    assert views[0].by_source == (("human", 1), ("weak:one,two", 1))
    assert views[0].by_part == (("train", 2),)
