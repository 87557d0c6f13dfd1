"""``outrider compress`` on a service's own stores: stored traffic in, a challenger out."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from outrider.cli import app
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models.registry import Model, all_versions
from outrider.errors import ConfigError
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.compression import CompressionRequest, newest_records, prepare, register_twin
from tests.dataops.compression.material import CODE, weights

from .workbench import Workbench, workbench

CONFIG = """
[models.toy]
architecture = "net.py:big"
weights = "toy.safetensors"
inputs = ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"]
classes = [0, 1]
assertions = ["checks.py"]
behavior = ["test_toy.py"]
"""
CHECKS = '''
from outrider.assertions import assertion

@assertion
def surely_wrong(batch):
    """Clearly positive, and not called so."""
    return (batch.column("inputs.x0") > 0.5) & (batch.column("outputs.label") == 0)
'''
BEHAVIOR = """
from outrider.behavioral_tests import MFT

cases = [{"x0": 1.0 + n / 20, **{f"x{k}": 0.0 for k in range(1, 8)}} for n in range(30)]
test_far = MFT(cases=cases, labels=1)
"""
ROWS = 480


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    folder = tmp_path_factory.mktemp("toy")
    files = {"outrider.toml": CONFIG, "net.py": CODE, "checks.py": CHECKS, "test_toy.py": BEHAVIOR}
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "toy.safetensors").write_bytes(weights())
    x = torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(5)).numpy()
    with workbench(folder / "outrider.toml") as made:
        for start in range(0, ROWS, 60):
            made.feed(
                [
                    {"id": f"r{row}", "inputs": {f"x{k}": float(x[row, k]) for k in range(8)}}
                    for row in range(start, start + 60)
                ]
            )
        made.work()
        yield made


def versions(bench: Workbench) -> dict[str, Model]:
    with bench.engine.connect() as connection:
        return {each.version: each for each in all_versions(connection, "toy")}


def test_what_is_judged_on_is_newest_and_apart_from_what_is_kept_and_from_what_is_learned(
    bench: Workbench,
) -> None:
    task, unseen = prepare(bench.settings, "toy", CompressionRequest(rows=100))
    assert task.name == "toy@1"
    assert task.traffic is not None
    assert (task.records.rows, unseen.rows, task.traffic.rows) == (100, 100, ROWS - 200)
    ids = [set(batch.keys.tolist()) for batch in (task.records, unseen, task.traffic)]
    assert sum(len(each) for each in ids) == len(set().union(*ids)) == ROWS
    assert {f"r{row}" for row in range(ROWS - 200, ROWS)} == ids[0] | ids[1]
    assert [judge.name for judge in task.assertions] == ["surely_wrong"]
    few = newest_records(bench.settings, bench.engine, bench.journal, "toy", rows=70)
    assert few is not None
    assert few.keys.tolist() == [f"r{row}" for row in range(ROWS - 70, ROWS)]


def test_too_little_traffic_and_models_of_other_kinds_are_refused(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "outrider.toml").write_text(CONFIG)
    empty = load_settings(tmp_path / "outrider.toml")
    with pytest.raises(ConfigError, match="no journal there"):
        prepare(empty, "toy", CompressionRequest())
    (before,) = bench.rows("SELECT source FROM model_version WHERE version = '1'")
    change = "UPDATE model_version SET source = :source WHERE version = '1'"
    bench.execute(change, source=Source("function", "f.py:g").to_json())
    try:
        with pytest.raises(ConfigError, match="of kind 'function': only torch modules"):
            prepare(bench.settings, "toy", CompressionRequest())
    finally:
        bench.execute(change, source=before[0])


def test_weights_made_elsewhere_have_names_of_their_own(bench: Workbench, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.safetensors").write_bytes(weights())
    files = tuple(tmp_path / name / "mine.safetensors" for name in ("a", "b"))
    with pytest.raises(ConfigError, match="another 'mine'"):
        prepare(bench.settings, "toy", CompressionRequest(also=files))
    with pytest.raises(ConfigError, match="does not exist"):
        prepare(bench.settings, "toy", CompressionRequest(also=(tmp_path / "none.safetensors",)))


def test_what_counts_as_different_is_what_the_shadow_says(bench: Workbench) -> None:
    own = bench.settings.models["toy"]
    shadow = own.shadow.model_copy(update={"score_tolerance": 0.2})
    models = {"toy": own.model_copy(update={"shadow": shadow})}
    task, _ = prepare(
        bench.settings.model_copy(update={"models": models}), "toy", CompressionRequest(rows=100)
    )
    assert task.ruler.score_tolerance == 0.2


@pytest.mark.costly("a model is trained, which is what it is about")
def test_the_chosen_twin_becomes_a_challenger_that_answers_live_traffic(bench: Workbench) -> None:
    page = bench.config.parent / "twins.html"
    command = [
        "compress", "toy", "--slo", "memory_mb=0.15,agreement=0.97",
        "--recipe", "bf16", "--no-prune", "--budget", "1", "--rows", "150", "--register", "--gate", "--json",
        "--html", str(page), "--config", str(bench.config),
    ]  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["chosen"] == "bf16"
    assert told["registered"] == "2"
    assert told["confirmed"]["memory_mb"] == pytest.approx(told["champion"]["memory_mb"] / 2)
    assert "<svg" in page.read_text()
    twin = versions(bench)["2"]
    assert (twin.status, twin.note) == ("challenger", "bf16 of toy@1")
    assert twin.weights == versions(bench)["1"].weights  # a recipe keeps the champion's
    source = Source.from_json(twin.source or "")
    assert (source.recipe, source.adapted_from) == (("bf16",), "toy@1")
    edges = bench.rows("SELECT parent, role FROM lineage_edge WHERE child = 'toy@2'")
    assert edges == [("toy@1", "compressed from")]
    jobs = bench.rows("SELECT id, kind, params FROM job")
    assert [(job, kind, json.loads(params)["candidate"]) for job, kind, params in jobs] == [
        (told["job"], "retrain", "2")
    ]
    bench.restart()
    bench.feed([{"id": "new", "inputs": {f"x{k}": 1.5 for k in range(8)}}])
    bench.work()
    assert bench.rows("SELECT version FROM answer WHERE version = '2' AND seq > 8") == [("2",)]


def test_weights_of_a_twin_lie_in_the_object_store(bench: Workbench) -> None:
    source = Source("torch", "net.py:big", inputs=tuple(f"x{n}" for n in range(8)), classes=(0, 1))
    twin, job = register_twin(
        bench.settings,
        name="toy",
        champion="toy@1",
        source=source,
        weights=weights() + b"",
        note="2:4 of toy@1",
        asks_gate=False,
    )
    assert job is None
    assert twin.weights is not None
    assert (bench.settings.data_folder / "objects" / twin.weights[:2] / twin.weights).is_file()
