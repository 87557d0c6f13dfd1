"""Candidates of this machine that break: the verdict says so with counts, and what they answer is kept."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from outrider.cli import app
from tests.dataops.model_kinds import folders
from tests.forked import LIGHT, forks

MODELS = """
import os
import resource
import signal
import time

import numpy as np

SEEN = []


def production(batch):
    x = batch.column("inputs.x").astype(int)
    return {"label": np.array([f"class {value % 7}" for value in x], dtype=object)}


def twin(batch):
    return production(batch)


def allocate():
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + (64 << 20), before[1]))
    try:
        np.ones(1 << 30)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def no_memory(batch):
    allocate()


def no_memory_for_many(batch):
    if batch.rows > 8:
        allocate()
    return production(batch)


def killed(batch):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_by_one(batch):
    if (batch.column("inputs.x") == 5).any():
        killed(batch)
    return production(batch)


def hangs_at_one(batch):
    if (batch.column("inputs.x") == 5).any():
        time.sleep(10000)
    return production(batch)


def raises_at_tenth(batch):
    if (batch.column("inputs.x") % 10 == 0).any():
        raise ValueError("no zeros")
    return production(batch)


def other_form_later(batch):
    SEEN.append(batch.rows)
    return production(batch) if len(SEEN) < 3 else {"score": batch.column("inputs.x") / 7}


def numbers(batch):
    return {"label": batch.column("inputs.x").astype(float)}


def too_few(batch):
    return {"label": production(batch)["label"][:-1]}
