"""Rows that a champion learned from, as the reference of its profiles."""

from pathlib import Path

from sqlalchemy import Engine

from outrider.assertions.profiling import ProfileLayout
from outrider.dataops.loaders.training_rows import training_rows
from outrider.dataops.models import registry
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from tests.dataops.test_datasets import commit, rows
from tests.model_sources import FUNCTION


def champion_of(engine: Engine, dataset: str | None) -> None:
    with write(engine) as connection:
        registry.register(
            connection, model="digits", version="1", status="champion", digest="0", weights=None, now_us=1,
            made_from=[] if dataset is None else [("dataset", dataset, "fresh")], source=FUNCTION,
        )  # fmt: skip


def test_rows_are_the_training_part_of_the_champions_dataset_version(
    engine: Engine, objects: LocalObjects
) -> None:
    commit(engine, objects, rows([f"{'ab'[n % 2]}{n}" for n in range(600)]))
    commit(engine, objects, rows([f"c{n}" for n in range(50)]), part="held_out")
    newest = commit(engine, objects, rows([f"d{n}" for n in range(500)]))
    champion_of(engine, newest.id)
    found = training_rows(engine, objects, "digits", least=1000)
    assert found is not None
    assert (found[0], found[1].rows) == ("dataset d@3", 1100)
    layout = ProfileLayout.fit(found[1])
    assert "inputs.image#norm" in layout.by_name
    assert training_rows(engine, objects, "digits", least=2000) is None


def test_a_model_without_a_dataset_or_whose_files_are_lost_has_no_reference(
    engine: Engine, objects: LocalObjects, tmp_path: Path
) -> None:
    assert training_rows(engine, objects, "digits", least=1) is None
    newest = commit(engine, objects, rows("abc"))
    champion_of(engine, newest.id)
    assert training_rows(engine, objects, "digits", least=1) is not None
    for path in objects.folder.rglob("*"):
        if path.is_file():
            path.unlink()
    assert training_rows(engine, objects, "digits", least=1) is None
