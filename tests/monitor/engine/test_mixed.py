"""Adapters of one base in the engine: one pass for all, each record answered by its own version."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.adapted import AdaptedRunner
from outrider.dataops.model_kinds.adapter import Adapter, LowRank
from outrider.dataops.model_kinds.content import pin
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.runner import EncodedRows, Runner
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.errors import ConfigError
from outrider.monitor.engine.adapters.mixed import IndexedMixed, Mixed
from outrider.monitor.engine.asks import Ask, AskAnswer
from outrider.monitor.engine.cuda.device import CudaDevice
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import Alone, LoadedVersion, Segment
from outrider.monitor.engine.plan import executors_of
from tests.dataops.model_kinds.adapters import write_lora, write_prefix
from tests.dataops.model_kinds.folders import WORDS, bert_config, save, write_tokenizer
from tests.monitor.engine.scripted_card import ScriptedCard

TEXTS = ["the film is great", "a dull plot", "ada lives in paris and works for acme", "not good", "fine"]


def texts(count: int, *, seed: int = 0) -> Batch:
    random = np.random.default_rng(seed)
    chosen = [" ".join(random.choice(WORDS.split(), random.integers(1, 12))) for _ in range(count)]
    return Batch.from_records([{"inputs": {"text": text}} for text in chosen], model="m")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base for two classes, two adapters of it, a third with three classes, a prefix."""
    home = tmp_path_factory.mktemp("adapters")
    size = len(write_tokenizer(home / "base"))
    base = save(home / "base", "BertForSequenceClassification", bert_config(size))
    save(home / "other", "BertForSequenceClassification", bert_config(size), seed=5)
    write_tokenizer(home / "other")
    write_tokenizer(home / "wide")
    wide = save(home / "wide", "BertForSequenceClassification", bert_config(size, num_labels=3))
    wide.bert.load_state_dict(base.bert.state_dict())
    wide.save_pretrained(home / "wide")
    for seed, (name, module) in enumerate({"one": base, "two": base, "three": wide}.items()):
        write_lora(module, home / name, seed=seed)
    write_prefix(base, home / "before", seed=9)
    return home


def source(
    adapter: str | None = None, *, base: str = "base", classes: tuple[str, ...] = ("no", "yes")
) -> Source:
    return Source("hf", base, inputs=("text",), classes=classes, adapter=adapter)


SOURCES = {
    ("m", "base"): source(),
    ("m", "one"): source("one"),
    ("tenant", "1"): source("two"),
    ("m", "three"): source("three", classes=("a", "b", "c")),
}


def pinned(made: Source, digest: str) -> Source:
    """As registration leaves it: the digests of folders stand among the options."""
    options = {"sha256": "b" * 64, "adapter_sha256": digest * 64} if made.adapter else {"sha256": "b" * 64}
    return dataclasses.replace(made, options=options)


def answers(engine: Engine) -> dict[tuple[int, str], AskAnswer]:
    found: dict[tuple[int, str], AskAnswer] = {}
    while engine.waiting:
        found |= {(a.number, a.version): a for a in engine.step()}
    return found


def test_versions_of_several_models_share_base_and_passes_and_answer_as_alone(folder: Path) -> None:
    engine = Engine(batch_rows=16)
    for name, made in SOURCES.items():
        engine.load(name, made, weights=None, folder=folder)
    asked = {}
    for number in range(6):
        model, versions = [("m", ("one", "three")), ("tenant", ("1",)), ("m", ("base", "one"))][number % 3]
        asked[number] = (model, versions, texts(3 + 4 * number, seed=number))
        engine.submit(Ask(number, model, versions, asked[number][2]))
    found = answers(engine)
    [stats] = engine.stats
    assert set(stats.names) == set(SOURCES)
    assert 2 * stats.counts.trunk_forwards < stats.counts.head_forwards
    alone = {name: as_predictor(load_model(made, folder=folder)) for name, made in SOURCES.items()}
    for number, (model, versions, batch) in asked.items():
        for version in versions:
            answer, expected = found.pop((number, version)), alone[model, version](batch)
            assert not answer.failure
            assert answer.outputs is not None
            np.testing.assert_allclose(answer.outputs["probs"], expected["probs"], atol=1e-5)
            assert answer.outputs["label"].tolist() == expected["label"].tolist()
    assert not found


def loaded(folder: Path, sources: dict[tuple[str, str], Source]) -> dict[tuple[str, str], LoadedVersion]:
    return {n: LoadedVersion(n, made, load_model(made, folder=folder)) for n, made in sources.items()}


