"""A user's ``fine_tune`` trains; its result is kept as ONNX or as files, and answers."""

import dataclasses
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import Batch
from outrider.dataops.loaders.mapped_rows import MappedRows
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.training.trainer import TrainedModel, TrainingTask
from outrider.dataops.training.user_trainer import _rows, train_by_user
from outrider.errors import ConfigError, OutriderError, TrainingFailed, ValidationRefused
from tests.requirements import require_package

SOURCE = Source("function", "rules.py:predict", inputs=("age", "hours"), classes=("no", "yes"))
ESTIMATOR = """
    from sklearn.linear_model import LogisticRegression

    def fine_tune(champion, dataset, seed):
        model = LogisticRegression(random_state=seed)
        return model.fit(dataset.x, dataset.y, sample_weight=dataset.weight)
"""
FILES = """
    import json
    import numpy as np

    def fine_tune(champion, dataset, seed):
        is_next = champion is not None and champion.folder is not None
        before = json.loads((champion.folder / "seen.json").read_text()) if is_next else 0
        means = np.array([dataset.x[dataset.y == name].mean() for name in ("no", "yes")])
        return {"means": means, "seen": before + len(dataset), "notes/words.txt": b"by hand"}

    def load(folder):
        means = np.load(folder / "means.npy")
        def predict(batch):
            x = np.stack([batch.column("inputs.age"), batch.column("inputs.hours")], axis=1)
            near = ((x[:, None] - means) ** 2).sum(-1).argmin(1)
            return {"label": np.where(near, "yes", "no")}
        return predict
"""


def mapped(folder: Path, name: str, rows: int, *, seed: int = 0, **columns: Any) -> MappedRows:
    """Adults: the older and busier ones are ``yes``."""
    draw = np.random.default_rng(seed)
    age, hours = draw.normal(40, 10, rows), draw.normal(30, 10, rows)
    label = np.where(age + hours > 70, "yes", "no")
    given = {
        "id": [f"{name}{n}" for n in range(rows)], "inputs.age": age, "inputs.hours": hours,
        "label.label": label,
    }  # fmt: skip
    table = Batch.from_columns(given | columns, model="churn").to_arrow()
    path = folder / f"{name}.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write(table)
    return MappedRows(f"{name}@1 train", name, path)


def task(folder: Path, code: str, **more: Any) -> TrainingTask:
    (folder / "train.py").write_text(textwrap.dedent(code))
    (folder / "work").mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "model": "churn", "champion": "churn@1", "source": SOURCE, "weights": None,
        "fresh": mapped(folder, "fresh", 80), "replay": None, "target": "label",
        "options": {"trainer": "train.py:fine_tune"}, "seed": 3, "base": folder, "work": folder / "work",
    }  # fmt: skip
    return TrainingTask(**given | more)


def train(given: TrainingTask) -> TrainedModel:
    return train_by_user(given, lambda _: None)


def opened(made: TrainedModel, work: Path) -> Source:
    kept: dict[Any, str] = {"artefacts": str(work / "artefacts")} if made.files else {}
    return dataclasses.replace(made.source, kept=kept)


def accuracy(made: TrainedModel, folder: Path) -> float:
    rows = Batch.from_arrow(mapped(folder, "test", 200, seed=9).table, model="churn")
    source = opened(made, folder / "work")
    found = as_predictor(load_model(source, folder=folder, weights=made.weights))(rows)
    return float(np.mean(found["label"] == rows.column("label.label")))


def test_estimator_is_kept_as_onnx(tmp_path: Path) -> None:
    require_package("skl2onnx", "pip install outrider[onnx]")
    made = train(task(tmp_path, ESTIMATOR))
    assert (made.source.kind, made.source.inputs) == ("onnx", ("age", "hours"))
    assert made.source.classes == ("no", "yes")
    assert accuracy(made, tmp_path) > 0.95
    assert train(task(tmp_path, ESTIMATOR)).weights == made.weights


def test_files_come_back_to_load_and_to_the_next_training(tmp_path: Path) -> None:
    made = train(task(tmp_path, FILES, champion=None))
    assert sorted(made.files) == ["means.npy", "notes/words.txt", "seen.json"]
    assert (made.source.kind, made.source.reference) == ("function", "train.py:load")
    assert accuracy(made, tmp_path) > 0.9
    again = task(tmp_path, FILES, source=opened(made, tmp_path / "work"), work=tmp_path / "next")
    assert (train(again).files["seen.json"]).read_text() == "160\n"


