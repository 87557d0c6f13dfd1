"""Versions that the configuration names: what is registered, and what changed sections come to."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.dataops.improvement import jobs
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.dataops.models import lineage
from outrider.dataops.models import registry as models
from outrider.dataops.models.registry import Model
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.errors import ConfigError
from outrider.model_reference import load_predictor
from outrider.monitor.registry.predictors import version_predictors
from outrider.monitor.registry.registration import CHANGED, GONE, Registration, changed_challengers
from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.model_sections import RetrainSettings
from outrider.monitor.settings.sources import why_trained_elsewhere
from outrider.monitor.trainer.context import JobContext
from tests.databases import migrated_for
from tests.running_jobs import run_next

CODE = """
import torch

def net():
    return torch.nn.Linear(1, 2)

def wide():
    return torch.nn.Sequential(torch.nn.Linear(1, 3), torch.nn.Linear(3, 2))

def predict(batch):
    return {"label": (batch.column("inputs.x") > 0).astype(int)}
"""
CHAMPION = """
[worker]
device = "cpu"
[models.m]
architecture = "model.py:net"
weights = "net.safetensors"
inputs = ["x"]
classes = ["no", "yes"]
"""
X = Batch.from_columns({"inputs.x": np.array([1.0, -1.0])}, model="m")


def linear(sign: float) -> bytes:
    return dump_weights({"weight": torch.tensor([[-sign], [sign]]), "bias": torch.zeros(2)})


class Project:
    """A folder whose configuration changes, and what each start of a worker makes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "model.py").write_text(CODE, encoding="utf-8")
        (folder / "net.safetensors").write_bytes(linear(1.0))
        self.start(CHAMPION)

    def start(self, text: str) -> Registration:
        (self.folder / "outrider.toml").write_text(text, encoding="utf-8")
        self.settings = load_settings(self.folder / "outrider.toml")
        if not hasattr(self, "engine"):
            self.engine: Engine = migrated_for(self.settings)
            self.objects = LocalObjects(self.settings.data_folder / "objects")
        self.registration = Registration(self.settings, self.engine, self.objects)
        self.registration.update()
        return self.registration

    def versions(self, model: str = "m") -> dict[str, Model]:
        with self.engine.connect() as connection:
            return {found.version: found for found in models.all_versions(connection, model)}

    def status(self) -> dict[str, str]:
        return {version: found.status for version, found in self.versions().items()}

    def source(self, version: str) -> Source:
        stored = self.versions()[version].source
        assert stored is not None
        return Source.from_json(stored)

    def labels(self, version: str) -> list[object]:
        with self.engine.connect() as connection:
            (predict,) = version_predictors(self.settings, connection, "m", version)
        labels: list[object] = predict(X)["label"].tolist()
        return labels

    def change(self, call: Callable[..., object], *arguments: object, **more: object) -> None:
        with write(self.engine) as connection:
            call(connection, *arguments, **more)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    yield made
    made.engine.dispose()


def test_challengers_take_over_what_they_do_not_say(project: Project) -> None:
    (project.folder / "other.safetensors").write_bytes(linear(-1.0))
    text = CHAMPION + (
        '[models.m.challengers.other]\nweights = "other.safetensors"\n'
        '[models.m.challengers.twin]\nrecipe = ["bf16"]\n'
        '[models.m.challengers.rule]\npredictor = "model.py:predict"\n'
    )
    assert project.start(text).problems == {}
    assert project.status() == {
        "1": "champion",
        "other": "challenger",
        "twin": "challenger",
        "rule": "challenger",
    }
    assert project.source("other") == replace(project.source("1"), adapted_from="m@1")
    assert project.source("rule").kind == "function"
    assert {version: project.labels(version) for version in project.status()} == {
        "1": ["yes", "no"], "other": ["no", "yes"], "twin": ["yes", "no"], "rule": [1, 0]
    }  # fmt: skip
    found = project.versions()
    assert found["twin"].weights == found["1"].weights == found["1"].digest
    assert found["twin"].digest not in (found["1"].digest, found["other"].digest)
    with project.engine.connect() as connection:
        parents = lineage.trace(connection, "m", "twin")["parents"]
    assert [(parent["id"], parent["role"]) for parent in parents] == [("m@1", "weights")]


