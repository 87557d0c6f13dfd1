"""Uploaded challengers in engines of their own: what they do costs no champion anything."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import insert

from outrider.dataops.alarms.stored_incidents import list_incidents
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.folders import keep_manifest
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.improvement_tables import VersionUpload
from outrider.dataops.state.tables import table_of
from outrider.dataops.uploads.checks import sha256_of
from outrider.monitor.engine.groups import APART
from tests.dataops.model_kinds.folders import NEEDS, bert_config, gpt2_config, save, write_tokenizer
from tests.forked import LIGHT, forks
from tests.requirements import require_package

from .workbench import Workbench, workbench

NET = """
import time

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 2)
        self.bad = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        while self.bad.item() and (x.max() >= self.bad).any():
            time.sleep(0.05)
        return self.line(x)


def build():
    return Net()
"""
TORCH = """
[server]
port = 0
[models.m]
architecture = "net.py:build"
weights = "net.safetensors"
inputs = ["x"]
classes = ["a", "b"]
[models.m.shadow]
deadline_s = 2.0
noise_rate = 0.0
"""
TEXTS = """
[server]
port = 0
[models.m]
predictor = "words.py:predict"
inputs = ["text"]
classes = ["a", "b"]
[models.m.shadow]
deadline_s = 1.0
noise_rate = 0.0
"""
WORDS = "def predict(batch):\n    return {'label': ['a'] * batch.rows}\n"


@pytest.fixture(autouse=True)
def _forked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Engines have their imports, but where the test is about how they are started."""
    if request.function is test_engine_of_an_upload_has_no_secret_and_an_empty_working_directory:
        yield
        return
    with forks(modules=(*LIGHT, *NEEDS)):
        yield


def weights(bad: float) -> bytes:
    return dump_weights(
        {"bad": torch.full((1,), bad), "line.weight": torch.ones(2, 1), "line.bias": torch.zeros(2)}
    )


def project(folder: Path, config: str = TORCH) -> Path:
    (folder / "net.py").write_text(NET, encoding="utf-8")
    (folder / "words.py").write_text(WORDS, encoding="utf-8")
    (folder / "net.safetensors").write_bytes(weights(0.0))
    (folder / "outrider.toml").write_text(config, encoding="utf-8")
    return folder / "outrider.toml"


def upload(bench: Workbench, version: str, source: Source, kept: str | None = None) -> None:
    """Register a version as `dataops.uploads` does once its content is checked."""
    with write(bench.engine) as connection:
        models.register(
            connection, model="m", version=version, status="challenger", digest=version, weights=kept,
            now_us=now_us(), source=source.to_json(),
        )  # fmt: skip
        row = {
            "id": f"up_{version}", "model": "m", "token": False, "begun_by": "ann", "request": {},
            "status": "done", "version": version, "created_us": 0, "until_us": 0,
        }  # fmt: skip
        connection.execute(insert(table_of(VersionUpload)).values(row))


def upload_weights(bench: Workbench, version: str, bad: float) -> None:
    objects = LocalObjects(bench.settings.data_folder / "objects")
    with bench.engine.connect() as connection:
        champion = Source.from_json(str(models.get(connection, "m", "1").source))
    told = json.loads(champion.to_json()) | {"adapted_from": "m@1"}
    upload(bench, version, Source.from_json(json.dumps(told)), objects.put(weights(bad)))


def upload_folder(bench: Workbench, version: str, folder: Path, task: str, **options: Any) -> None:
    objects = LocalObjects(bench.settings.data_folder / "objects")
    digests = {}
    for path in sorted(folder.iterdir()):
        digests[path.name] = sha256_of(path)
        objects.put(path.read_bytes())
    source = Source(
        "hf", "m, uploaded", task=task, inputs=("text",), classes=("a", "b"), options=options,  # type: ignore[arg-type]
        kept={"folder": keep_manifest(objects, digests)},
    )  # fmt: skip
    upload(bench, version, source)


def status(bench: Workbench, version: str) -> str:
    with bench.engine.connect() as connection:
        return models.get(connection, "m", version).status


def judged(bench: Workbench, slot: str = "champion") -> int:
    cursors: dict[str, int] = dict(bench.rows("SELECT slot, seq FROM cursor WHERE model = 'm'"))
    return cursors.get(slot, 0)


def numbers(bench: Workbench, *values: float) -> int:
    bench.count_fed = getattr(bench, "count_fed", 0) + 1  # type: ignore[attr-defined]
    name = f"b{bench.count_fed}"  # type: ignore[attr-defined]
    return bench.feed([{"id": f"{name}-{n}", "inputs": {"x": v}} for n, v in enumerate(values)], model="m")


def texts(bench: Workbench, *values: str) -> int:
    return bench.feed(
        [{"id": f"t-{bench.now_us}-{n}", "inputs": {"text": v}} for n, v in enumerate(values)], model="m"
    )


