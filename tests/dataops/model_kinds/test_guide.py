"""docs/shadow-models.md: its files and commands do what it says, and its models answer."""

import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.dataops.model_kinds import endpoint, folder_check, onnx_file
from outrider.dataops.model_kinds.endpoint import load_endpoint
from outrider.model_reference import load_predictor
from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.sources import challenger_source, source_of
from outrider.user_code import load_file
from tests.guides import as_a_terminal, follow, in_process
from tests.requirements import require_package

PAGE = Path(__file__).parents[3] / "docs" / "shadow-models.md"
TEXT = PAGE.read_text(encoding="utf-8")
LOANS = Batch.from_columns({"inputs.income": [50.0, 10.0], "inputs.debt": [10.0, 50.0]}, model="m")


def test_every_kind_answers_as_the_page_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytester: pytest.Pytester,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, extra in (("transformers", "hf"), ("skl2onnx", "onnx")):
        require_package(name, f"pip install outrider[{extra}]")
    as_a_terminal(monkeypatch)
    monkeypatch.chdir(tmp_path)
    files = re.findall(r"\*\*`([\w.]+)`\*\*\n```python\n(.*?)```", TEXT, re.DOTALL)
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    load_file(tmp_path / "make_folder.py")
    load_file(tmp_path / "train.py").people().to_csv("people.csv", index=False)
    assert follow(TEXT, tmp_path, in_process(pytester, capsys)) == 2
    blocks = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "outrider.toml").write_text("\n".join(blocks), encoding="utf-8")
    settings = load_settings(tmp_path / "outrider.toml")
    assert sorted(settings.models) == ["loans", "pay", "remote", "reviews", "rule"]

    assert load_predictor(".#loans")(LOANS)["probs"].shape == (2, 2)
    reviews = Batch.from_columns({"inputs.text": ["The film is great", "the film is awful"]}, model="m")
    assert load_predictor(".#reviews")(reviews)["label"].tolist() == ["positive", "negative"]
    people = Batch.from_columns(
        {"inputs.age": np.array([30, 50]), "inputs.job": ["clerk", "pilot"]}, model="m"
    )
    assert load_predictor(".#pay")(people)["label"].tolist() == ["low", "high"]
    assert load_predictor(".#rule")(LOANS)["label"].tolist() == ["yes", "no"]
    for version in (source_of(settings, "remote"), challenger_source(settings, "remote", "llm")):
        assert version is not None
        assert callable(load_endpoint(version))


def test_every_option_is_told() -> None:
    named = {*folder_check.OPTIONS, *chain(*folder_check.TASK_OPTIONS.values()), *onnx_file.OPTIONS}
    named |= {*endpoint.OPTIONS, *endpoint.CHAT_OPTIONS}
    assert [name for name in sorted(named) if f"`{name}`" not in TEXT] == []
