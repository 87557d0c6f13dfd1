"""Versions on one trunk say what they say alone, bit by bit, and share what is equal."""

import copy
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import nn

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import Tensors
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import TorchRunner
from outrider.monitor.engine.asks import Ask, AskAnswer, Name, again_of
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import LoadedVersion, Segment
from outrider.monitor.engine.plan import executors_of
from outrider.monitor.engine.trunks.strategies import Apart, Merged, Remembered
from outrider.monitor.engine.trunks.trunk import Trunk, trunks_of

from .nets import Block, Blocks, Branching, Convolutions, Counting, Suspicious, Writing, built, derived

ROWS = 5


def inputs(rows: int = ROWS, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, 24, generator=torch.Generator().manual_seed(seed))


def runners(modules: Sequence[nn.Module]) -> dict[Name, TorchRunner]:
    return {
        ("m", str(i)): TorchRunner(module, inputs=["x"], task="other") for i, module in enumerate(modules)
    }


def segments(trunk: Trunk, rows: int = ROWS) -> list[Segment]:
    return [Segment(name, 0, rows) for name in trunk.names]


def apart(modules: Sequence[nn.Module], x: torch.Tensor) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [module.eval()(x.clone()) for module in modules]


def answers(trunk: Trunk, x: torch.Tensor, asked: Sequence[Segment] | None = None) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [found["out"] for found in trunk.run({"x": x}, asked or segments(trunk, len(x)))]


def same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def way(trunk: Trunk) -> type:
    return type(next(iter(trunk._found.values())))


@pytest.mark.parametrize(
    ("build", "changed", "expected"),
    [
        (Blocks, ["head"], Merged),
        (Blocks, ["blocks.2", "head"], Merged),
        (Blocks, ["blocks.1.rest.3"], Merged),
        (Branching, ["encoder.layers.2", "head"], Remembered),
        (Convolutions, ["head"], Merged),
    ],
)
def test_versions_together_say_bit_by_bit_what_they_say_alone(
    build: Callable[[], nn.Module], changed: list[str], expected: type
) -> None:
    base = built(build)
    modules = [base, *(derived(base, changed, seed) for seed in (1, 2, 3))]
    alone = [copy.deepcopy(module) for module in modules]
    trunk = Trunk(runners(modules))
    for rows, seed in ((5, 1), (5, 2), (3, 3), (1, 4)):
        x = inputs(rows, seed)
        assert same(answers(trunk, x), apart(alone, x))
    assert way(trunk) is expected
    assert (trunk.trunk_forwards, trunk.head_forwards) == (4 + 1 + 1 + 1, 16)


def test_shared_weights_lie_in_memory_once() -> None:
    base = built(Blocks)
    modules = [base, *(derived(base, ["head"], seed) for seed in (1, 2))]
    one = sum(p.nbytes for p in base.parameters())
    head = sum(p.nbytes for p in base.get_submodule("head").parameters())
    trunk = Trunk(runners(modules))
    assert trunk.separate_bytes == 3 * one
    assert trunk.held_bytes == one + 2 * head
    assert len({id(module.get_parameter("places")) for module in modules}) == 1


def test_a_part_of_the_versions_is_asked_alone() -> None:
    base = built(Blocks)
    modules = [base, *(derived(base, ["blocks.2"], seed) for seed in (1, 2))]
    alone = [copy.deepcopy(module) for module in modules]
    trunk = Trunk(runners(modules))
    x = inputs()
    for wanted in ([2, 0], [1], [0, 1, 2], [2, 0]):
        asked = [Segment(trunk.names[i], 0, ROWS) for i in wanted]
        assert same(answers(trunk, x, asked), apart([alone[i] for i in wanted], x))


