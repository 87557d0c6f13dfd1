"""Local candidates answer in a process of their own: what they do there is their verdict, not our end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from outrider.assertions import Batch
from outrider.errors import ConfigError
from outrider.monitor.compare.answers import Answers, Asker
from outrider.monitor.compare.askers import AskOptions, asker_of, local_asker
from outrider.monitor.compare.embedder import TextEmbedder
from outrider.monitor.compare.local_asker import BLOCK
from tests.dataops.model_kinds import adapters, folders
from tests.forked import LIGHT, forks
from tests.requirements import require_package
from tests.soak import PATIENCE_S

MODELS = """
import os
import time

import numpy as np


def double(batch):
    assert not batch.has("outputs.value")
    return {"value": batch.column("inputs.x") * 2}


def raises(batch):
    if (batch.column("inputs.x") == 1).any():
        raise ValueError("one")
    return {"value": batch.column("inputs.x")}


def dies(batch):
    if (batch.column("inputs.x") == 1).any():
        os._exit(3)
    return {"value": batch.column("inputs.x")}


def hangs(batch):
    time.sleep(3600)


def no_memory(batch):
    raise MemoryError("a terabyte")


def talks(batch):
    return {"text": np.array([f"You said {text}" for text in batch.column("inputs.text")], dtype=object)}


def labels(batch):
    return {"label": np.array(["greeting"] * batch.rows, dtype=object)}
