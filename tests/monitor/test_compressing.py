"""``outrider compress`` on a service's own stores: stored traffic in, a challenger out."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from outrider.cli import app
from outrider.dataops.compression.likeness import Likeness
from outrider.dataops.compression.timing import Cost
from outrider.dataops.compression.variant import Variant
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models.registry import Model, all_versions
from outrider.errors import ConfigError
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.compression import compression_task, newest_records, register_variant
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
    task = compression_task(bench.settings, "toy", rows=100, traffic_rows=20_000)
    assert task.name == "toy@1"
    assert (task.records.rows, task.unseen.rows, task.traffic.rows) == (100, 100, ROWS - 200)
    ids = [set(batch.keys.tolist()) for batch in (task.records, task.unseen, task.traffic)]
    assert sum(len(each) for each in ids) == len(set().union(*ids)) == ROWS
    assert {f"r{row}" for row in range(ROWS - 200, ROWS)} == ids[0] | ids[1]
    assert [judge.name for judge in task.assertions] == ["surely_wrong"]
    none = compression_task(bench.settings, "toy", rows=150, traffic_rows=0)
    assert (none.records.rows, none.unseen.rows, none.traffic.rows) == (150, 150, 0)
    few = newest_records(bench.settings, bench.engine, bench.journal, "toy", rows=70)
    assert few is not None
    assert few.keys.tolist() == [f"r{row}" for row in range(ROWS - 70, ROWS)]


def test_too_little_traffic_and_models_of_other_kinds_are_refused(bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "outrider.toml").write_text(CONFIG)
    empty = load_settings(tmp_path / "outrider.toml")
    with pytest.raises(ConfigError, match="no journal there"):
        compression_task(empty, "toy", rows=100, traffic_rows=0)
    (before,) = bench.rows("SELECT source FROM model_version WHERE version = '1'")
    change = "UPDATE model_version SET source = :source WHERE version = '1'"
    bench.execute(change, source=Source("function", "f.py:g").to_json())
    try:
        with pytest.raises(ConfigError, match="of kind 'function': only torch modules"):
            compression_task(bench.settings, "toy", rows=100, traffic_rows=0)
    finally:
        bench.execute(change, source=before[0])


def test_what_counts_as_different_is_what_the_shadow_says(bench: Workbench) -> None:
    own = bench.settings.models["toy"]
    shadow = own.shadow.model_copy(update={"score_tolerance": 0.2})
    models = {"toy": own.model_copy(update={"shadow": shadow})}
    settings = bench.settings.model_copy(update={"models": models})
    task = compression_task(settings, "toy", rows=100, traffic_rows=0)
    assert task.ruler.score_tolerance == 0.2


def test_chosen_variant_becomes_a_challenger_that_answers_live_traffic(bench: Workbench) -> None:
    page = bench.config.parent / "variants.md"
    command = [
        "compress", "toy", "--slo", "memory_mb=0.15,agreement=0.97", "--rows", "150", "--traffic", "0",
        "--register", "--gate", "--json", "--markdown", str(page), "--config", str(bench.config),
    ]  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    recipe, smaller = {"bf16": (("bf16",), 2), "int8": (("int8_dynamic",), 3.8)}[report["chosen"]]
    assert report["registered"] == "2"
    assert report["confirmed"]["memory_mb"] == pytest.approx(
        report["champion"]["memory_mb"] / smaller, rel=0.05
    )
    assert f"Chosen: {report['chosen']}." in page.read_text()
    challenger = versions(bench)["2"]
    assert (challenger.status, challenger.note) == ("challenger", f"{report['chosen']} of toy@1")
    assert challenger.weights == versions(bench)["1"].weights  # a recipe keeps the champion's
    source = Source.from_json(challenger.source or "")
    assert (source.recipe, source.adapted_from) == (recipe, "toy@1")
    edges = bench.rows("SELECT parent, role FROM lineage_edge WHERE child = 'toy@2'")
    assert edges == [("toy@1", "compressed from")]
    jobs = bench.rows("SELECT id, kind, params FROM job")
    assert [(job, kind, json.loads(params)["candidate"]) for job, kind, params in jobs] == [
        (report["job"], "retrain", "2")
    ]
    bench.restart()
    bench.feed([{"id": "new", "inputs": {f"x{k}": 1.5 for k in range(8)}}])
    bench.work()
    assert bench.rows("SELECT version FROM answer WHERE version = '2' AND seq > 8") == [("2",)]


def test_weights_of_a_registered_variant_lie_in_the_object_store(bench: Workbench) -> None:
    source = Source("torch", "net.py:big", inputs=tuple(f"x{n}" for n in range(8)), classes=(0, 1))
    cost = Cost(1.0, 1.0, 30, 100.0, 4)
    variant = Variant(
        "low rank", source, weights(), cost, Likeness("label", 1, 1.0, 1.0, 1.0, 0.0, None), None, None
    )
    found = register_variant(bench.settings, "toy", variant, champion="toy@1", asks_gate=False)
    assert list(found) == ["registered"]
    stored = versions(bench)[found["registered"]].weights
    assert stored is not None
    assert (bench.settings.data_folder / "objects" / stored[:2] / stored).is_file()
