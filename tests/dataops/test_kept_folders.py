"""Kept folders: one digest for many files, opened whole or not at all."""

import os
from pathlib import Path

import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.content import content_of, keep_files, opened_source
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights, load_architecture
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.folders import WrongFolder, check_names, keep_folder, opened_folder, unopened
from outrider.dataops.payloads.objects import CorruptObject, LocalObjects
from outrider.dataops.state.database import write
from outrider.dataops.upkeep.garbage import collect_garbage
from outrider.errors import ConfigError, NotFound
from tests.databases import migrated

from .model_kinds.test_adapter_folders import LORA, MODULE, pair
from .model_kinds.test_adapter_folders import write as write_adapter

RULES = """
import numpy as np

def made(folder):
    bound = float((folder / "bound.txt").read_text())
    return lambda batch: {"label": batch.column("inputs.x") > bound}
"""
ROWS = Batch.from_records([{"id": "a", "inputs": {"x": 1.0}}, {"id": "b", "inputs": {"x": 3.0}}], model="m")


def files(folder: Path, **texts: str) -> dict[str, Path]:
    made = {name.replace("__", "/"): text for name, text in texts.items()}
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {name: folder / name for name in made}


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "objects")


def test_equal_folders_are_one_object_and_come_back_as_they_were(
    objects: LocalObjects, tmp_path: Path
) -> None:
    given = files(tmp_path / "in", a="one", sub__b="two")
    digest = keep_folder(objects, given)
    assert keep_folder(objects, dict(reversed(given.items()))) == digest
    opened = opened_folder(objects, digest, tmp_path / "cache")
    assert {p.relative_to(opened).as_posix() for p in opened.rglob("*") if p.is_file()} == {"a", "sub/b"}
    assert (opened / "sub" / "b").read_text() == "two"
    assert (opened / "a").stat().st_nlink == 2  # a link: the object takes its place once
    assert opened_folder(objects, digest, tmp_path / "cache") == opened


@pytest.mark.parametrize("name", ["../a", "/a", "a/../b", ".hidden", "a//b", "a\\b", "", "a\n", "ä"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(WrongFolder, match="below the folder"):
        check_names([name])


def test_a_file_that_is_a_folder_too_and_links_are_refused(objects: LocalObjects, tmp_path: Path) -> None:
    with pytest.raises(WrongFolder, match="is a file already"):
        check_names(["a", "a/b"])
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(WrongFolder, match="is a link"):
        keep_folder(objects, {"a": tmp_path / "link"})
    with pytest.raises(WrongFolder, match="no manifest"):
        opened_folder(objects, objects.put(b'{"a": 1}'), tmp_path / "cache")


def test_lost_and_damaged_folders_are_made_again_and_damaged_objects_told(
    objects: LocalObjects, tmp_path: Path
) -> None:
    digest = keep_folder(objects, files(tmp_path / "in", a="one", b="two"))
    cache = tmp_path / "cache"
    opened = opened_folder(objects, digest, cache, copies=True)
    (opened / "a").write_text("other")
    (opened / "more").write_text("of a user's code")
    opened = opened_folder(objects, digest, cache, copies=True)
    assert sorted(p.name for p in opened.iterdir()) == ["a", "b"]
    assert (opened / "a").read_text() == "one"
    os.utime(opened, (0, 0))
    assert unopened(cache, older_than_s=60.0, in_service=[digest]) == []
    assert unopened(cache, older_than_s=60.0) == [opened]
    path = objects.path(objects.put(b"two"))
    path.write_text("too")
    with pytest.raises(CorruptObject):
        opened_folder(objects, digest, cache)
    path.unlink()
    with pytest.raises(NotFound):
        opened_folder(objects, digest, cache)
    assert [p.name for p in cache.iterdir()] == [opened.name]  # nothing half made


def test_a_function_is_made_from_its_artefacts(objects: LocalObjects, tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(RULES)
    given = files(tmp_path / "in", **{"bound.txt": "2"})
    source = keep_files(objects, Source("function", "rules.py:made"), given)
    with pytest.raises(ConfigError, match="kept artefacts is not opened"):
        load_model(source, folder=tmp_path)
    opened = opened_source(source, objects, tmp_path / "cache")
    answers = as_predictor(load_model(opened, folder=tmp_path))(ROWS)
    assert list(answers["label"]) == [False, True]
    assert Source.from_json(source.to_json()) == source
    (tmp_path / "in" / "bound.txt").write_text("many")
    wrong = opened_source(keep_files(objects, source, given), objects, tmp_path / "cache")
    with pytest.raises(ConfigError, match="could not convert string to float"):
        load_model(wrong, folder=tmp_path)


def test_a_kept_adapter_answers_as_its_folder_does(objects: LocalObjects, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODULE)
    folder = write_adapter(tmp_path / "adapter", LORA, **pair("0"))
    plain = Source("torch", "net.py:model", inputs=("a", "b", "c"), classes=(0, 1))
    weights = dump_weights(load_architecture(plain.reference, tmp_path)().state_dict())
    source = keep_files(objects, plain, {path.name: path for path in folder.iterdir()})
    rows = Batch.from_records([{"id": "1", "inputs": {"a": 1.0, "b": 2.0, "c": 0.5}}], model="m")

    def answer(source: Source) -> torch.Tensor:
        found = as_predictor(load_model(source, folder=tmp_path, weights=weights))(rows)
        return torch.as_tensor(found["probs"])

    kept = answer(opened_source(source, objects, tmp_path / "cache"))
    named = Source("torch", "net.py:model", inputs=("a", "b", "c"), classes=(0, 1), adapter="adapter")
    assert torch.equal(kept, answer(named))
    assert not torch.equal(kept, answer(plain))


def test_files_of_versions_are_no_garbage(objects: LocalObjects, tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(RULES)
    source = keep_files(objects, Source("function", "rules.py:made"), files(tmp_path / "in", a="one"))
    content = content_of(source, tmp_path)
    engine = migrated(tmp_path / "state.db")
    with write(engine) as connection:
        found = models.register(
            connection, model="m", version="2", status="challenger", digest=content.digest,
            weights=None, now_us=1, source=content.source.to_json(),
        )  # fmt: skip
        named = models.objects_of_versions(connection, objects)
    assert named == {source.kept["artefacts"], objects.put(b"one")}
    assert models.lost_objects(objects, found) == []
    assert collect_garbage(engine, objects, older_than_s=0.0).files == ()
    objects.remove(objects.put(b"one"))
    assert len(models.lost_objects(objects, found)) == 1
    engine.dispose()