def retired(bench: Workbench, version: str) -> str:
    """Reason of the incident with which a version was retired."""
    bench.work_until(lambda: status(bench, version) == "retired")
    with bench.engine.connect() as connection:
        (found,) = [one for one in list_incidents(connection, now_us=0) if one.kind == "version_retired"]
    assert found.assertion == f"version {version}"
    return str(found.details["reason"])


def restarts(bench: Workbench) -> int:
    assert bench.engines is not None
    return sum(bench.engines.clients["m", "1"].restarts.values())


def test_upload_that_hangs_never_meets_the_champions_process_and_is_retired(tmp_path: Path) -> None:
    with workbench(project(tmp_path), has_processes=True) as bench:
        bench.work_until(lambda: bench.worker.context.versions["m"].is_whole)
        upload_weights(bench, "2", bad=0.5)
        bench.worker._refresh(force=True)
        bench.work_until(lambda: bench.worker.context.versions["m"].is_asked("2"))
        assert bench.engines is not None
        assert bench.engines.clients["m", "1"].names == [("m", "1")]
        assert bench.engines.clients["m", f"{APART}2"].names == [("m", "2")]
        last = numbers(bench, 1.0, 0.1)
        bench.work_until(lambda: judged(bench) == last)
        assert retired(bench, "2").startswith("it held up or ended its process 2 times: no answer within")
        assert restarts(bench) == 0
        last = numbers(bench, 2.0)
        bench.work_until(lambda: judged(bench) == last)
        bench.restart()
        bench.work_until(lambda: bench.worker.context.versions["m"].is_whole)
        assert bench.worker.context.versions["m"].versions == ["1"]


def test_upload_shares_the_process_once_it_has_answered_and_leaves_it_when_it_hangs(tmp_path: Path) -> None:
    with workbench(project(tmp_path), has_processes=True) as bench:
        bench.work_until(lambda: bench.worker.context.versions["m"].is_whole)
        upload_weights(bench, "2", bad=9.0)
        bench.worker._refresh(force=True)
        bench.work_until(lambda: bench.worker.context.versions["m"].is_asked("2"))
        for _ in range(4):
            last = numbers(bench, 0.1, 0.2)
            bench.work_until(lambda: judged(bench) == judged(bench, "2") == last)  # noqa: B023  # called at once
        assert bench.engines is not None
        bench.work_until(lambda: bench.worker.engines.group(("m", "2")) == "m@1")
        bench.work_until(lambda: list(bench.worker.engines.clients) == [("m", "1")])
        last = numbers(bench, 0.1)
        bench.work_until(lambda: judged(bench) == judged(bench, "2") == last)
        last = numbers(bench, 10.0)
        bench.work_until(lambda: judged(bench) == last)
        assert "no answer" in retired(bench, "2")
        assert restarts(bench) <= 2


def test_retired_version_is_out_while_its_pass_hangs(tmp_path: Path) -> None:
    config = project(tmp_path, TORCH.replace("deadline_s = 2.0", "deadline_s = 600.0"))
    with workbench(config, has_processes=True) as bench:
        bench.work_until(lambda: bench.worker.context.versions["m"].is_whole)
        upload_weights(bench, "2", bad=0.5)
        bench.worker._refresh(force=True)
        bench.work_until(lambda: bench.worker.context.versions["m"].is_asked("2"))
        last = numbers(bench, 1.0)
        bench.work_until(lambda: judged(bench) == last)
        bench.execute("UPDATE model_version SET status = 'retired' WHERE version = '2'")
        bench.worker._refresh(force=True)
        assert bench.engines is not None
        bench.work_until(lambda: list(bench.worker.engines.clients) == [("m", "1")])
        last = numbers(bench, 1.0)
        bench.work_until(lambda: judged(bench) == last)


def test_engine_of_an_upload_has_no_secret_and_an_empty_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_MODEL_KEY", "k")
    monkeypatch.setenv("SHOP_TOKEN", "t")
    with workbench(project(tmp_path), has_processes=True) as bench:
        bench.work_until(lambda: bench.worker.context.versions["m"].is_whole)
        upload_weights(bench, "2", bad=0.0)
        bench.worker._refresh(force=True)
        bench.work_until(lambda: bench.worker.context.versions["m"].is_asked("2"))
        assert bench.engines is not None
        for client in bench.engines.clients.values():
            place = Path("/proc", str(client.pid))
            environment = (place / "environ").read_bytes()
            assert b"OUTRIDER_MODEL_KEY" not in environment
            assert b"SHOP_TOKEN" not in environment
            working = Path(os.readlink(place / "cwd"))
            assert not list(working.iterdir())
            assert not working.is_relative_to(tmp_path)


def catastrophic(folder: Path) -> None:
    """Give a tokenizer a pre-tokenizer that goes back and forth for ever."""
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text())
    told["pre_tokenizer"] = {
        "type": "Split", "pattern": {"Regex": "((a+)+)+$"}, "behavior": "Isolated", "invert": False,
    }  # fmt: skip
    path.write_text(json.dumps(told))


