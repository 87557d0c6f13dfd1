"""A champion's answers and labels teach a given architecture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outrider.assertions import Batch
from outrider.dataops.compression.distillation import ScaledValues, SoftClasses
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.dataops.training.distilled_learner import TAUGHT, distilled_learner
from outrider.dataops.training.targets import LABEL
from outrider.errors import ConfigError
from tests.dataops.training.texts import learn, task

MODULES = """
import torch

def Big():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))

def Small():
    return torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

def Wide():
    return torch.nn.Linear(2, 3)
"""
SOURCE = Source("torch", "model.py:Big", inputs=("a", "b"), classes=("no", "yes"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("distilled")
    (folder / "model.py").write_text(MODULES)
    (folder / "sure.py").write_text(
        "import numpy as np\n"
        "def predict(batch):\n"
        "    yes = (batch.column('inputs.a') > 0).astype(np.float32)\n"
        "    return {'probs': np.stack([1 - yes, yes], 1)}\n"
        "def blind(batch):\n"
        "    return {'label': np.full(batch.rows, 'no')}\n"
    )
    return folder


def points(rows: int = 200) -> Batch:
    """``yes`` where the first number is positive; a tenth is labelled the other way round."""
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=rows), draw.normal(size=rows)
    is_yes = (a > 0) ^ (np.arange(rows) % 10 == 0)
    columns = {
        "id": [f"p{n}" for n in range(rows)], "inputs.a": a, "inputs.b": b,
        "label.label": np.where(is_yes, "yes", "no"),
    }  # fmt: skip
    return Batch.from_columns(columns, model="reviews")


def champion() -> bytes:
    """Weights of a Big that answers ``yes`` where the first number is positive."""
    first, last = torch.zeros(32, 2), torch.zeros(2, 32)
    first[0, 0], first[1, 0] = 4.0, -4.0
    last[1, 0], last[0, 1] = 1.0, 1.0
    return dump_weights(
        {"0.weight": first, "0.bias": torch.zeros(32), "2.weight": last, "2.bias": torch.zeros(2)}
    )


def options(architecture: str = "model.py:Small", **distill: Any) -> dict[str, Any]:
    return {"architecture": architecture, "distill": distill}


def test_student_answers_as_the_champion_and_is_served(home: Path, tmp_path: Path) -> None:
    rows = points()
    given = task(home, tmp_path, SOURCE, weights=champion(), options=options(label_share=0.0))
    learner = distilled_learner(given)
    losses = learn(learner, rows, steps=150, rate=2e-2)
    assert losses[-1] < 0.05 * losses[0]
    made = learner.trained(tmp_path)
    assert (made.source.reference, made.source.classes) == ("model.py:Small", ("no", "yes"))
    answers = as_predictor(load_model(made.source, folder=home, weights=made.weights))(rows)
    said = np.where(rows.column("inputs.a") > 0, "yes", "no")
    assert np.mean(answers["label"] == said) > 0.97


def test_loss_mixes_champion_and_labels_by_the_share(home: Path, tmp_path: Path) -> None:
    rows = points(20)

    def losses(share: float) -> torch.Tensor:
        own = options(label_share=share, temperature=3.0)
        learner = distilled_learner(task(home, tmp_path, SOURCE, weights=champion(), options=own))
        return learner.losses(learner.encode(rows)).detach()

    torch.testing.assert_close(losses(0.3), 0.7 * losses(0.0) + 0.3 * losses(1.0))
    learner = distilled_learner(task(home, tmp_path, SOURCE, weights=champion(), options=options()))
    tensors = learner.encode(rows).tensors
    out = learner.answers({"x": tensors["x"]}).detach()
    labels = torch.nn.functional.cross_entropy(out, tensors[LABEL], reduction="none")
    torch.testing.assert_close(losses(1.0), labels)
    ours, theirs = (t.div(3).softmax(1) for t in (out, tensors[TAUGHT]))
    divergence = (theirs * (theirs.log() - ours.log())).sum(1) * 9
    torch.testing.assert_close(losses(0.0), divergence)


def test_function_teaches_by_its_probabilities(home: Path, tmp_path: Path) -> None:
    rows = points()
    source = Source("function", "sure.py:predict", inputs=("a", "b"), classes=("no", "yes"))
    learner = distilled_learner(task(home, tmp_path, source, options=options(label_share=0.0)))
    learn(learner, rows, steps=80, rate=2e-2)
    made = learner.trained(tmp_path)
    answers = as_predictor(load_model(made.source, folder=home, weights=made.weights))(rows)
    assert np.mean((answers["label"] == "yes") == (rows.column("inputs.a") > 0)) > 0.95


def test_row_losses_have_the_mean_of_the_batch() -> None:
    torch.manual_seed(0)
    out, taught = torch.randn(6, 4), torch.randn(6, 4)
    ours, theirs = out.log_softmax(1), taught.log_softmax(1)
    mean = torch.nn.functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)
    torch.testing.assert_close(SoftClasses(1.0)(out, taught).mean(), mean)
    scaled = torch.nn.functional.mse_loss(out, taught) / taught.var(unbiased=False)
    torch.testing.assert_close(ScaledValues(taught)(out, taught).mean(), scaled)


def test_student_that_does_not_fit_is_refused(home: Path, tmp_path: Path) -> None:
    rows = points(8)
    wide = distilled_learner(
        task(home, tmp_path, SOURCE, weights=champion(), options=options("model.py:Wide"))
    )
    with pytest.raises(ConfigError, match=r"model\.py:Wide answers \(3,\) a record, the champion \(2,\)"):
        wide.losses(wide.encode(rows))
    with pytest.raises(ConfigError, match=r"retrain\.architecture: file\.py:callable or a folder expected"):
        distilled_learner(task(home, tmp_path, SOURCE, weights=champion()))
    blind = Source("function", "sure.py:blind", inputs=("a", "b"), classes=("no", "yes"))
    learner = distilled_learner(task(home, tmp_path, blind, options=options()))
    with pytest.raises(ConfigError, match="reviews@1 answers label: probs expected"):
        learner.encode(rows)