def test_champion_answers_and_old_rows_weigh_by_the_ratio(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(
        "import numpy as np\n"
        "def predict(batch):\n"
        "    return {'label': np.where(batch.column('inputs.age') > 40, 'yes', 'no')}\n"
    )
    code = """
        import numpy as np
        def fine_tune(champion, dataset, seed):
            assert champion.id == "churn@1" and champion.folder is None
            said = champion.predict(dataset.x)["label"]
            assert (said == np.where(dataset.x.age > 40, "yes", "no")).all()
            assert len(dataset) == len(dataset.y) == 100
            assert dataset.weight[:20].tolist() == [1.0] * 20
            assert abs(dataset.weight[20:].sum() - 40) < 1e-9
            assert (len(dataset.fresh), len(dataset.replay)) == (20, 80)
            return {"n": np.random.randint(1000)}
        def load(folder):
            return lambda batch: {"label": np.full(batch.rows, "no")}
    """
    fresh, replay = mapped(tmp_path, "new", 20), mapped(tmp_path, "old", 80, seed=1)
    given = task(tmp_path, code, fresh=fresh, replay=replay)
    drawn = [train(given).files["n.json"].read_text() for _ in range(2)]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        ("def fine_tune(champion, dataset, seed):\n    x = 1\n    return dataset.nothing",
         TrainingFailed, r"train\.py:3: AttributeError: .*nothing"),
        ("def fine_tune(champion, dataset, seed):\n    return 7", TrainingFailed,
         r"train\.py:fine_tune returned int: a fitted scikit-learn estimator"),
        ("def fine_tune(champion, dataset, seed):\n    return b'onnx'", OutriderError, "no ONNX model"),
        ("def fine_tune(champion, dataset, seed):\n    return {'a': 1}", ConfigError, "load is not defined"),
        ("import numpy as np\ndef fine_tune(c, d, s):\n    return {'w': np.array([1.0, np.nan])}\n"
         "def load(folder): ...", TrainingFailed, "w: 1 of 2 numbers are NaN"),
        ("def fine_tune(c, d, s):\n    return {'w': float('nan')}\ndef load(folder): ...", TrainingFailed,
         "w = float, which JSON cannot hold"),
        ("def fine_tune(c, d, s):\n    return {'../w': 1}\ndef load(folder): ...", TrainingFailed,
         "a name below the folder expected"),
        ("import numpy as np\ndef fine_tune(c, d, s):\n    return {'w': 1}\n"
         "def load(folder):\n    return lambda b: {'value': np.full(b.rows, np.nan)}", TrainingFailed,
         "the trained model's answer value: 64 of 64 numbers are NaN"),
        ("def fine_tune(c, d, s):\n    return {'w': 1}\n"
         "def load(folder):\n    def predict(batch):\n        return 1 / 0\n    return predict",
         TrainingFailed, r"does not answer: .*train\.py:5: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_wrong_result_is_refused_with_its_place(
    tmp_path: Path, code: str, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        train(task(tmp_path, code))


def test_onnx_with_nan_weights_is_refused(tmp_path: Path) -> None:
    require_package("skl2onnx", "pip install outrider[onnx]")
    code = textwrap.dedent(ESTIMATOR).replace("return model", "model") + (
        "    model.coef_[0, 0] = float('nan')\n    from skl2onnx import to_onnx\n"
        "    return to_onnx(model, dataset.x.to_numpy(dtype='float32'))\n"
    )
    with pytest.raises(TrainingFailed, match="numbers are NaN"):
        train(task(tmp_path, code))


def test_label_outside_of_the_classes_is_named(tmp_path: Path) -> None:
    labels: dict[str, Any] = {"label.label": ["yes", "maybe", "no"]}
    rows = mapped(tmp_path, "odd", 3, **labels)
    with pytest.raises(
        ValidationRefused, match=r"label\.label of 1 of 3 rows is 'maybe', first in row 1 \(id odd1\)"
    ):
        train(task(tmp_path, ESTIMATOR, fresh=rows))


def test_weights_of_classes_slices_and_old_rows_multiply(tmp_path: Path) -> None:
    attrs: dict[str, Any] = {"attrs.site": ["a", "b"] * 10}
    labels: dict[str, Any] = {"label.label": ["no"] * 15 + ["yes"] * 5}
    given = task(
        tmp_path, "", fresh=mapped(tmp_path, "new", 20, **labels, **attrs), replay=mapped(tmp_path, "old", 80)
    )
    options = dict(given.options) | {
        "replay_ratio": 1.0, "class_weights": {"yes": 3.0},
        "slice_weights": [{"where": {"site": "b"}, "weight": 2.0}],
    }  # fmt: skip
    rows, _ = _rows(dataclasses.replace(given, options=options))
    of_class = np.where(rows.y == "yes", 3.0, 1.0)
    site = np.array([1.0, 2.0] * 10 + [1.0] * 80)
    ratio = np.array([1.0] * 20 + [0.25] * 80)
    np.testing.assert_allclose(rows.weight, of_class * site * ratio)
    even, _ = _rows(dataclasses.replace(given, options=options | {"class_weights": "balanced"}))
    sums = [even.weight[even.y == name].sum() for name in ("no", "yes")]
    assert sums[0] == pytest.approx(sums[1])
