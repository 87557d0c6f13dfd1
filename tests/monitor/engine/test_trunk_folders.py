"""Hugging Face models with one trunk: several heads, other upper layers, other tasks."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from outrider.assertions import Batch
from outrider.dataops.model_kinds.hf import HfRunner, load_hf
from outrider.dataops.model_kinds.runner import Tensors
from outrider.dataops.model_kinds.source import Source, Task
from outrider.monitor.engine.asks import Name
from outrider.monitor.engine.executor import LoadedVersion, Segment
from outrider.monitor.engine.trunks.strategies import Merged, Remembered
from outrider.monitor.engine.trunks.trunk import Trunk, trunks_of
from tests.dataops.model_kinds.folders import bert_config, gpt2_config, save, write_tokenizer

from .nets import derived

TEXTS = ["a very good film", "the plot is dull", "was not bad", "good"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of texts."""
    folder = tmp_path_factory.mktemp("bert")
    words = len(write_tokenizer(folder))
    save(folder, "BertForSequenceClassification", bert_config(words, num_labels=2))
    return folder


def loaded(runners: Mapping[str, HfRunner]) -> dict[Name, LoadedVersion]:
    source = Source("hf", "bert", inputs=("text",))
    return {
        ("m", version): LoadedVersion(("m", version), source, runner) for version, runner in runners.items()
    }


def load(folder: Path, task: Task = "classification", **options: Any) -> HfRunner:
    source = Source("hf", folder.name, task=task, inputs=("text",), options=options)
    return load_hf(source, folder.parent, None)


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.__name__.split(".")[0] in ("linear", "mm", "addmm", "bmm")
        return func(*args, **kwargs or {})


def products(runner: HfRunner | Trunk, tensors: Tensors, rows: int = len(TEXTS)) -> int:
    """Matrix products in one pass."""
    with torch.inference_mode(), (counted := Products()):
        if isinstance(runner, Trunk):
            runner.run(tensors, [Segment(name, 0, rows) for name in runner.names])
        else:
            runner.run(tensors)
    return counted.count


def twice(runners: Mapping[str, HfRunner]) -> Trunk:
    """The trunk of runners, having answered what they answer alone, bit by bit, twice."""
    alone = {version: copy.deepcopy(runner) for version, runner in runners.items()}
    every = loaded(runners)
    assert trunks_of(every) == [tuple(every)]
    trunk = Trunk({name: runners[name[1]] for name in every})
    tensors = tokens(trunk)
    asked = [Segment(name, 0, len(TEXTS)) for name in trunk.names]
    with torch.inference_mode():
        for _ in range(2):
            for found, runner in zip(trunk.run(tensors, asked), alone.values(), strict=True):
                expected = runner.run(tensors)
                assert all(torch.equal(found[name], expected[name]) for name in expected)
    return trunk


def tokens(trunk: Trunk) -> Tensors:
    batch = Batch.from_columns({"inputs.text": TEXTS}, model="m")
    return trunk.encode(trunk.names[0], batch).tensors


def test_heads_on_a_frozen_trunk_are_one_graph(base: Path) -> None:
    runners = {version: load(base) for version in "123"}
    for seed, version in enumerate("23"):
        runners[version].module = derived(runners[version].module, ["classifier"], seed)
    trunk = twice(runners)
    assert [type(way) for way in trunk._found.values()] == [Merged]
    assert products(trunk, tokens(trunk)) == products(runners["1"], tokens(trunk)) + 2
    assert trunk.held_bytes < 1.01 * trunk.separate_bytes / 3


def test_other_upper_layers_and_other_tasks_share_what_lies_below(base: Path) -> None:
    runners = {"1": load(base), "2": load(base), "vectors": load(base, "embedding")}
    runners["2"].module = derived(runners["2"].module, ["bert.encoder.layer.1", "classifier"], 1)
    trunk = twice(runners)
    assert [type(way) for way in trunk._found.values()] == [Remembered]
    one = products(runners["1"], tokens(trunk))
    assert products(trunk, tokens(trunk)) < 1.6 * one, "the second has a layer and a pooler of its own"


def test_other_tokens_are_another_encoding(base: Path) -> None:
    every = {"1": load(base), "short": load(base, max_tokens=3), "tags": load(base)}
    assert every["1"].encoding == every["tags"].encoding
    assert trunks_of(loaded(every)) == [(("m", "1"), ("m", "tags"))]
    assert len({id(runner.module.get_submodule("bert")) for runner in every.values()}) == 1


def test_causal_models_share_their_lower_layers(tmp_path: Path) -> None:
    words = len(write_tokenizer(tmp_path, specials=False))
    save(tmp_path, "GPT2LMHeadModel", gpt2_config(words))
    runners = {version: load(tmp_path, "scoring") for version in "12"}
    runners["2"].module = derived(runners["2"].module, ["transformer.h.1"], 1)
    trunk = twice(runners)
    one = products(runners["1"], tokens(trunk))
    assert products(trunk, tokens(trunk)) < 1.6 * one, "of two layers, one is shared"