"""


def numbers(rows: int = 8) -> Batch:
    columns = {"inputs.x": np.arange(rows, dtype=np.float64), "outputs.value": np.zeros(rows)}
    return Batch.from_columns(columns, model="compare")


@pytest.fixture(autouse=True)
def _forks() -> Iterator[None]:
    with forks(modules=LIGHT):
        yield


@contextmanager
def asker(folder: Path, name: str, deadline_s: float = PATIENCE_S) -> Iterator[Asker]:
    (folder / "models.py").write_text(MODELS, encoding="utf-8")
    made = asker_of(f"models.py:{name}", AskOptions(deadline_s=deadline_s), folder=folder)
    try:
        yield made
    finally:
        made.close()


def ask(folder: Path, name: str, batch: Batch, deadline_s: float = PATIENCE_S) -> Answers:
    with asker(folder, name, deadline_s) as made:
        return made.ask(batch)


def test_function_answers_in_order_and_sees_no_recorded_answer(tmp_path: Path) -> None:
    with asker(tmp_path, "double") as made:
        for _ in range(2):
            answers = made.ask(numbers(3000))
            assert answers.is_answered.all()
            assert np.array_equal(answers.outputs.column("outputs.value"), 2 * np.arange(3000.0))
    assert np.isnan(answers.latency_s).all()


@pytest.mark.parametrize(("name", "word"), [("raises", "one"), ("dies", "exit code 3")])
def test_record_that_breaks_a_model_fails_alone(tmp_path: Path, name: str, word: str) -> None:
    answers = ask(tmp_path, name, numbers(2))
    assert answers.fate.tolist() == ["answered", "failed"]
    assert word in answers.why[1]


def test_model_that_hangs_is_late_and_one_without_memory_failed(tmp_path: Path) -> None:
    assert set(ask(tmp_path, "hangs", numbers(1), deadline_s=0.3).fate) == {"late"}
    answers = ask(tmp_path, "no_memory", numbers(2))
    assert set(answers.fate) == {"failed"}
    assert "terabyte" in answers.why[0]


@pytest.mark.parametrize(("name", "text"), [("talks", "You said Hi"), ("labels", "greeting")])
def test_local_model_answers_completions_by_their_text(tmp_path: Path, name: str, text: str) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    answers = ask(tmp_path, name, Batch.from_columns({"inputs.request": [body]}, model="compare"))
    assert answers.outputs.column("outputs.text").tolist() == [text]


def test_model_that_cannot_be_loaded_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        ask(tmp_path, "missing", numbers())
    with pytest.raises(ConfigError, match=r"config\.json"):
        asker_of(".", AskOptions(), folder=tmp_path)


def test_adapter_without_its_base_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    with pytest.raises(ConfigError, match="org/base"):
        asker_of("lora", AskOptions(), folder=tmp_path)


def texts(*values: str) -> Batch:
    return Batch.from_columns({"inputs.text": list(values)}, model="compare")


def test_folder_and_adapter_over_it_answer_classes(tmp_path: Path) -> None:
    tokenizer = folders.write_tokenizer(tmp_path / "base")
    config = folders.bert_config(len(tokenizer), num_labels=3)
    base = folders.save(tmp_path / "base", "BertForSequenceClassification", config)
    adapters.write_lora(base, tmp_path / "lora", seed=1)
    for name in ("base", "lora"):
        with forks(*folders.NEEDS):
            made = asker_of(name, AskOptions(deadline_s=PATIENCE_S), production="base", folder=tmp_path)
            try:
                answers = made.ask(texts("the cat", "a dog"))
            finally:
                made.close()
        assert answers.is_answered.all(), answers.why
        assert set(answers.outputs.column("outputs.label")) <= {"LABEL_0", "LABEL_1", "LABEL_2"}
        assert answers.outputs.tensor("outputs.probs").shape == (2, 3)


@pytest.mark.parametrize("is_classifier", [True, False])
def test_onnx_file_answers_classes_or_values(tmp_path: Path, is_classifier: bool) -> None:
    require_package("skl2onnx", "pip install outrider[onnx]")
    from sklearn.linear_model import LogisticRegression, Ridge

    from outrider.dataops.model_kinds.conversion import convert_estimator

    frame = pd.DataFrame({"age": np.arange(20.0), "hours": np.arange(20.0)[::-1]})
    target = np.where(frame.age > 9, "old", "young") if is_classifier else frame.age * 2
    fitted = (LogisticRegression() if is_classifier else Ridge()).fit(frame, target)
    (tmp_path / "m.onnx").write_bytes(convert_estimator(fitted, frame).content)
    made = asker_of("m.onnx", AskOptions(deadline_s=PATIENCE_S), folder=tmp_path)
    batch = Batch.from_pandas(frame, model="compare", inputs=["hours", "age"])
    try:
        answers = made.ask(batch)
    finally:
        made.close()
    found = answers.outputs.column("outputs.label" if is_classifier else "outputs.value")
    expected = fitted.predict(frame)
    assert found.tolist() == expected.tolist() if is_classifier else np.allclose(found, expected, atol=1e-3)


@pytest.mark.costly("folders of models are opened by the libraries that users have")
def test_record_that_ends_a_model_of_many_blocks_fails_alone(tmp_path: Path) -> None:
    x = np.arange(2 * BLOCK + 100, dtype=np.float64) + 2
    x[BLOCK + 7] = 1
    answers = ask(tmp_path, "dies", Batch.from_columns({"inputs.x": x}, model="compare"))
    assert np.flatnonzero(~answers.is_answered).tolist() == [BLOCK + 7]
    others = answers.outputs.column("outputs.value")[answers.is_answered]
    assert np.array_equal(others, np.delete(x, BLOCK + 7))


def test_folder_of_an_embedding_model_gives_a_vector_for_each_text(tmp_path: Path) -> None:
    tokenizer = folders.write_tokenizer(tmp_path / "embedding")
    folders.save(tmp_path / "embedding", "BertModel", folders.bert_config(len(tokenizer)))
    with forks(*folders.NEEDS):
        made = TextEmbedder(local_asker("embedding", AskOptions(deadline_s=PATIENCE_S), folder=tmp_path))
        try:
            found = made.vectors(["the cat", "a dull film", "the cat", ""])
        finally:
            made.close()
    assert found.shape == (4, 32)
    assert np.isfinite(found[:3]).all()
    assert np.array_equal(found[0], found[2])
    assert not np.allclose(found[0], found[1])
