"""Rows to learn: refused with counts, weighed, and divided into those to learn from and to stop by."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.training.dataset_rows import LABEL_SOURCE
from outrider.dataops.training.improving import improve
from outrider.dataops.training.learned_rows import learned_rows
from outrider.dataops.training.options import TrainingOptions
from outrider.dataops.training.trainer import Examples, TrainedModel, TrainingTask
from outrider.errors import ConfigError, ValidationRefused
from tests.training_rows import mapped, task


class Watching:
    """Learner of one number whose loss is its answer."""

    def __init__(self) -> None:
        self.module: torch.nn.Module = torch.nn.Linear(1, 1, bias=False)
        self.weight = self.module.get_parameter("weight")
        torch.nn.init.zeros_(self.weight)

    def encode(self, rows: Batch, /) -> Examples:
        x = torch.from_numpy(np.array(rows.column("inputs.a"), np.float32))
        return Examples({"x": x}, rows.rows)

    def losses(self, examples: Examples, /) -> torch.Tensor:
        out: torch.Tensor = self.module(examples.tensors["x"][:, None])[:, 0]
        return out

    def trained(self, work: Path, /) -> TrainedModel:
        return TrainedModel(Source("torch", "none"))


def rows(path: Path, labels: list[Any], **more: Any) -> MappedRows:
    count = len(labels)
    given = {"id": [f"r{row}" for row in range(count)], "inputs.a": np.arange(count, dtype=np.float32)}
    return mapped(path, given | {"label.label": labels} | more, f"{path.stem}@1")


def weights_of(folder: Path, given: MappedRows, **options: Any) -> list[float]:
    """Weight of each row in one step over all of them, from the gradient that it leaves."""
    found = []
    for row in range(len(given)):

        class Alone(Watching):
            def losses(self, examples: Examples, /, row: int = row) -> torch.Tensor:
                return super().losses(examples) * 0 + self.weight[0, 0] * (examples.tensors["x"] == row)

        alone = Alone()
        hook: list[float] = []
        alone.weight.register_hook(lambda gradient, hook=hook: hook.append(float(gradient[0, 0])))  # type: ignore[no-untyped-call]  # torch has no annotation here
        own = task(folder, given, epochs=1, batch_rows=1000, **options)
        for left in own.work.glob("*"):
            left.unlink()
        improve(alone, own, lambda _: None)
        found.append(hook[0])
    return [value * len(found) for value in found]


def test_weights_of_classes_slices_and_weak_labels_multiply_and_are_one_in_the_mean(tmp_path: Path) -> None:
    labels = [0, 0, 0, 1]
    more = {
        "attrs.device": ["a", "a", "b", "b"],
        LABEL_SOURCE: ["human", "weak:odd", "human", None],
    }
    given = rows(tmp_path / "few.arrow", labels, **more)
    assert weights_of(tmp_path, given) == pytest.approx([1, 1, 1, 1])
    assert weights_of(tmp_path, given, class_weights="balanced") == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2])
    assert weights_of(tmp_path, given, class_weights={"1": 5.0}) == pytest.approx([0.5, 0.5, 0.5, 2.5])
    slices = [{"where": {"device": "b"}, "weight": 3.0}]
    assert weights_of(tmp_path, given, slice_weights=slices) == pytest.approx([0.5, 0.5, 1.5, 1.5])
    assert weights_of(tmp_path, given, weak_weight=0.2) == pytest.approx(np.array([1, 0.2, 1, 1]) / 0.8)
    both = weights_of(tmp_path, given, weak_weight=0.5, slice_weights=slices, class_weights={"1": 2.0})
    assert both == pytest.approx(np.array([1, 0.5, 3, 6]) * 4 / 10.5)


def test_a_class_weight_for_no_class_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"retrain\.class_weights: '7' is none of the classes \[0, 1\]"):
        weights_of(tmp_path, rows(tmp_path / "few.arrow", [0, 1]), class_weights={"7": 2.0})


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            [0, 1, 5, 5],
            r"label\.label of 2 of 4 rows is 5, first in row 2 \(id r2\); one of the classes 0, 1",
        ),
        (["no", "1", "0", "0"], r"of 1 of 4 rows is 'no', first in row 0 \(id r0\)"),
        ([0, None, 1, 1], r"of 1 of 4 rows is None, first in row 1"),
        ([1, 1, 1, 1], "all 4 rows to learn from are of the class 1: rows of at least two classes of 0, 1"),
        ([1], r"1 rows to learn from in bad@1: retrain\.min_rows = 2 expected"),
    ],
)
def test_rows_that_cannot_be_learned_are_refused_with_counts(
    tmp_path: Path, labels: list[Any], message: str
) -> None:
    with pytest.raises(ValidationRefused, match=message):
        improve(Watching(), task(tmp_path, rows(tmp_path / "bad.arrow", labels)), lambda _: None)


def test_labels_of_another_type_are_the_classes_that_they_equal(tmp_path: Path) -> None:
    for labels in ([True, False], ["1", "0"], [1.0, 0.0]):
        found = learned_rows(rows(tmp_path / "d.arrow", labels), task(tmp_path, None), TrainingOptions())
        assert found.classes is not None
        assert found.classes.tolist() == [1, 0]


def test_values_of_a_regression_are_numbers(tmp_path: Path) -> None:
    own = task(tmp_path, rows(tmp_path / "v.arrow", [0.5, float("nan"), 1.5]))
    own = dataclasses.replace(own, source=dataclasses.replace(own.source, task="other", classes=()))
    with pytest.raises(
        ValidationRefused, match=r"of 1 of 3 rows is nan, first in row 1 .*; a value expected"
    ):
        improve(Watching(), own, lambda _: None)


def test_imbalance_and_absent_classes_are_warnings_of_the_record(tmp_path: Path) -> None:
    source = Source("torch", "none", inputs=("a",), classes=("x", "y", "z"))
    own = task(tmp_path, rows(tmp_path / "d.arrow", ["x"] * 40 + ["y"] * 3), source=source, epochs=1)
    figures = improve(Watching(), own, lambda _: None).figures
    assert figures["learned"][0]["classes"] == {"x": 40, "y": 3, "z": 0}
    assert figures["warnings"] == [
        "no row is of 'z'",
        "40 rows are of 'x', 3 of 'y': retrain.class_weights = 'balanced' weighs them alike",
    ]


def divided(path: Path, share: float, seed: int = 0) -> tuple[set[str], set[str]]:
    labels = [row % 2 for row in range(600)]
    given = rows(path, labels, entity=[f"u{row % 120}" for row in range(600)])
    own = task(path.parent, given, seed=seed)
    found = learned_rows(given, own, TrainingOptions(stop_share=share))
    entities = np.array([f"u{row % 120}" for row in range(600)])
    return set(entities[found.places]), set(entities[found.stop])


def test_the_part_to_stop_by_is_of_whole_entities_the_same_for_every_seed(tmp_path: Path) -> None:
    learned, stop = divided(tmp_path / "d.arrow", 0.25)
    assert not learned & stop
    assert len(learned | stop) == 120
    assert 15 <= len(stop) <= 45
    assert divided(tmp_path / "d.arrow", 0.25, seed=9) == (learned, stop)
    assert divided(tmp_path / "d.arrow", 0.1)[1] < stop
    assert divided(tmp_path / "other.arrow", 0.25)[1] != stop


class Worsening(Watching):
    """Learner whose loss on the rows to stop by falls twice and then grows."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[float] = []

    def losses(self, examples: Examples, /) -> torch.Tensor:
        distance = (self.weight[0, 0] + 0.25).abs()
        return distance.expand(examples.rows) if torch.is_grad_enabled() else self._judged(examples)

    def _judged(self, examples: Examples) -> torch.Tensor:
        self.kept.append(float(self.weight.detach()[0, 0]))
        return torch.full((examples.rows,), [3.0, 2.0, 1.0, 5.0, 5.0, 5.0, 5.0][len(self.kept) - 1])


def test_training_ends_after_the_patience_with_the_weights_of_the_best_epoch(tmp_path: Path) -> None:
    given = rows(tmp_path / "d.arrow", [row % 2 for row in range(40)])
    own = task(tmp_path, given, epochs=20, stop_share=0.3, stop_patience=2, learning_rate=0.1)
    one = Worsening()
    figures = improve(one, own, lambda _: None).figures
    assert figures["stop_losses"] == [3.0, 2.0, 1.0, 5.0, 5.0]
    assert (figures["epochs"], figures["best_epoch"]) == (5, 3)
    assert float(one.weight.detach()[0, 0]) == one.kept[2] != one.kept[4]


def test_too_few_rows_to_stop_by_are_told(tmp_path: Path) -> None:
    own: TrainingTask = task(tmp_path, rows(tmp_path / "d.arrow", [0, 1, 0]), stop_share=0.001)
    with pytest.raises(
        ValidationRefused, match=r"retrain\.stop_share = 0\.001 leaves no row to stop by, of 3"
    ):
        improve(Watching(), own, lambda _: None)