def test_memory_is_that_of_one_base_and_the_adapters(folder: Path) -> None:
    versions = {
        n: dataclasses.replace(one, source=pinned(one.source, str(at)))
        for at, (n, one) in enumerate(loaded(folder, SOURCES).items())
    }
    [mixed] = executors_of(versions)
    assert isinstance(mixed, Mixed)
    with torch.inference_mode():
        rows = mixed.encode(("m", "one"), texts(40))
        mixed.run(rows.tensors, [Segment(n, 10 * at, 10 * at + 10) for at, n in enumerate(mixed.names)])
    runners: list[Any] = [one.model for one in versions.values()]
    held = {t.untyped_storage().data_ptr(): t.nbytes for r in runners for t in r.module.state_dict().values()}
    held |= {t.data_ptr(): t.nbytes for t in mixed.mixture.module.state_dict().values()}
    base = sum(t.nbytes for t in runners[0].module.state_dict().values())
    head = 3 * 32 * 4 + 3 * 4  # of the version with three classes, which its adapter replaces
    assert sum(held.values()) <= base + 2 * head + sum(
        t.nbytes for r in runners if isinstance(r, AdaptedRunner) for t in r.adapter.replaced.values()
    )
    assert mixed.trunk_forwards < mixed.head_forwards


def test_adapters_of_another_base_and_prefixes_run_elsewhere(folder: Path) -> None:
    sources = SOURCES | {
        ("m", "other"): source("one", base="other"),
        ("m", "before"): source("before"),
        ("m", "bf16"): Source("hf", "base", inputs=("text",), classes=("no", "yes"), recipe=("bf16",)),
    }
    executors = executors_of(loaded(folder, sources))
    assert sorted(len(executor.names) for executor in executors) == [1, 1, 1, 4]
    prefixed = {n: s for n, s in sources.items() if n[1] in ("base", "before")}
    [both] = executors_of(loaded(folder, prefixed))
    assert isinstance(both, Mixed)


def test_versions_may_come_and_go_between_passes(folder: Path) -> None:
    engine = Engine(batch_rows=16)
    names = list(SOURCES)
    for name in names[:2]:
        engine.load(name, SOURCES[name], weights=None, folder=folder)
    batch = texts(9)
    engine.submit(Ask(1, "m", ("base", "one"), batch))
    engine.load(names[3], SOURCES[names[3]], weights=None, folder=folder)
    engine.submit(Ask(2, "m", ("base", "one", "three"), batch))
    engine.unload(names[1])
    engine.submit(Ask(3, "m", ("base", "three"), batch))
    found = answers(engine)
    assert sorted(found) == [
        (1, "base"),
        (1, "one"),
        (2, "base"),
        (2, "one"),
        (2, "three"),
        (3, "base"),
        (3, "three"),
    ]
    assert not [answer.failure for answer in found.values() if answer.failure]
    first, last = found[1, "base"].outputs, found[3, "base"].outputs
    assert first is not None
    assert last is not None
    np.testing.assert_allclose(first["probs"], last["probs"], atol=1e-5)


class Turned(torch.nn.Module):
    """Positions first inside: rows of a batch do not lie side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(x.transpose(0, 1)).transpose(0, 1).flatten(1)
        return out


class Fast(torch.nn.Module):
    """An encoder whose fused kernel would not call its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x).flatten(1)
        return out


class Unused(Turned):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.inner.weight).flatten(1)


def adapted(module: torch.nn.Module, layer: str, *, count: int = 2) -> dict[tuple[str, str], Runner]:
    """Adapters of one layer, in runners that share the module."""
    torch.manual_seed(1)
    linear = module.get_submodule(layer)
    assert isinstance(linear, torch.nn.Linear)
    base = TorchRunner(module, inputs=("x",), task="other")
    low = [
        LowRank(torch.randn(2, linear.in_features), torch.randn(linear.out_features, 2)) for _ in range(count)
    ]
    return {("m", str(n)): AdaptedRunner(base, Adapter(f"{n}", {layer: pair})) for n, pair in enumerate(low)}


@pytest.mark.parametrize(
    ("module", "layer", "together"), [(Turned(), "inner", False), (Fast(), "layer.linear1", True)]
)
def test_what_a_module_does_inside_changes_no_answer(
    module: torch.nn.Module, layer: str, together: bool
) -> None:
    runners = adapted(module, layer)
    mixed = Mixed(runners)
    x = torch.randn(8, 4, 4)
    cuts = [Segment(("m", "0"), 0, 4), Segment(("m", "1"), 4, 8)]
    with torch.inference_mode():
        expected = [runners[c.name].run({"x": x[c.start : c.stop]})["out"] for c in cuts]
        for _ in range(2):
            before = mixed.trunk_forwards
            for one, other in zip(mixed.run({"x": x}, cuts), expected, strict=True):
                torch.testing.assert_close(one["out"], other)
    assert mixed.trunk_forwards - before == (1 if together else 2)


