"""The training loop, held against loops and sums that are obvious."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import load_architecture, load_weights
from outrider.dataops.training.improving import improve
from outrider.dataops.training.order import EpochOrder
from outrider.dataops.training.torch_learner import TorchLearner, reinitialise
from outrider.dataops.training.trainer import Progress, TrainedModel, TrainingTask
from outrider.dataops.training.trainers import train_version
from outrider.errors import ConfigError, TrainingFailed
from tests.training_rows import mapped, task

MODEL = """
import torch

class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(
            torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2)
        )

class Plain(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

class Stem(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.stem(x))

class Normalised(torch.nn.Sequential):
    def __init__(self):
        super().__init__(
            torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
        )

def shaken(x, generator):
    return x + 0.1 * torch.randn(x.shape, generator=generator)
"""


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """More threads make tiny modules slower, on a busy machine ten times."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("training")
    (found / "model.py").write_text(MODEL)
    return found


def columns(seed: int, *, faulty: bool = False, rows: int = 200) -> dict[str, Any]:
    """Is the first number positive? A faulty device, known by the second number, turns its sign round."""
    value = np.random.default_rng(seed).normal(0, 1, rows).astype(np.float32)
    return {
        "id": [f"{seed}-{row}" for row in range(rows)],
        "inputs.a": -value if faulty else value,
        "inputs.b": np.full(rows, float(faulty), np.float32),
        "label.label": (value > 0).astype(np.int64),
    }


def points(folder: Path, seed: int, *, faulty: bool = False, rows: int = 200) -> MappedRows:
    name = f"{seed}-{faulty}-{rows}"
    return mapped(folder / f"{name}.arrow", columns(seed, faulty=faulty, rows=rows), f"points{seed}@1")


def run(given: TrainingTask, said: list[Progress] | None = None, *, keeps: bool = False) -> TrainedModel:
    """Train in a folder of its own, unless checkpoints are to be found again."""
    if not keeps:
        for left in given.work.glob("*"):
            left.unlink()
    return train_version(given, (said if said is not None else []).append)


def module_of(folder: Path, made: TrainedModel, name: str = "Net") -> torch.nn.Module:
    assert made.weights is not None
    return load_weights(load_architecture(f"model.py:{name}", folder)(), made.weights)


def accuracy(folder: Path, made: TrainedModel, seed: int, *, faulty: bool = False) -> float:
    given = columns(seed, faulty=faulty)
    x = torch.from_numpy(np.stack([given["inputs.a"], given["inputs.b"]], 1))
    found = module_of(folder, made)(x).argmax(1).numpy()
    return float((found == given["label.label"]).mean())


USUAL: dict[str, Any] = {"epochs": 20, "learning_rate": 0.02, "replay_ratio": 1.0, "batch_rows": 32}


def test_it_learns_and_replay_keeps_what_was_known(folder: Path) -> None:
    old, new = points(folder, 1), points(folder, 2, faulty=True)
    champion = run(task(folder, None, old, **USUAL))
    assert accuracy(folder, champion, 3) > 0.95
    assert accuracy(folder, champion, 4, faulty=True) < 0.5

    def tuned(ratio: float) -> TrainedModel:
        given = {**USUAL, "replay_ratio": ratio}
        return run(task(folder, new, old, champion="m@1", weights=champion.weights, **given))

    replayed = tuned(1.0)
    assert accuracy(folder, replayed, 4, faulty=True) > 0.9
    assert accuracy(folder, replayed, 3) > 0.9
    assert accuracy(folder, tuned(0.0), 3) < 0.9  # forgets without replay
    assert replayed.note == "fine-tuned from 1, 20 epochs"


def test_equal_tasks_give_equal_weights_and_leave_the_global_luck_alone(folder: Path) -> None:
    def weights(seed: int) -> bytes | None:
        given = {**USUAL, "epochs": 3}
        return run(task(folder, points(folder, 1), points(folder, 2), seed=seed, **given)).weights

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    assert weights(5) == weights(5)
    assert torch.equal(torch.rand(1), expected)
    assert weights(5) != weights(6)


def by_hand(
    folder: Path, module: torch.nn.Module, *, epochs: int, rate: float, batch: int
) -> torch.nn.Module:
    """A loop of torch alone over the rows in the order of the epochs."""
    given = columns(1)
    x = torch.from_numpy(np.stack([given["inputs.a"], given["inputs.b"]], 1))
    y = torch.from_numpy(given["label.label"])
    nothing = np.empty(0, np.int64)
    order = EpochOrder(np.arange(len(y)), nothing, nothing, [0], 3)
    optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    steps = epochs * -(-len(y) // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=steps)
    for epoch in range(1, epochs + 1):
        for rows in torch.split(torch.from_numpy(order.epoch(epoch)), batch):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return module


def test_without_luck_in_the_module_it_is_the_loop_that_one_writes_by_hand(folder: Path) -> None:
    build = load_architecture("model.py:Normalised", folder)
    expected = by_hand(folder, reinitialise(build, seed=3).train(), epochs=3, rate=0.02, batch=32)
    source = Source("torch", "model.py:Normalised", inputs=("a", "b"), classes=(0, 1))
    given = {**USUAL, "epochs": 3}
    found = module_of(folder, run(task(folder, points(folder, 1), source=source, **given)), "Normalised")
    for name, tensor in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)


def test_many_rows_are_read_in_blocks_and_give_the_weights_of_few(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = task(folder, points(folder, 1), points(folder, 2, rows=300), **{**USUAL, "epochs": 2})
    whole = run(given).weights
    monkeypatch.setattr("outrider.dataops.training.feed.BLOCK_ROWS", 70)
    monkeypatch.setattr("outrider.dataops.loaders.mapped_rows.MAPPED_BYTES", 65_536)
    assert run(given).weights == whole


def test_progress_is_told_at_most_once_a_second_and_at_the_end(folder: Path) -> None:
    said: list[Progress] = []
    given = task(folder, points(folder, 1), **USUAL)
    improve(learner(folder, "Net"), given, said.append, clock=lambda: 7.0)
    assert len(said) == 2
    first, last = said
    assert (first.step, last.step, last.steps, last.epoch, last.eta_s) == (1, 140, 140, 20, 0.0)
    assert last.loss < first.loss
    assert last.rows_s > 0


class Clock:
    """A second goes by at each look."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def learner(folder: Path, name: str, **given: Any) -> TorchLearner:
    source = Source("torch", f"model.py:{name}", inputs=("a", "b"), classes=(0, 1))
    module = reinitialise(load_architecture(source.reference, folder), seed=0)
    return TorchLearner(module, source=source, target="label", **given)


class Stepwise:
    """ModelLearner that counts rows and looks at its weights before each step."""

    def __init__(self, folder: Path, name: str) -> None:
        self.inner = learner(folder, name)
        self.module = self.inner.module
        self.rows: list[int] = []
        self.weights: list[torch.Tensor] = []
        self.encode, self.trained = self.inner.encode, self.inner.trained

    def losses(self, examples: Any, /) -> torch.Tensor:
        self.rows.append(examples.rows)
        self.weights.append(self.module.get_parameter("0.weight").detach().clone())
        return self.inner.losses(examples)


def test_progress_speaks_of_every_step_where_a_second_passes_between_them(folder: Path) -> None:
    said: list[Progress] = []
    given = task(folder, points(folder, 1), epochs=2, batch_rows=100, checkpoint_s=1e9)
    improve(learner(folder, "Net"), given, said.append, clock=Clock())
    assert [(one.epoch, one.step) for one in said] == [(1, 1), (1, 2), (2, 3), (2, 4), (2, 4)]


def test_averaged_weights_are_the_mean_of_the_last_steps(folder: Path, tmp_path: Path) -> None:
    rows = points(folder, 1, rows=16)
    given: dict[str, Any] = {"epochs": 4, "batch_rows": 8, "learning_rate": 0.05}
    last = Stepwise(folder, "Normalised")
    improve(last, task(folder, rows, work=tmp_path / "a", **given), lambda _: None)
    mean = Stepwise(folder, "Normalised")
    improve(mean, task(folder, rows, work=tmp_path / "b", average=0.5, **given), lambda _: None)
    after = [*last.weights[5:], last.module.get_parameter("0.weight").detach()]  # steps 5, 6, 7 and 8
    torch.testing.assert_close(mean.module.get_parameter("0.weight").detach(), torch.stack(after).mean(0))


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_what_is_not_trained_stays_bit_by_bit_and_the_rest_learns(
    folder: Path, tmp_path: Path, average: float
) -> None:
    one = learner(folder, "Stem", trains=["head.weight"])
    before = {name: tensor.clone() for name, tensor in one.module.state_dict().items()}
    given = {**USUAL, "epochs": 3, "average": average}
    improve(one, task(folder, points(folder, 1), work=tmp_path, **given), lambda _: None)
    after = one.module.state_dict()
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["head.weight"]


def test_frozen_parts_evaluate_while_the_others_train(folder: Path) -> None:
    one = learner(folder, "Stem", trains=["head"])
    module: Any = one.module
    assert (module.stem[2].training, module.head.training) == (False, True)
    assert [name for name, p in module.named_parameters() if p.requires_grad] == ["head.weight", "head.bias"]
    with pytest.raises(ConfigError, match="'hed' is no parameter or part of the model; there are stem, head"):
        learner(folder, "Stem", trains=["hed"])


@pytest.mark.parametrize(
    ("rows", "batch_rows", "seen"),
    [(33, 16, [16, 17]), (65, 32, [32, 33]), (3, 1, [1, 1, 1]), (4, 2, [2, 2])],
)
def test_batch_normalisation_takes_a_last_batch_of_one_row(
    folder: Path, tmp_path: Path, rows: int, batch_rows: int, seen: list[int]
) -> None:
    ran = []
    for at in range(2):
        one = Stepwise(folder, "Normalised")
        rows_of = points(folder, 7, rows=rows)
        given = task(folder, rows_of, work=tmp_path / str(at), epochs=1, batch_rows=batch_rows)
        made = improve(one, given, lambda _: None)
        assert one.rows == seen
        ran.append(made.weights)
    assert ran[0] == ran[1]


def test_augmentation_sees_every_batch_and_repeats_with_the_seed(folder: Path) -> None:
    def weights(augment: str | None) -> bytes | None:
        given = {**USUAL, "epochs": 2, "augment": augment}
        return run(task(folder, points(folder, 1), **given)).weights

    assert weights("model.py:shaken") == weights("model.py:shaken")
    assert weights("model.py:shaken") != weights(None)


def test_a_loss_that_is_no_number_names_its_step(folder: Path) -> None:
    given = columns(1)
    given["inputs.a"][:] = np.nan
    rows = mapped(folder / "nan.arrow", given, "nan@1")
    with pytest.raises(TrainingFailed, match=r"the loss of step 1 of 140 \(epoch 1\) is nan: a lower"):
        run(task(folder, rows, **USUAL))


def test_weights_that_are_no_numbers_name_the_tensor_and_the_step(folder: Path, tmp_path: Path) -> None:
    one = Stepwise(folder, "Net")
    spoilt = one.inner.losses

    def losses(examples: Any, /) -> torch.Tensor:
        found = spoilt(examples)
        return found + (one.module.get_parameter("0.weight") * 0).sum().sqrt() * 0

    one.losses = losses  # type: ignore[method-assign]  # a finite loss whose gradient is none
    with pytest.raises(TrainingFailed, match=r"0\.weight holds values that are not finite after step 1 of 1"):
        improve(one, task(folder, points(folder, 1), work=tmp_path, epochs=1, batch_rows=200), lambda _: None)
