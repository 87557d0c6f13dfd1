"""ONNX files: estimators that were converted, and files that others wrote."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from outrider.assertions import Batch
from outrider.dataops.model_kinds.conversion import ConversionAgreement, compare, convert_estimator, state_of
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.onnx_file import OnnxModel, load_onnx
from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError
from tests.requirements import require_package

require_package("skl2onnx", "pip install outrider[onnx]")
onnx = require_package("onnx", "pip install outrider[onnx]")

RNG = np.random.default_rng(7)
PEOPLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, 300),
        "hours": RNG.normal(38, 9, 300),
        "job": RNG.choice(["clerk", "pilot"], 300),
    }
)
PAID = np.where(PEOPLE.age * 0.5 + PEOPLE.hours + 20 * (PEOPLE.job == "pilot") > 70, "high", "low")


def model(content: bytes, **more: Any) -> OnnxModel:
    return load_onnx(Source("onnx", "m.onnx", **more), Path(), content)


def test_a_pipeline_over_numbers_and_texts_is_fed_column_by_column() -> None:
    columns = ColumnTransformer(
        [("n", StandardScaler(), ["age", "hours"]), ("c", OneHotEncoder(handle_unknown="ignore"), ["job"])]
    )
    fitted = make_pipeline(columns, LogisticRegression()).fit(PEOPLE, PAID)
    found = convert_estimator(fitted, PEOPLE)
    assert (found.inputs, found.classes) == (("age", "hours", "job"), ("high", "low"))
    assert found.agreement.holds(1e-5)
    assert found.agreement.rows == 300
    batch = Batch.from_pandas(PEOPLE.head(20), model="m", inputs=["job", "age", "hours"])
    answers = model(found.content)(batch)
    assert answers["label"].tolist() == fitted.predict(PEOPLE.head(20)).tolist()
    np.testing.assert_allclose(answers["probs"], fitted.predict_proba(PEOPLE.head(20)), atol=1e-5)
    np.testing.assert_allclose(answers["score"], answers["probs"].max(1))
    null = Batch.from_records([{"inputs": {"age": 1, "hours": 2.0, "job": None}}] * 2, model="m")
    with pytest.raises(ValueError, match=r"record '0': inputs.job: a text expected, got None"):
        model(found.content)(null)


def test_real_digits_as_one_tensor_and_as_the_kind_onnx(tmp_path: Path) -> None:
    digits = load_digits()
    forest = RandomForestClassifier(n_estimators=10, random_state=0).fit(
        digits.data[:900], digits.target[:900]
    )
    found = convert_estimator(forest, pd.DataFrame(digits.data[900:1200]))
    assert found.agreement.holds(1e-5)
    (tmp_path / "m.onnx").write_bytes(found.content)
    source = Source("onnx", "m.onnx", inputs=("image",))
    predict = as_predictor(load_model(source, folder=tmp_path))
    images = Batch.from_columns({"inputs.image": digits.data[900:1000].astype(np.float32)}, model="m")
    assert (predict(images)["label"] == forest.predict(digits.data[900:1000])).all()


def test_texts_are_one_column() -> None:
    texts = pd.DataFrame({"text": ["a good film", "a bad film", "good fun", "bad and dull"] * 5})
    fitted = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts.text, [1, 0, 1, 0] * 5)
    found = convert_estimator(fitted, texts)
    assert found.agreement.labels == 1.0
    with pytest.raises(ConfigError, match="a sample is needed"):
        convert_estimator(fitted)


def test_classifiers_without_probabilities_answer_labels_alone() -> None:
    x = RNG.normal(size=(200, 3))
    found = convert_estimator(LinearSVC().fit(x, x[:, 0] > 0))
    assert found.agreement == ConversionAgreement(256, 1.0, None, is_drawn=True)
    batch = Batch.from_columns({f"inputs.x{at}": x[:, at] for at in range(3)}, model="m")
    assert sorted(model(found.content)(batch)) == ["label"]


def test_regressions_answer_a_value() -> None:
    x = RNG.normal(size=(200, 3))
    fitted = Ridge().fit(x, 10 * x[:, 1])
    found = convert_estimator(fitted)
    assert found.classes == ()
    assert found.agreement.labels is None
    assert found.agreement.holds(1e-5)
    batch = Batch.from_columns({f"inputs.x{at}": x[:, at] for at in range(3)}, model="m")
    np.testing.assert_allclose(
        model(found.content, task="other")(batch)["value"], fitted.predict(x), atol=1e-4
    )
    with pytest.raises(ConfigError, match="classes expected: the value of each output"):
        model(found.content)


def test_what_does_not_answer_as_the_estimator_does_is_told() -> None:
    x = RNG.normal(size=(200, 2))
    one, other = LogisticRegression().fit(x, x[:, 0] > 0), LogisticRegression().fit(x, x[:, 1] > 0)
    found = convert_estimator(one)
    frame = pd.DataFrame(x, columns=["x0", "x1"])
    seen = compare(other, model(found.content), frame)
    assert seen.labels is not None
    assert seen.labels < 0.9
    assert not seen.holds(1e-4)
    assert compare(one, model(found.content), frame).holds(1e-4)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (object(), r"fitted estimator with predict\(\) expected, got object"),
        (LogisticRegression(), "a sample is needed"),
    ],
)
def test_what_cannot_be_converted_is_said(made: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        convert_estimator(made)


def test_an_estimator_without_a_converter_is_named() -> None:
    class Mine(LogisticRegression):  # type: ignore[misc]
        """Not known to skl2onnx."""

    with pytest.raises(ConfigError, match="skl2onnx cannot convert Mine: Missing"):
        convert_estimator(Mine().fit(RNG.normal(size=(20, 2)), [0, 1] * 10))


def network(batch: int | None, classes: int, name: str = "logits") -> bytes:
    """A file as an exporter of a deep-learning library writes it: no metadata, logits."""
    helper, numbers = onnx.helper, onnx.TensorProto.FLOAT
    weight = np.arange(2 * classes, dtype=np.float32).reshape(2, classes) - 2
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], [name])],
        "net",
        [helper.make_tensor_value_info("x", numbers, [batch, 2])],
        [helper.make_tensor_value_info(name, numbers, [batch, classes])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    content: bytes = made.SerializeToString()
    return content


XY = Batch.from_columns(
    {"inputs.a": np.array([1.0, 0.0, -1.0]), "inputs.b": np.array([0.5, 1.0, 2.0])}, model="m"
)
LOGITS = np.stack([XY.column("inputs.a"), XY.column("inputs.b")], 1) @ (np.arange(6).reshape(2, 3) - 2)


def test_logits_of_other_files_become_probabilities() -> None:
    found = model(network(None, 3), inputs=("a", "b"), classes=("x", "y", "z"))(XY)
    want = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    np.testing.assert_allclose(found["probs"], want, atol=1e-6)
    assert found["label"].tolist() == [("x", "y", "z")[at] for at in want.argmax(1)]
    with pytest.raises(ValueError, match=r"\(rows, 2\) scores expected, one per class"):
        model(network(None, 3), inputs=("a", "b"), classes=(0, 1))(XY)


def test_a_file_of_one_batch_size_answers_any_number_of_records() -> None:
    whole = model(network(None, 3), inputs=("a", "b"), task="other")(XY)["value"]
    np.testing.assert_array_equal(model(network(2, 3), inputs=("a", "b"), task="other")(XY)["value"], whole)


def test_one_logit_of_two_classes() -> None:
    found = model(network(None, 1), inputs=("a", "b"), classes=("no", "yes"))(XY)
    logit = -2.0 * XY.column("inputs.a") - XY.column("inputs.b")
    np.testing.assert_allclose(found["probs"][:, 1], 1 / (1 + np.exp(-logit)), atol=1e-6)


def test_labels_are_called_as_the_configuration_calls_them() -> None:
    x = RNG.normal(size=(100, 2))
    found = convert_estimator(LogisticRegression().fit(x, (x[:, 0] > 0).astype(int)))
    batch = Batch.from_columns({"inputs.x0": x[:, 0], "inputs.x1": x[:, 1]}, model="m")
    plain, named = model(found.content)(batch), model(found.content, classes=("down", "up"))(batch)
    assert [("down", "up")[value] for value in plain["label"]] == named["label"].tolist()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"task": "generation"}, "task classification, embedding, other expected of ONNX, got generation"),
        ({"options": {"score": "probs"}}, r"options.score: an ONNX file knows scores, threads"),
        ({"classes": (0, 1), "options": {"scores": "sure"}}, r"options.scores: probs, logits, none expected"),
    ],
)
def test_what_an_onnx_file_cannot_be_is_said(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model(network(None, 2), **more)


def test_what_is_no_onnx_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"m.onnx: an ONNX file expected"):
        model(b"no model")
    with pytest.raises(ConfigError, match=r"m.onnx does not exist"):
        load_model(Source("onnx", "m.onnx"), folder=tmp_path)


def test_several_answers_of_a_model_keep_their_names() -> None:
    x = RNG.normal(size=(100, 2)).astype(np.float32)
    to_onnx = require_package("skl2onnx", "pip install outrider[onnx]").to_onnx
    fitted = IsolationForest(n_estimators=5, random_state=0).fit(x)
    content = to_onnx(fitted, x[:1], target_opset={"": 18, "ai.onnx.ml": 3}).SerializeToString()
    batch = Batch.from_columns({"inputs.x": x}, model="m")
    found = model(content, inputs=("x",), task="other")(batch)
    assert {name: values.shape for name, values in found.items()} == {"label": (100,), "scores": (100,)}
    np.testing.assert_allclose(found["scores"], fitted.decision_function(x), atol=1e-5)


def test_states_are_tensors_of_modules_and_nothing_else() -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 2)
    assert sorted(state_of(layer)) == ["bias", "weight"]
    tied = {"a": layer.weight, "b": layer.weight}
    assert state_of(tied)["a"].data_ptr() != state_of(tied)["b"].data_ptr()
    with pytest.raises(ConfigError, match="a torch module or its state_dict expected, got dict"):
        state_of({"a": 1})
