from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import RunnerPredictor
from outrider.dataops.model_kinds.torch_models import (
    State,
    TorchRunner,
    dump_weights,
    encode,
    load_architecture,
    load_weights,
)
from outrider.dataops.training.finetuning import TrainingExamples, examples, fine_tune, reinitialise
from outrider.dataops.training.freezing import train_only
from outrider.errors import ConfigError


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """More threads make tiny modules slower, on a busy machine ten times."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def net() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2)
    )


def points(seed: int, *, faulty: bool = False, rows: int = 200) -> TrainingExamples:
    """Is the first number positive? A faulty device, known by the second number, turns its sign round."""
    value = torch.from_numpy(np.random.default_rng(seed).normal(0, 1, rows).astype(np.float32))
    x = torch.stack([-value if faulty else value, torch.full((rows,), float(faulty))], dim=1)  # (rows, 2)
    return TrainingExamples(x, (value > 0).long())


NOTHING = TrainingExamples(torch.zeros(0, 2), torch.zeros(0, dtype=torch.long))


def accuracy(state: State, data: TrainingExamples) -> float:
    module = net()
    module.load_state_dict(state)
    return float((module.eval()(data.x).argmax(1) == data.y).float().mean())


def train(
    fresh: TrainingExamples,
    replay: TrainingExamples | None,
    module: torch.nn.Module,
    *,
    ratio: float = 1.0,
    seed: int = 3,
) -> State:
    return fine_tune(
        module, fresh, replay, epochs=20, learning_rate=0.02, replay_ratio=ratio, batch_rows=32, seed=seed
    )


def test_it_learns_and_replay_keeps_what_was_known() -> None:
    old, new = points(1), points(2, faulty=True)
    champion = train(NOTHING, old, reinitialise(net, seed=0))
    assert accuracy(champion, points(3)) > 0.95
    assert accuracy(champion, points(4, faulty=True)) < 0.5

    def tuned(ratio: float) -> State:
        module = net()
        module.load_state_dict(champion)
        return train(new, old, module, ratio=ratio)

    replayed = tuned(1.0)
    assert accuracy(replayed, points(4, faulty=True)) > 0.9
    assert accuracy(replayed, points(3)) > 0.9
    assert accuracy(tuned(0.0), points(3)) < 0.9  # forgets without replay


def test_equal_seeds_give_equal_weights() -> None:
    def weights(seed: int) -> bytes:
        return dump_weights(train(points(1), points(2), reinitialise(net, seed=seed), seed=seed))

    assert weights(5) == weights(5)
    assert weights(5) != weights(6)


def test_the_global_random_state_is_left_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    train(points(1), None, reinitialise(net, seed=2))
    assert torch.equal(torch.rand(1), expected)


def test_nothing_to_learn_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to learn from"):
        train(NOTHING, None, net())


def test_progress_reports_every_epoch() -> None:
    losses: list[tuple[int, float]] = []
    fine_tune(
        reinitialise(net, seed=0),
        points(1),
        None,
        epochs=3,
        learning_rate=0.02,
        replay_ratio=0,
        batch_rows=32,
        seed=0,
        progress=lambda epoch, loss: losses.append((epoch, loss)),
    )
    assert [epoch for epoch, _ in losses] == [1, 2, 3]
    assert losses[-1][1] < losses[0][1]


def test_examples_of_a_batch() -> None:
    batch = Batch.from_columns(
        {"inputs.a": [1.0, 2.0], "inputs.b": [3, 4], "label.label": ["no", "yes"]}, model="m"
    )
    found = examples(batch, inputs=["a", "b"], target="label", classes=["yes", "no"])
    assert found.x.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert found.y.tolist() == [1, 0]
    with pytest.raises(ValueError, match="holds 'no', which is not among"):
        examples(batch, inputs=["a"], target="label", classes=["yes"])


def test_an_image_column_is_encoded_as_it_is() -> None:
    batch = Batch.from_columns({"inputs.image": np.ones((3, 4, 5), np.float32)}, model="m")
    assert encode(batch, ["image"]).shape == (3, 4, 5)


def test_a_classifier_answers_label_score_margin_and_probabilities() -> None:
    module = torch.nn.Linear(2, 3)
    torch.nn.init.zeros_(module.weight)
    module.bias.data = torch.tensor([0.0, 2.0, 1.0])
    batch = Batch.from_columns({"inputs.a": [1.0], "inputs.b": [3.0]}, model="m")
    out = RunnerPredictor(TorchRunner(module, inputs=["a", "b"], classes=["x", "y", "z"]))(batch)
    probs = np.exp([0, 2, 1]) / np.exp([0, 2, 1]).sum()
    assert out["label"].tolist() == ["y"]
    np.testing.assert_allclose(out["probs"][0], probs, rtol=1e-6)
    np.testing.assert_allclose(
        [out["score"][0], out["margin"][0]], [probs[1], probs[1] - probs[2]], rtol=1e-5
    )
    with pytest.raises(ConfigError, match=r"must return \(rows, 2\) logits.*got \(1, 3\)"):
        RunnerPredictor(TorchRunner(module, inputs=["a", "b"], classes=["x", "y"]))(batch)


def test_weights_survive_the_round_trip_and_misfits_are_named() -> None:
    module = reinitialise(net, seed=1)
    weights = dump_weights(module.state_dict())
    again = load_weights(net(), weights)
    assert dump_weights(again.state_dict()) == weights
    with pytest.raises(ConfigError, match=r"champion.* do not fit Linear"):
        load_weights(torch.nn.Linear(2, 2), weights, name="champion")
    with pytest.raises(ConfigError, match="not a safetensors file"):
        load_weights(net(), b"\x80\x04pickle")


def test_an_architecture_that_is_none_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\ngood = lambda: torch.nn.Linear(2, 2)\nbad = lambda: 3\n"
    )
    assert isinstance(load_architecture("model.py:good", tmp_path)(), torch.nn.Linear)
    with pytest.raises(ConfigError, match=r"must return a torch\.nn\.Module, got int"):
        load_architecture("model.py:bad", tmp_path)()


def test_augmentation_sees_every_batch_and_repeats_with_the_seed() -> None:
    seen: list[int] = []

    def shaken(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        seen.append(len(x))
        return x + 0.1 * torch.randn(x.shape, generator=generator)

    def trained(*, augmented: bool) -> torch.Tensor:
        state = fine_tune(
            reinitialise(net, seed=0),
            points(1, rows=10),
            points(2, rows=50),
            epochs=2,
            learning_rate=0.01,
            replay_ratio=1.0,
            batch_rows=8,
            seed=3,
            augment=shaken if augmented else None,
        )
        return state["0.weight"]

    first = trained(augmented=True)
    assert seen == [8, 8, 4, 8, 8, 4]
    assert torch.equal(first, trained(augmented=True))
    assert not torch.equal(first, trained(augmented=False))


def test_averaged_weights_are_the_mean_of_the_last_steps() -> None:
    def trained(average: float, look: list[torch.Tensor] | None = None) -> torch.Tensor:
        module = torch.nn.Linear(2, 2)
        with torch.no_grad():
            module.weight.zero_()
            module.bias.zero_()

        def watch(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
            if look is not None:  # before each step: the weights after the one before
                look.append(module.weight.detach().clone())
            return x

        state = fine_tune(
            module,
            points(1, rows=16),
            None,
            epochs=4,
            learning_rate=0.05,
            replay_ratio=0.0,
            batch_rows=8,
            seed=3,
            augment=watch,
            average=average,
        )
        return state["weight"]

    steps: list[torch.Tensor] = []
    last = trained(0.0, steps)
    assert len(steps) == 8
    expected = torch.stack([*steps[5:], last]).mean(dim=0)  # after steps 5, 6, 7 and 8
    assert torch.allclose(trained(0.5), expected, atol=1e-6)


class Stem(torch.nn.Module):
    """A normalised stem, a head, and a dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
        self.between = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.between(self.stem(x)))
        return answer


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_what_is_not_trained_stays_bit_by_bit_and_the_rest_learns(average: float) -> None:
    module = reinitialise(Stem, seed=1)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = fine_tune(
        module, points(1), points(2), epochs=3, learning_rate=0.02, replay_ratio=1.0, batch_rows=32, seed=3,
        trains=["head.weight"], average=average,
    )  # fmt: skip
    assert [name for name in before if not torch.equal(before[name], state[name])] == ["head.weight"]