def test_a_second_start_changes_nothing(project: Project) -> None:
    text = CHAMPION + '[models.m.challengers.twin]\nrecipe = ["bf16"]\n'
    project.start(text)
    before = project.versions()
    assert project.start(text).problems == {}
    assert project.versions() == before


def test_a_section_that_goes_retires_its_version_and_one_that_comes_back_brings_it_back(
    project: Project,
) -> None:
    text = CHAMPION + '[models.m.challengers.rule]\npredictor = "model.py:predict"\n'
    project.start(text)
    project.start(CHAMPION)
    assert (project.status()["rule"], project.versions()["rule"].note) == ("retired", GONE)
    project.start(text)
    assert (project.status()["rule"], project.versions()["rule"].note) == ("challenger", models.NAMED)


def test_a_changed_section_needs_another_name(project: Project) -> None:
    text = CHAMPION + '[models.m.challengers.twin]\nrecipe = ["bf16"]\n'
    project.start(text)
    changed = text.replace("bf16", "int8_weight_only")
    reason = "version twin is registered already, with other recipe; give the challenger"
    assert reason in project.start(changed).problems["m", "twin"]
    assert (project.status()["twin"], project.versions()["twin"].note) == ("retired", CHANGED)
    assert project.source("twin").recipe == ("bf16",)
    told = changed_challengers(project.engine, project.objects, project.settings, "m")
    assert [reason in problem for problem in told] == [True]
    assert project.start(text).problems == {}
    assert project.status()["twin"] == "challenger"


def test_a_changed_file_is_another_version_too(project: Project) -> None:
    text = CHAMPION + '[models.m.challengers.rule]\npredictor = "model.py:predict"\n'
    project.start(text)
    (project.folder / "model.py").write_text(CODE.replace("> 0", "> 2"), encoding="utf-8")
    assert "its files have changed since" in project.start(text).problems["m", "rule"]
    assert project.status()["rule"] == "retired"


def test_what_people_and_the_gate_decided_stands(project: Project) -> None:
    text = CHAMPION + '[models.m.challengers.a]\nrecipe = ["bf16"]\n'
    text += '[models.m.challengers.b]\npredictor = "model.py:predict"\n'
    project.start(text)
    project.change(models.set_status, "m", "a", "refused", now_us=5, note="worse on the suite")
    project.change(models.promote, "m", "b", now_us=6, reason="by hand", by="ann")
    for each in (text, CHAMPION, text):
        assert project.start(each).problems == {}
        assert project.status() == {"1": "retired", "a": "refused", "b": "champion"}


def test_versions_that_others_made_are_left_alone(project: Project) -> None:
    digest = project.objects.put(linear(2.0))
    project.change(
        models.register, model="m", version="2", status="challenger", digest=digest, weights=digest, now_us=9,
        note="fine-tuned from 1, 8 epochs", source=project.source("1").to_json(),
    )  # fmt: skip
    assert project.start(CHAMPION + '[models.m.challengers.2]\nrecipe = ["bf16"]\n').problems == {
        ("m", "2"): "version 2 is registered already, with other adapted_from, recipe (fine-tuned from 1, "
        "8 epochs); give the challenger another name"
    }
    assert project.status()["2"] == "challenger"


def test_files_that_training_is_still_to_write_are_waited_for(project: Project) -> None:
    text = CHAMPION + '[models.m.challengers.next]\nweights = "next.safetensors"\n'
    registration = project.start(text)
    assert "next.safetensors cannot be read" in registration.problems["m", "next"]
    (project.folder / "next.safetensors").write_bytes(linear(-1.0))
    registration.update()
    assert registration.problems == {}
    assert project.labels("next") == ["no", "yes"]