def test_versions_of_several_models_answer_their_own_rows() -> None:
    base = built(Blocks)
    modules = [base, derived(base, ["head"], 1), derived(base, ["head"], 2)]
    alone = [copy.deepcopy(module) for module in modules]
    trunk = Trunk(runners(modules))
    x = inputs()
    asked = [Segment(trunk.names[0], 0, 2), Segment(trunk.names[1], 1, 5), Segment(trunk.names[2], 2, 5)]
    for _ in range(2):
        first, second, third = answers(trunk, x, asked)
        assert same([first[:1]], apart(alone[:1], x[:1]))
        assert same([first[1:], second[:1]], apart(alone[:2], x[1:2]))
        assert same([second[1:], third], apart(alone[1:], x[2:]))
    assert (trunk.trunk_forwards, trunk.head_forwards) == (1 + 2 + 2 + 3, 2 * 5)


@pytest.mark.parametrize("build", [Writing, Counting, Suspicious])
def test_versions_that_cannot_be_trusted_together_run_one_by_one(build: Callable[[], nn.Module]) -> None:
    base = built(build)
    modules = [base, derived(base, ["head"], 1), derived(base, ["head"], 2)]
    alone = [copy.deepcopy(module) for module in modules]
    trunk = Trunk(runners(modules))
    x = inputs()
    given = x.clone()
    for _ in range(3):
        expected = apart(alone, x)
        if build is not Counting:
            assert same(answers(trunk, given), expected)
        else:
            answers(trunk, given)
    assert way(trunk) is Apart
    assert torch.equal(given, x)
    assert trunk.trunk_forwards == trunk.head_forwards


class Padded(TorchRunner):
    """Adds a column of its own in front."""

    @property
    def encoding(self) -> str:
        return "padded"


def loaded(models: Mapping[Name, object], adapter: str | None = None) -> dict[Name, LoadedVersion]:
    source = Source("torch", "model.py:build", inputs=("x",), adapter=adapter)
    return {name: LoadedVersion(name, source, model) for name, model in models.items()}  # type: ignore[arg-type]


def test_only_versions_that_share_a_part_and_encode_alike_run_together() -> None:
    base = built(Blocks)
    modules = [base, derived(base, ["head"], 1), built(Blocks, seed=5), derived(base, ["blocks.0"], 2)]
    members = runners(modules)
    other = Padded(derived(base, ["head"], 3), inputs=["x"], task="other")
    every = loaded({**members, ("other", "1"): other, ("f", "1"): lambda batch: {}})
    assert trunks_of(every) == [(("m", "0"), ("m", "1"), ("m", "3"))]
    plan = [executor.names for executor in executors_of(every)]
    assert plan == [(("m", "0"), ("m", "1"), ("m", "3")), (("m", "2"),), (("other", "1"),)]
    held = other.module.get_parameter("places")
    assert held is base.get_parameter("places"), "memory is shared even so"
    assert trunks_of(loaded(members, adapter="lora")) == []


def test_equal_weights_of_another_computation_are_not_run_once() -> None:
    """Memory is shared; a block of another class, or with another attribute, is computed on its own."""
    base = built(Blocks)
    twin = copy.deepcopy(base)
    twin.get_submodule("blocks.0.norm").eps = 0.5  # type: ignore[assignment]  # a number
    alone = [copy.deepcopy(base), copy.deepcopy(twin)]
    trunk = Trunk(runners([base, twin]))
    x = inputs()
    for _ in range(2):
        found = answers(trunk, x)
        assert same(found, apart(alone, x))
    assert not torch.equal(*found)
    assert trunk.held_bytes == sum(p.nbytes for p in base.parameters())


def test_classes_of_a_file_that_is_executed_twice_are_the_same() -> None:
    from outrider.monitor.engine.trunks.fingerprint import fingerprint

    code = "import torch\nWIDTH = {width}\ndef double(x):\n    return x * WIDTH\n" \
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        return double(x)\n"  # fmt: skip

    def made(width: int) -> type:
        scope: dict[str, object] = {"__name__": "outrider_user_0123"}
        exec(code.format(width=width), scope)
        return scope["Net"]  # type: ignore[return-value]

    assert fingerprint(made(2)) == fingerprint(made(2))
    assert fingerprint(made(2)) != fingerprint(made(3)), "what a function looks up counts"
    assert fingerprint(Block) != fingerprint(Blocks)