"""
ROWS = 240


def compare(folder: Path, *candidates: str, options: list[str]) -> tuple[int, list[dict[str, Any]]]:
    """Exit code, and what the report says of each candidate."""
    named = [word for each in candidates for word in ("--candidate", each)]
    done = CliRunner().invoke(app, ["compare", *named, *options, "--deterministic", "--json"])
    assert done.stdout, (done.stderr, done.exception)
    return done.exit_code, json.loads(done.stdout)["candidates"]


@pytest.fixture(autouse=True)
def _forks() -> Iterator[None]:
    with forks(modules=LIGHT):
        yield


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    rows = (json.dumps({"id": str(x), "inputs": {"x": x}}) + "\n" for x in range(ROWS))
    (tmp_path / "rows.jsonl").write_text("".join(rows), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(deadline_s: float = 60.0) -> list[str]:
    options = ["--production", "models.py:production", "--from", "rows.jsonl", "--twice", "0"]
    return [*options, "--until", str(ROWS), "--deadline", str(deadline_s)]


@pytest.mark.parametrize(
    ("name", "fate", "reason"),
    [
        ("no_memory", "failed", "MemoryError: Unable to allocate"),
        ("killed", "failed", "its process ended: signal 9"),
        ("too_few", "failed", r"ValueError: 'models.py:too_few': label needs \d+ values, got shape \(\d+,\)"),
    ],
)
def test_a_model_that_answers_nothing_is_worse_and_a_twin_beside_it_gets_its_verdict(
    models: Path, name: str, fate: str, reason: str
) -> None:
    code, (broken, twin) = compare(models, f"models.py:{name}", "models.py:twin", options=asked())
    assert code == 1
    assert broken["verdict"] == "worse"
    assert re.search(f"; most often: {reason}", broken["sentence"])
    assert broken["fates"].keys() == {fate}
    assert 32 <= broken["fates"][fate] <= 64  # then it is asked no more; one block may be under way
    assert twin["fates"] == {"answered": ROWS}
    assert twin["records"] == ROWS


@pytest.mark.costly("models end their processes, which are started again")
@pytest.mark.parametrize(
    ("name", "fates", "reason"),
    [
        ("no_memory_for_many", {"answered": ROWS}, ""),
        ("killed_by_one", {"answered": ROWS - 1, "failed": 1}, "its process ended: signal 9"),
        ("hangs_at_one", {"answered": ROWS - 1, "late": 1}, r"no answer within \S+ s"),
        ("raises_at_tenth", {"answered": ROWS * 9 // 10, "failed": ROWS // 10}, "ValueError: no zeros"),
    ],
)
def test_what_a_breaking_model_answers_is_kept_and_the_rest_counted(
    models: Path, name: str, fates: dict[str, int], reason: str
) -> None:
    code, [found] = compare(models, f"models.py:{name}", options=asked(deadline_s=3.0))
    assert found["fates"] == fates
    assert re.fullmatch(reason, "; ".join(each["reason"] for each in found["why"]))
    assert found["records"] == fates["answered"]
    missing = ROWS - fates["answered"]
    assert found["outcomes"]["no answer"]["only_candidate"] == missing
    assert (code, found["verdict"]) == ((1, "worse") if missing > 10 else (6, "undecided"))


def test_a_model_that_changes_its_form_is_worse_and_asked_no_more(models: Path) -> None:
    code, [found] = compare(models, "models.py:other_form_later", options=asked())
    assert (code, found["verdict"]) == (1, "worse")
    assert "most often: answers of another form than before: score (numbers)" in found["sentence"]
    assert found["fates"].keys() == {"answered", "unreadable"}
    assert found["records"] == found["fates"]["answered"]
    assert found["outcomes"]["no answer"]["only_candidate"] == found["fates"]["unreadable"] >= 32


def test_another_form_of_answers_is_named_with_both_kinds(models: Path) -> None:
    code, [found] = compare(models, "models.py:numbers", options=asked())
    assert code == 5
    assert "production answers label (texts), models.py:numbers label (numbers)" in found["sentence"]


# ---- adapters ----------------------------------------------------------------------------------------------


def texts(count: int) -> list[str]:
    random = np.random.default_rng(7)
    words = folders.WORDS.split()
    return [" ".join(random.choice(words, 6)) for _ in range(count)]


def logits(base: Any, tokenizer: Any, said: list[str]) -> torch.Tensor:
    fed = tokenizer(said, return_tensors="pt", padding=True)
    with torch.inference_mode():
        found: torch.Tensor = base(**fed).logits
    return found


def head(folder: Path, base: Any, shift: float) -> None:
    """A LoRA that changes nothing but the head's bias."""
    named = {f"classifier.{name}": value.clone() for name, value in base.classifier.named_parameters()}
    named["classifier.bias"] += torch.tensor([shift, 0.0])
    tensors = {f"base_model.model.{name}": value.detach() for name, value in named.items()}
    for name, layer in base.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "classifier":
            at = f"base_model.model.{name}"
            tensors[f"{at}.lora_A.weight"] = torch.ones(1, layer.in_features)
            tensors[f"{at}.lora_B.weight"] = torch.zeros(layer.out_features, 1)
    folder.mkdir()
    about = {"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 1, "lora_alpha": 1}
    (folder / "adapter_config.json").write_text(json.dumps(about), encoding="utf-8")
    save_file(tensors, folder / "adapter_model.safetensors")


@pytest.mark.costly("models end their processes, which are started again")
def test_a_lora_with_a_planted_fault_differs_as_often_as_counted_over_the_whole_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = texts(3000)
    tokenizer = folders.write_tokenizer(tmp_path / "base")
    base = folders.save(
        tmp_path / "base", "BertForSequenceClassification", folders.bert_config(len(tokenizer), num_labels=2)
    )
    gap = (scores := logits(base, tokenizer, said))[:, 0] - scores[:, 1]
    with torch.no_grad():
        base.classifier.bias[0] -= gap.median()
    base.save_pretrained(tmp_path / "base")
    centred = gap - gap.median()
    shifts = {"faulty": -float(centred.quantile(0.42)), "retuned": 0.0}
    for name, shift in shifts.items():
        head(tmp_path / name, base, shift)
    lines = (json.dumps({"id": str(at), "inputs": {"text": text}}) + "\n" for at, text in enumerate(said))
    (tmp_path / "texts.jsonl").write_text("".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with forks(*folders.NEEDS):
        code, found = compare(tmp_path, *shifts, options=["--production", "base", "--from", "texts.jsonl"])
    assert code == 1
    assert [each["verdict"] for each in found] == ["different", "same"]
    true = float(((centred + shifts["faulty"] > 0) != (centred > 0)).float().mean())
    measure = found[0]["agreement"][0]
    assert measure["beyond_noise"]["low"] <= true <= measure["beyond_noise"]["high"]
    assert 0.06 < true < 0.1
    assert all(each["fates"].keys() == {"answered"} for each in found)