def test_weights_of_the_version_that_a_challenger_was_adapted_from(project: Project) -> None:
    digest = project.objects.put(linear(-1.0))
    project.change(
        models.register, model="m", version="2", status="retired", digest=digest, weights=digest, now_us=9,
        source=project.source("1").to_json(),
    )  # fmt: skip
    project.start(CHAMPION + '[models.m.challengers.twin]\nadapted_from = "2"\nrecipe = ["bf16"]\n')
    assert project.source("twin").adapted_from == "m@2"
    assert project.labels("twin") == ["no", "yes"]


def test_the_first_version_follows_its_section_but_for_its_weights(project: Project) -> None:
    (project.folder / "net.safetensors").write_bytes(linear(-1.0))
    project.start(CHAMPION.replace('["no", "yes"]', '["down", "up"]'))
    assert project.labels("1") == ["up", "down"]


def test_champions_of_the_other_kinds(project: Project) -> None:
    text = CHAMPION + '[models.far]\nendpoint = "http://127.0.0.1:9/v2/models/m"\n'
    text += '[models.plain]\npredictor = "model.py:predict"\n[models.none]\n'
    text += '[models.file]\nonnx = "m.onnx"\n[models.texts]\nfolder = "net"\ninputs = ["text"]\n'
    registration = project.start(text)
    assert registration.unregistered == {"file", "texts"}  # their files are not there yet
    assert project.versions("none") == {}
    assert project.versions("far")["1"].weights is None
    (project.folder / "m.onnx").write_bytes(b"a file")
    (project.folder / "net").mkdir()
    (project.folder / "net" / "config.json").write_text("{}", encoding="utf-8")
    registration.update()
    assert registration.unregistered == set()
    file, texts = project.versions("file")["1"], project.versions("texts")["1"]
    assert file.weights == file.digest
    assert texts.weights is None
    assert json.loads(texts.source or "")["options"] == {"sha256": texts.digest}
    (project.folder / "net" / "config.json").write_text('{"a": 1}', encoding="utf-8")
    project.start(text)
    assert project.versions("texts")["1"] == texts
    with pytest.raises(ConfigError, match="net has changed since the version was registered"):
        load_predictor(".#texts@1", folder=project.folder)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("challengers.1]", r"challengers\.1: the model's own version is called so"),
        ('challengers."a b"]', "a name of letters, digits, points and dashes expected"),
        ('challengers."~again"]', "a name of letters"),
        ('challengers."judge.x"]', "not one that begins with champion"),
    ],
)
def test_names_that_stand_for_something_else_are_refused(
    project: Project, section: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        project.start(CHAMPION + f'[models.m.{section}\nrecipe = ["bf16"]\n')


def test_references_name_challengers_that_are_not_registered_yet(project: Project, tmp_path: Path) -> None:
    text = CHAMPION + '[models.m.challengers.twin]\nrecipe = ["bf16"]\n'
    text += '[models.m.challengers.rule]\npredictor = "model.py:predict"\n'
    (project.folder / "outrider.toml").write_text(text, encoding="utf-8")
    assert load_predictor(".#m@twin", folder=project.folder)(X)["label"].tolist() == ["yes", "no"]
    (tmp_path / "other").mkdir()
    for name in ("outrider.toml", "model.py", "net.safetensors"):
        (tmp_path / "other" / name).write_bytes((project.folder / name).read_bytes())
    assert load_predictor("other#m@twin", folder=tmp_path)(X)["label"].tolist() == ["yes", "no"]
    assert load_predictor("other#m@rule", folder=tmp_path)(X)["label"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("source", "options", "why"),
    [
        (Source("hf", "net", adapter="lora"), {"method": "full"}, "'lora' expected, got 'full'"),
        (Source("hf", "net", task="generation"), {"method": "full"}, "of a model that writes texts"),
        (Source("hf", "net", task="tokens"), {"method": "distill", "architecture": "m.py:n"}, "'distill'"),
        (Source("onnx", "m.onnx"), {"method": "distill", "architecture": "m.py:n"}, ""),
        (Source("endpoint", "http://m"), {"trainer": "train.py:fine_tune"}, ""),
    ],
)
def test_settings_decide_what_is_trained_here(source: Source, options: dict[str, Any], why: str) -> None:
    found = why_trained_elsewhere(source, RetrainSettings(**options))
    assert why in found
    assert bool(found) is bool(why)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (None, "got none"),
        (Source("function", "m.py:n"), "got function"),
        (Source("hf", "net", task="embedding"), "task classification or other expected"),
        (Source("hf", "net"), ""),
        (Source("hf", "net", task="generation"), ""),
        (Source("torch", "m.py:n", adapter="lora"), ""),
        (Source("torch", "m.py:n", recipe=("bf16",)), ""),
    ],
)
def test_what_cannot_be_trained_here_says_why(source: Source | None, why: str) -> None:
    found = why_trained_elsewhere(source, RetrainSettings())
    assert why in found
    assert bool(found) is bool(why)