def test_a_layer_that_is_never_called_is_an_error() -> None:
    mixed = Mixed(adapted(Unused(), "inner"))
    with (
        torch.inference_mode(),
        pytest.raises(ConfigError, match="inner and 0 more have an adapter and were not called"),
    ):
        mixed.run({"x": torch.randn(2, 4, 4)}, [Segment(("m", "0"), 0, 1), Segment(("m", "1"), 1, 2)])


def test_the_index_of_a_batch_says_the_same_as_its_segments() -> None:
    """As on a GPU, where rows behind the last segment are padding."""
    runners = adapted(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), "0", count=3)
    x = torch.randn(10, 4)
    cuts = [Segment(("m", "0"), 0, 3), Segment(("m", "2"), 3, 8)]
    plain, indexed = Mixed(runners), IndexedMixed(runners, is_stacked=True)
    with torch.inference_mode():
        expected = plain.run({"x": x[:8]}, cuts)
        index = indexed.index(cuts, 10)
        found = indexed.run_indexed({"x": x}, index)["out"]
    assert index["of_rows"].tolist() == [0] * 3 + [2] * 7
    assert index["ends"].tolist() == [3, 3, 10, 10]
    for cut, answers_ in zip(cuts, expected, strict=True):
        torch.testing.assert_close(found[cut.start : cut.stop], answers_["out"])


def test_one_adapter_alone_needs_nobody(folder: Path) -> None:
    [executor] = executors_of(loaded(folder, {("m", "one"): source("one")}))
    assert isinstance(executor, Alone)


def test_a_base_that_is_on_a_trunk_stays_there_and_shares_its_memory_with_adapters(folder: Path) -> None:
    wide = source(base="wide", classes=("a", "b", "c"))
    sources = SOURCES | {("m", "wide"): wide}
    versions = loaded(folder, sources)
    executors = executors_of(versions)
    groups = {frozenset(executor.names) for executor in executors}
    assert groups == {
        frozenset({("m", "base"), ("m", "wide")}),
        frozenset(name for name in SOURCES if name != ("m", "base")),
    }
    words: list[Any] = [one.model for one in versions.values()]
    assert len({r.module.bert.embeddings.word_embeddings.weight.data_ptr() for r in words}) == 1


def test_a_captured_pass_serves_every_mixture() -> None:
    """On a machine in the place of a GPU, which replays what it has captured."""
    device = CudaDevice(ScriptedCard(), DeviceOptions())
    runners = adapted(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU()), "0", count=3)
    indexed = IndexedMixed(runners, is_stacked=True)
    expected = {name: runner.run for name, runner in runners.items()}
    random = np.random.default_rng(0)
    for _ in range(8):
        ends = np.sort(random.choice(np.arange(1, 16), 2, replace=False)).tolist()
        x = torch.randn(16, 4)
        cuts = [
            Segment(("m", str(n)), a, z) for n, (a, z) in enumerate(zip([0, *ends], [*ends, 16], strict=True))
        ]
        with torch.inference_mode():
            found = device.fly(indexed, EncodedRows({"x": x}), cuts).land()
            for cut, one in zip(cuts, found, strict=True):
                part = expected[cut.name]({"x": x[cut.start : cut.stop]})
                torch.testing.assert_close(one["out"], part["out"])
    assert device.replayed >= 6


def test_a_base_in_memory_is_not_read_again_for_an_adapter(folder: Path) -> None:
    engine = Engine(batch_rows=16)
    base = pin(SOURCES["m", "base"], folder)
    engine.load(("m", "base"), base, weights=None, folder=folder)
    made = [
        engine.prepare(("m", n), pin(source(n), folder), weights=None, folder=folder) for n in ("one", "two")
    ]
    wide = pin(SOURCES["m", "three"], folder)
    made.append(engine.prepare(("m", "three"), wide, weights=None, folder=folder))
    runners: list[Any] = [one.model for one in made]
    assert runners[0].module is runners[1].module
    assert runners[2].module is not runners[0].module  # its head has other classes
    for one in made:
        engine.add(one)
    engine.submit(Ask(1, "m", ("base", "one", "two", "three"), texts(8)))
    found = answers(engine)
    for version, adapter in (("base", None), ("one", "one"), ("two", "two")):
        expected = as_predictor(load_model(source(adapter), folder=folder))(texts(8))
        outputs = found[1, version].outputs
        assert outputs is not None
        np.testing.assert_allclose(outputs["probs"], expected["probs"], atol=1e-5)
