"""Runs that are killed end with the weights of one that is not."""

import hashlib
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import load_architecture
from outrider.dataops.training.checkpoints import Checkpoint, CheckpointFile
from outrider.dataops.training.improving import improve, task_digest
from outrider.dataops.training.torch_learner import TorchLearner, augment_of, reinitialise
from outrider.dataops.training.trainer import Progress, StepExamples, TrainingTask
from outrider.dataops.training.trainers import train_version
from tests.forked import LIGHT, forks
from tests.training_rows import mapped, task

from .killed_run import OPTIONS
from .test_loop import MODEL, columns, one_thread

__all__ = ["one_thread"]
SOURCE = Source("torch", "model.py:Stem", inputs=("a", "b"), classes=(0, 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("checkpoints")
    (found / "model.py").write_text(MODEL)
    mapped(found / "fresh.arrow", columns(1), "fresh@1")
    mapped(found / "old.arrow", columns(2, faulty=True, rows=300), "old@1")
    return found


def given(folder: Path, work: Path, **options: Any) -> TrainingTask:
    fresh, old = (
        mapped(folder / "fresh.arrow", columns(1), "fresh@1"),
        mapped(folder / "old.arrow", columns(2, faulty=True, rows=300), "old@1"),
    )
    fields = {name: options.pop(name) for name in tuple(options) if name in TrainingTask.__slots__}
    return task(folder, fresh, old, **{"source": SOURCE, "work": work, **fields, **OPTIONS, **options})


class Killed(BaseException):
    """A process that ends in the middle of a step."""


class Mortal(TorchLearner):
    """ModelLearner that dies at a step of its own count, evaluations included."""

    left = 10**9

    def losses(self, examples: StepExamples, /) -> torch.Tensor:
        self._live()
        return super().losses(examples)

    def mean_loss(self, examples: StepExamples, /) -> torch.Tensor:
        self._live()
        return super().mean_loss(examples)

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


def mortal(folder: Path, left: int) -> Mortal:
    module = reinitialise(load_architecture(SOURCE.reference, folder), seed=3)
    found = Mortal(module, source=SOURCE, target="label")
    found.left = left
    return found


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    """Weights of a run that nobody kills."""
    made = train_version(given(folder, folder / "whole"), lambda _: None)
    assert made.weights is not None
    assert made.figures["steps"] == 4 * 10
    return made.weights


def test_a_run_killed_at_20_places_ends_with_equal_weights(
    folder: Path, whole: bytes, tmp_path: Path
) -> None:
    own = given(folder, tmp_path, checkpoint_s=0.0)
    died = 0
    for place in (1, 2, 3, 1, 4, 5, 1, 2, 6, 2, 1, 3, 2, 1, 1, 2, 3, 2, 1, 4):
        with pytest.raises(Killed):
            improve(mortal(folder, place), own, lambda _: None, augment=augment_of(own))
        died += 1
    made = improve(mortal(folder, 10**9), own, lambda _: None, augment=augment_of(own))
    assert died == 20
    assert made.weights == whole
    assert made.figures["resumed"] >= 8  # some died before their first checkpoint


def test_a_process_killed_by_the_system_goes_on_to_equal_weights(
    folder: Path, whole: bytes, tmp_path: Path
) -> None:
    for name in ("model.py", "fresh.arrow", "old.arrow"):
        shutil.copy(folder / name, tmp_path / name)
    command = [sys.executable, "-m", "tests.dataops.training.killed_run", str(tmp_path), "4", "11"]
    with forks("torch._dynamo", "outrider.dataops.training.trainers", modules=LIGHT):
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert out == ["4", hashlib.sha256(whole).hexdigest()]


def test_who_is_asked_to_end_leaves_a_checkpoint_of_that_step(folder: Path, tmp_path: Path) -> None:
    own = given(folder, tmp_path, checkpoint_s=1e9)

    def stop(at: Progress) -> None:
        raise Killed

    with pytest.raises(Killed):
        train_version(own, stop)
    found = CheckpointFile(tmp_path, task_digest(own)).read()
    assert found is not None
    assert (found.state["epoch"], found.state["step"]) == (1, 1)


@pytest.mark.parametrize("change", ["seed", "epochs", "model"])
def test_a_checkpoint_of_another_task_is_left_aside(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    own = given(folder, tmp_path)
    with pytest.raises(Killed):
        improve(mortal(folder, 3), own, lambda _: None)
    others: dict[str, dict[str, Any]] = {
        "seed": {"seed": 4},
        "epochs": {"epochs": 2},
        "model": {"model": "another"},
    }
    other = others[change]
    changed = given(folder, tmp_path, **other)
    assert task_digest(changed) != task_digest(own)
    with caplog.at_level(logging.WARNING):
        made = improve(mortal(folder, 10**9), changed, lambda _: None)
    assert "is of another task: training begins anew" in caplog.text
    assert "resumed" not in made.figures


def test_a_damaged_checkpoint_and_a_half_written_one_are_left_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = CheckpointFile(tmp_path, "task")
    file.write(Checkpoint({"a": torch.ones(3)}, {"epoch": 2}))
    again = file.read()
    assert again is not None
    assert (again.tensors["a"].tolist(), again.state) == ([1.0, 1.0, 1.0], {"epoch": 2})
    (tmp_path / ".checkpoint.safetensors.99").write_bytes(b"half")
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    assert file.read() is None
    assert "cannot be read, training begins anew" in caplog.text
    assert [one.name for one in tmp_path.iterdir()] == ["checkpoint.safetensors"]