def test_a_champion_that_is_trained_elsewhere_gets_its_dataset_made(project: Project) -> None:
    project.start(CHAMPION + '[models.m.challengers.rule]\npredictor = "model.py:predict"\n')
    project.change(models.promote, "m", "rule", now_us=6, reason="by hand", by="ann")
    project.change(jobs.add, model="m", kind="retrain", params={}, now_us=7)
    with contextlib.closing(SqliteJournal(project.settings.journal_path, max_bytes=None)) as journal:
        done = run_next(JobContext(project.settings, project.engine, project.objects, journal))
    assert done is not None
    assert (done.status, list(done.result["seconds"])) == ("done", ["dataset"])


def test_references_name_challengers_of_the_registry(project: Project) -> None:
    project.start(CHAMPION + '[models.m.challengers.rule]\npredictor = "model.py:predict"\n')
    assert load_predictor(".#m@rule", folder=project.folder)(X)["label"].tolist() == [1, 0]
    assert load_predictor(".#m", folder=project.folder)(X)["label"].tolist() == ["yes", "no"]
    (project.folder / "model.py").write_text(CODE.replace("> 0", "> 2"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"m@rule is a function of .*model.py, which has changed"):
        load_predictor(".#m@rule", folder=project.folder)


def test_a_challenger_that_shares_what_its_base_has_not_is_refused_until_it_does(project: Project) -> None:
    text = (
        CHAMPION
        + """
[models.m.challengers.tuned]
weights = "tuned.safetensors"
adapted_from = "m"
shares = ["bias"]
"""
    )
    weight = torch.tensor([[-2.0], [2.0]])
    tuned = project.folder / "tuned.safetensors"
    tuned.write_bytes(dump_weights({"weight": weight, "bias": torch.ones(2)}))
    (project.folder / "net.safetensors").write_bytes(dump_weights({"weight": weight, "bias": torch.ones(2)}))
    problems = project.start(text).problems
    assert problems["m", "tuned"].startswith(
        "m@tuned: shares: 'bias' is refused: its bias is not that of m@1"
    ), "what is registered counts, not what the file holds by now"
    assert "tuned" not in project.versions()
    tuned.write_bytes(dump_weights({"weight": weight, "bias": torch.zeros(2)}))
    assert project.start(text).problems == {}
    assert project.status() == {"1": "champion", "tuned": "challenger"}


def test_a_folder_that_cannot_be_read_is_waited_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.folder / "tuned").mkdir()
    (project.folder / "tuned" / "adapter_config.json").write_text("{}", encoding="utf-8")

    def refused(*arguments: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("outrider.dataops.model_kinds.content.hashlib.file_digest", refused)
    registration = project.start(CHAMPION + '[models.m.challengers.tuned]\nadapter = "tuned"\n')
    assert "cannot be read: Permission denied" in registration.problems["m", "tuned"]
    monkeypatch.undo()
    registration.update()
    assert project.status()["tuned"] == "challenger"