def test_frozen_parts_evaluate_while_the_others_train() -> None:
    module = Stem()
    trained = train_only(module, ["head"])
    assert {id(p) for p in trained} == {id(p) for p in module.head.parameters()}
    assert not module.stem[2].training
    assert module.between.training
    assert module.head.training
    assert len(train_only(module, [])) == len(list(module.parameters()))


def test_an_unknown_name_to_train_is_told_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="'hed' is no parameter or part of the model; there are stem, head"):
        train_only(Stem(), ["hed"])


def normalised() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(2, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    )


@pytest.mark.parametrize(("rows", "batch_rows"), [(33, 32), (65, 32), (1, 32), (5, 1), (4, 2)])
def test_fine_tune_batch_normalisation_takes_a_last_batch_of_one_row(rows: int, batch_rows: int) -> None:
    states = []
    for _ in range(2):
        module = reinitialise(normalised, seed=0)
        before = module[3].weight.detach().clone()  # type: ignore[index]  # a Sequential
        losses: list[float] = []
        states.append(
            fine_tune(
                module,
                points(1, rows=rows),
                None,
                epochs=2,
                learning_rate=0.02,
                replay_ratio=0.0,
                batch_rows=batch_rows,
                seed=3,
                progress=lambda _, loss, losses=losses: losses.append(loss),  # type: ignore[misc]
            )
        )
        assert len(losses) == 2
        assert not torch.equal(before, states[-1]["3.weight"])
        assert all(torch.isfinite(tensor).all() for tensor in states[-1].values())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_fine_tune_no_row_is_lost_to_batch_normalisation() -> None:
    seen: list[int] = []

    def count(x: torch.Tensor, _: torch.Generator) -> torch.Tensor:
        seen.append(len(x))
        return x

    fine_tune(
        normalised(),
        points(1, rows=33),
        None,
        epochs=1,
        learning_rate=0.02,
        replay_ratio=0.0,
        batch_rows=16,
        seed=3,
        augment=count,
    )
    assert seen == [16, 17]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [([True, False], (0, 1)), (["1", "0"], (0, 1)), ([1.0, 0.0], (0, 1)), ([1, 0], ("0", "1"))],
)
def test_examples_labels_of_another_type_are_the_classes_they_equal(
    labels: list[object], classes: tuple[int | str, ...]
) -> None:
    batch = Batch.from_columns({"inputs.x": np.zeros(2), "label.label": labels}, model="m")
    assert examples(batch, inputs=["x"], target="label", classes=classes).y.tolist() == [1, 0]
    with pytest.raises(ValueError, match="not among the classes"):
        examples(batch, inputs=["x"], target="label", classes=("0", "2"))