class Failing(nn.Module):
    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.stem = base.get_submodule("stem")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("the head is broken")


def test_a_version_that_raises_leaves_the_others_as_they_are() -> None:
    base = built(Convolutions)
    members = runners([base, derived(base, ["head"], 1), Failing(base)])
    alone = copy.deepcopy(base)
    trunk = Trunk(members)
    x = inputs()
    with pytest.raises(RuntimeError, match="the head is broken"):
        answers(trunk, x)
    good = segments(trunk)[:2]
    for _ in range(2):
        assert same(answers(trunk, x, good)[:1], apart([alone], x))


def test_a_trunk_encodes_and_decodes_as_its_versions_do() -> None:
    base = built(Blocks)
    told: list[list[int | str]] = [[0, 1, 2], ["a", "b", "c"]]
    members = {
        ("m", str(i)): TorchRunner(derived(base, ["head"], i), inputs=["x"], classes=classes)
        for i, classes in enumerate(told)
    }
    trunk = Trunk(members)
    batch = Batch.from_columns({"id": ["r0", "r1"], "inputs.x": inputs(2).numpy()}, model="m")
    rows = trunk.encode(("m", "1"), batch)
    with torch.inference_mode():
        found: list[Tensors] = trunk.run(rows.tensors, segments(trunk, 2))
    labels = [trunk.decode(name, raw)["label"].tolist() for name, raw in zip(trunk.names, found, strict=True)]
    assert all(value in (0, 1, 2) for value in labels[0])
    assert all(value in ("a", "b", "c") for value in labels[1])


def ask(number: int, versions: Sequence[str], *, rows: int = ROWS, again: tuple[int, ...] = ()) -> Ask:
    batch = Batch.from_columns(
        {"id": [f"r{i}" for i in range(rows)], "inputs.x": inputs(rows, number).numpy()}, model="m"
    )
    return Ask(number, "m", tuple(versions), batch, again=again)


def answered(engine: Engine) -> dict[tuple[int, str], AskAnswer]:
    found: dict[tuple[int, str], AskAnswer] = {}
    while engine.waiting:
        found |= {(answer.number, answer.version): answer for answer in engine.step()}
    return found


def test_the_engine_runs_versions_of_one_base_on_one_trunk_and_a_broken_one_harms_itself_alone() -> None:
    base = built(Convolutions)
    modules = [base, derived(base, ["head"], 1), Failing(base)]
    alone = [copy.deepcopy(module) for module in modules[:2]]
    engine = Engine(batch_rows=64)
    for one in loaded(runners(modules)).values():
        engine.add(one)
    for number in (1, 2):
        engine.submit(ask(number, ["0", "1", "2"], again=(0, 2, 4)))
    found = answered(engine)
    for number in (1, 2):
        expected = apart(alone, inputs(ROWS, number))
        for version, value in zip("01", expected, strict=True):
            outputs = found[number, version].outputs
            assert outputs is not None
            torch.testing.assert_close(torch.from_numpy(outputs["value"]), value, rtol=1e-5, atol=1e-6)
            second = found[number, again_of(version)].outputs
            assert second is not None
            torch.testing.assert_close(
                torch.from_numpy(second["value"]), value[[0, 2, 4]], rtol=1e-5, atol=1e-6
            )
        assert "the head is broken" in found[number, again_of("2")].failure
        assert "the head is broken" in found[number, "2"].failure
    engine.unload(("m", "2"))
    assert engine.stats[-1].names == (("m", "0"), ("m", "1"))
    engine.submit(ask(3, ["1"]))
    engine.submit(ask(4, ["0", "1"]))
    assert {key for key, answer in answered(engine).items() if answer.outputs} == {
        (3, "1"),
        (4, "0"),
        (4, "1"),
    }
    assert engine.forwards([("m", "0"), ("m", "1")]) == 1
    counts = engine.stats[-1].counts
    before = counts.trunk_forwards, counts.head_forwards
    engine.submit(ask(5, ["0", "1"]))
    answered(engine)
    assert (counts.trunk_forwards, counts.head_forwards) == (before[0] + 1, before[1] + 2)