def looping(folder: Path) -> None:
    """Give a tokenizer a chat template of nested loops."""
    inner = "{% for d in range(99999) %}{% endfor %}"
    template = "{% for a in range(99999) %}{% for b in range(99999) %}" + inner + "{% endfor %}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)


def uploaded_texts(folder: Path, attack: str) -> Mapping[str, Any]:
    folder.mkdir()
    size = len(write_tokenizer(folder))
    if attack == "tokenizer":
        save(folder, "BertForSequenceClassification", bert_config(size, num_labels=2))
        catastrophic(folder)
        return {"task": "classification"}
    save(folder, "GPT2LMHeadModel", gpt2_config(size))
    looping(folder)
    return {"task": "generation", "chat": True, "max_new_tokens": 1}


@pytest.mark.parametrize("attack", ["tokenizer", "chat template"])
def test_what_libraries_run_of_an_upload_for_ever_retires_it_and_the_champion_goes_on(
    tmp_path: Path, attack: str
) -> None:
    options = uploaded_texts(tmp_path / "uploaded", attack)
    with workbench(project(tmp_path, TEXTS), has_processes=True) as bench:
        bench.work_until(lambda: bench.worker.context.versions["m"].is_whole)
        upload_folder(bench, "2", tmp_path / "uploaded", **options)
        bench.worker._refresh(force=True)
        bench.work_until(lambda: bench.worker.context.versions["m"].is_whole)
        last = texts(bench, "a" * 60 + "!", "good")
        bench.work_until(lambda: judged(bench) == last)
        assert retired(bench, "2").startswith("it held up or ended its process 2 times")
        assert restarts(bench) == 0
        bench.restart()
        last = texts(bench, "a" * 60 + "!", "good")
        bench.work_until(lambda: judged(bench) == last)
        assert bench.worker.context.versions["m"].versions == ["1"]


def greedy_onnx() -> bytes:
    """A classifier that asks for two gigabytes for any row that is not zero."""
    onnx: Any = require_package("onnx", "pip install outrider[onnx]")
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [
            helper.make_node("Abs", ["x"], ["size"]),
            helper.make_node("ReduceMax", ["size"], ["largest"], keepdims=0),
            helper.make_node("Sign", ["largest"], ["is_any"]),
            helper.make_node("Cast", ["is_any"], ["count"], to=kinds.INT64),
            helper.make_node("Mul", ["count", "many"], ["length"]),
            helper.make_node("Add", ["length", "one"], ["more"]),
            helper.make_node("Reshape", ["more", "flat"], ["shape"]),
            helper.make_node("ConstantOfShape", ["shape"], ["filled"]),
            helper.make_node("ReduceSum", ["filled"], ["nothing"], keepdims=0),
            helper.make_node("MatMul", ["x", "w"], ["scores"]),
            helper.make_node("Add", ["scores", "nothing"], ["logits"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", kinds.FLOAT, ["n", 1])],
        [helper.make_tensor_value_info("logits", kinds.FLOAT, ["n", 2])],
        [
            helper.make_tensor("w", kinds.FLOAT, [1, 2], [0.5, -0.5]),
            helper.make_tensor("many", kinds.INT64, [], [500_000_000]),
            helper.make_tensor("one", kinds.INT64, [], [1]),
            helper.make_tensor("flat", kinds.INT64, [1], [1]),
        ],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    made: bytes = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    return made


def test_onnx_file_that_asks_for_more_than_the_bound_costs_the_champion_nothing(tmp_path: Path) -> None:
    require_package("onnxruntime", "pip install outrider[onnx]")
    config = project(tmp_path, TORCH.replace("deadline_s = 2.0", "deadline_s = 60.0"))
    with workbench(config, has_processes=True) as bench:
        bench.work_until(lambda: bench.worker.context.versions["m"].is_whole)
        objects = LocalObjects(bench.settings.data_folder / "objects")
        source = Source("onnx", "greedy.onnx", inputs=("x",), classes=("a", "b"))
        upload(bench, "2", source, objects.put(greedy_onnx()))
        bench.worker._refresh(force=True)
        bench.work_until(lambda: bench.worker.context.versions["m"].is_asked("2"))
        last = numbers(bench, 0.0, 0.0)
        bench.work_until(lambda: judged(bench) == judged(bench, "2") == last)
        assert bench.rows("SELECT count(*) FROM answer WHERE version = '2'") == [(1,)]
        versions = bench.worker.context.versions["m"]
        while "2" in versions.challengers:
            last = numbers(bench, 1.0, 0.5)
            bench.work_until(lambda: judged(bench) == last)  # noqa: B023  # called at once
            bench.work_until(
                lambda: "2" not in versions.challengers or judged(bench, "2") == last  # noqa: B023
            )
        assert bench.rows("SELECT count(*) FROM answer WHERE version = '2'") == [(1,)]
        assert restarts(bench) == 0
