"""Projects of comparisons: what a configuration can say of their systems, and why it cannot."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from outrider.assertions import Batch
from outrider.commands.kept_project import HEAD, ComparedSystems, keep_comparison, write_project
from outrider.dataops.comparisons import Comparisons
from outrider.errors import ConfigError
from tests.comparison_reports import report

RECORD = Batch.from_columns({"inputs.age": [41], "inputs.pay": [1.5]}, model="compare")
CHAT = Batch.from_columns(
    {"inputs.request": [json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})]},
    model="compare",
)
PAIR = {"id": "r1", "inputs": {"age": 41}, "production": "yes", "candidate": "no", "right": "candidate"}
FOUND = {"candidates": [{"name": "one", "to_label": [PAIR]}]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working folder with what may be compared."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("def predict(batch):\n    return {}\n")
    (tmp_path / "short.md").write_text('Be "brief".\nAlways\x7f.\n')
    (tmp_path / "small.onnx").write_bytes(b"")
    (tmp_path / "kept").mkdir()
    return tmp_path


def kept(
    production: str | None, *candidates: str, question: Batch | None = RECORD, **others: Any
) -> tuple[Mapping[str, Any], str]:
    """Model of a written project, and the text of its file."""
    write_project(Path("kept"), ComparedSystems(production, candidates, question, 0.02, **others), FOUND)
    text = Path("kept/outrider.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["models"]["compared"], text


def test_records_at_an_address_keep_their_fields_and_keys() -> None:
    model, _ = kept(
        "http://a/v2/models/loans/infer", "http://b:80/v2/models/loans", "model.py:predict", "small.onnx"
    )
    assert (model["endpoint"], model["inputs"]) == ("http://a/v2/models/loans", ["age", "pay"])
    assert model["challengers"] == {
        "b-80": {
            "endpoint": "http://b:80/v2/models/loans",
            "inputs": ["age", "pay"],
            "options": {"key_env": "OUTRIDER_CANDIDATE_KEY"},
        },
        "predict": {"predictor": "../model.py:predict", "inputs": ["age", "pay"]},
        "small": {"onnx": "../small.onnx", "inputs": ["age", "pay"]},
    }


def test_a_prompt_is_the_system_of_productions_address() -> None:
    model, _ = kept("http://a", "short.md", "http://a/v1", question=CHAT, candidate_model="large")
    assert (model["task"], model["options"]) == ("generation", {"model": "m"})
    assert model["challengers"]["short"] == {
        "endpoint": "http://a/v1/chat/completions",
        "inputs": ["messages"],
        "options": {"model": "large", "system": 'Be "brief".\nAlways\x7f.'},
    }
    assert model["challengers"]["a"]["options"] == {"key_env": "OUTRIDER_CANDIDATE_KEY", "model": "large"}


def test_project_comments_out_what_cannot_be_configured_with_the_reason() -> None:
    model, text = kept(None, "http://a/v1/completions", "model.py:gone", "model.py:predict")
    assert list(model["challengers"]) == ["predict"]
    assert '# "http://a/v1/completions" cannot be configured here: the service asks chat/completions' in text
    assert '# "model.py:gone" cannot be configured here: predictor: ' in text
    assert "# Production was not asked" in text


def test_agree_embedding_is_a_comment_because_a_service_embeds_no_texts() -> None:
    model, text = kept("http://a/v1", "http://b/v1", question=CHAT, agree=("facts", "embedding"))
    assert model["shadow"]["agree"] == ["facts"]
    assert "# --agree embedding cannot be set here: a service embeds no texts." in text


def test_candidates_of_one_name_are_numbered() -> None:
    model, _ = kept(None, "model.py:predict", "./model.py:predict")
    assert list(model["challengers"]) == ["predict", "predict-2"]


def test_a_configuration_of_ones_own_stays() -> None:
    Path("kept/outrider.toml").write_text("[models.mine]\n")
    write_project(Path("kept"), ComparedSystems(None, ["model.py:predict"], RECORD, 0.02), FOUND)
    assert Path("kept/outrider.toml").read_text() == "[models.mine]\n"
    Path("kept/outrider.toml").write_text(f"{HEAD}\n")
    assert kept(None, "model.py:predict")[0]["task"] == "classification"


def test_pairs_have_their_labels() -> None:
    kept(None, "model.py:predict", question=None)
    [pair] = [json.loads(line) for line in Path("kept/pairs.jsonl").read_text().splitlines()]
    assert {pair["A"], pair["B"]} == {"yes", "no"}
    assert pair[{"A": "A", "B": "B"}["A" if pair["A_is"] == "candidate" else "B"]] == "no"
    assert (pair["candidate"], pair["question"], pair["right"]) == ("one", "41", "candidate")


def test_the_comparison_lies_where_the_project_keeps_its_data() -> None:
    kept(None, "model.py:predict")
    said = json.dumps(report())
    page = keep_comparison(Path("kept"), said)
    [found] = Comparisons(Path("kept/outrider-data")).newest(10)
    assert (page, found.report) == (f"/compare/{found.id}", report())
    Path("kept/outrider.toml").write_text(
        '[storage]\nfolder = "elsewhere"\n[models.mine]\npredictor = "m.py:f"\n'
    )
    assert keep_comparison(Path("kept"), said) == page
    assert Comparisons(Path("kept/elsewhere")).read(found.id) is not None
    Path("kept/outrider.toml").write_text(
        '[storage]\nfolder = "outrider.toml"\n[models.mine]\npredictor = "m.py:f"\n'
    )
    with pytest.raises(ConfigError, match="cannot be written"):
        keep_comparison(Path("kept"), said)
