"""``pip install outrider`` without any part: what works, and the sentence where a part is missing."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from tests.end_to_end.service import Service, wait_until
from tests.soak import PATIENCE_S

MOST_BYTES = 650e6
PARTS = ("torch", "safetensors", "sklearn", "great_expectations", "transformers", "onnxruntime")
CONFIG = """
[server]
port = 0
[models.churn]
predictor = "model.py:predict"
inputs = ["age"]
classes = [0, 1]
assertions = ["checks.py"]
behavior = ["behavior"]
"""
MODEL = """
def predict(batch):
    return {"label": (batch.column("inputs.age") > 40).astype(int)}
"""
CHECKS = """
from outrider.assertions import assertion


@assertion
def impossible_age(batch):
    return batch.column("inputs.age") > 120
"""
BEHAVIOR = """
from outrider.behavioral_tests import MFT

test_clear = MFT(capability="knowledge", cases=[{"age": 70}, {"age": 20}], labels=[1, 0])
"""
TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu && "


@pytest.fixture(scope="module")
def env() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "behavior").mkdir()
    for name, text in {
        "outrider.toml": CONFIG,
        "model.py": MODEL,
        "checks.py": CHECKS,
        "behavior/test_churn.py": BEHAVIOR,
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def run(python: Path, folder: Path, env: dict[str, str], *arguments: str, code: int = 0) -> str:
    """Output of a command, and its errors."""
    done = subprocess.run(
        [python, "-m", "outrider", *arguments],
        cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_the_environment_has_no_part(base_python: Path, env: dict[str, str]) -> None:
    lines = [f"import importlib.util as u; print([m for m in {PARTS!r} if u.find_spec(m)])"]
    found = subprocess.run([base_python, "-c", *lines], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_packages_are_small(base_packages: Sequence[str]) -> None:
    sizes = {
        name: sum(Path(str(file.locate())).stat().st_size for file in metadata.files(name) or ())
        for name in base_packages
    }
    assert sum(sizes.values()) < MOST_BYTES, sorted(sizes.items(), key=lambda one: -one[1])[:5]


@pytest.mark.parametrize(
    ("asked", "needed", "command"),
    [
        (["tabular"], "tabular starter needs sklearn", "pip install 'outrider[sklearn]'"),
        (["text"], "words starter needs sklearn", "pip install 'outrider[sklearn]'"),
        (["chat"], "chat starter needs sklearn", "pip install 'outrider[sklearn]'"),
        (
            ["image"],
            "image starter needs torch and safetensors and sklearn",
            f"{TORCH}pip install 'outrider[sklearn,torch]'",
        ),
        (
            ["text", "--starter", "bert"],
            "bert starter needs torch and safetensors and transformers and peft and datasets",
            f"{TORCH}pip install 'outrider[hf,torch]', or --starter words",
        ),
    ],
)
def test_a_starter_names_what_installs_its_parts(
    asked: list[str], needed: str, command: str, base_python: Path, env: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "new"
    said = run(base_python, tmp_path, env, "init", str(folder), "--modality", *asked, code=2)
    assert said == f"the {needed}, not installed here: {command}"
    assert not folder.exists()


EXPECTATIONS = """predictor = "model.py:predict"
[[models.churn.expectations]]
type = "expect_column_to_exist"
kwargs = { column = "inputs.age" }"""
NET = """architecture = "model.py:Net"
weights = "net.safetensors"
classes = [0, 1]"""


@pytest.mark.parametrize(
    ("lines", "needed", "command"),
    [
        (NET, "architecture: a model of it needs torch", f"{TORCH}pip install 'outrider[torch]'"),
        (
            'onnx = "model.onnx"\nclasses = [0, 1]',
            "onnx: a model of it needs onnx and onnxruntime",
            "pip install 'outrider[onnx]'",
        ),
        (
            EXPECTATIONS,
            "expectations: judging them needs great_expectations",
            "pip install 'outrider[gx]'",
        ),
        (
            'predictor = "other.py:predict"',
            "other.py:1: ModuleNotFoundError: No module named 'sklearn'",
            "pip install 'outrider[sklearn]'",
        ),
    ],
)
def test_a_configuration_that_needs_a_part_is_refused_with_the_command(
    lines: str, needed: str, command: str, base_python: Path, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    for name, text in {
        "outrider.toml": f'[models.churn]\ninputs = ["age"]\n{lines}\n',
        "model.py": MODEL,
        "other.py": f"import sklearn\n{MODEL}",
        "data/sample.jsonl": '{"inputs": {"age": 3}}\n',
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    said = run(base_python, tmp_path, env, "check-config", code=3)
    assert needed in said
    assert command in said


def test_the_demo_names_what_installs_its_parts(
    base_python: Path, env: dict[str, str], tmp_path: Path
) -> None:
    told = run(base_python, tmp_path, env, "demo", "--once", code=3)
    assert f"{TORCH}pip install 'outrider[gx,sklearn,torch]'" in told
    assert list(tmp_path.iterdir()) == []


def test_functions_are_compared_and_a_model_that_lacks_its_part_is_named(
    base_python: Path, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(f"{MODEL}\n{MODEL.replace('predict', 'other').replace('40', '60')}")
    (tmp_path / "model.onnx").touch()
    lines = [f'{{"inputs": {{"age": {age % 90}}}}}' for age in range(2000)]
    (tmp_path / "traffic.jsonl").write_text("\n".join(lines), encoding="utf-8")
    asked = ["compare", "--production", "model.py:predict", "--from", "traffic.jsonl", "--candidate"]
    assert "model.py:other is different" in run(base_python, tmp_path, env, *asked, "model.py:other", code=1)
    said = run(base_python, tmp_path, env, *asked, "model.onnx", code=3)
    assert said.count("pip install 'outrider[onnx]'") == 1


def test_behavioral_tests_run(base_python: Path, env: dict[str, str], project: Path) -> None:
    assert "ok" in run(base_python, project, env, "test", "--model", "model.py:predict", "behavior")


@pytest.mark.costly("a service is started from its wheel")
def test_a_service_judges_records_and_commits_a_dataset(
    base_python: Path, env: dict[str, str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ok" in run(base_python, project, env, "check-config")
    for name in [name for name in os.environ if name.startswith("PYTHON")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "executable", str(base_python))
    with Service(project / "outrider.toml", is_new=True, is_started=True) as service:
        for number, age in enumerate((200, 300, 30)):
            record = {"model": "churn", "id": f"a{number}", "inputs": {"age": age}, "outputs": {"label": 1}}
            assert service.client.post("/v1/records", json=record).status_code == 202
            label = {"model": "churn", "id": f"a{number}", "label": {"label": 1}, "source": "human"}
            assert service.client.post("/v1/labels", json=label).status_code == 202

        def flags() -> int:
            return len(service.client.get("/v1/flags", params={"model": "churn"}).json()["flags"])

        wait_until(lambda: flags() == 2, "two flags", service)
        url = str(service.client.base_url).rstrip("/")
        own = {**env, "OUTRIDER_URL": url}
        assert "3 labels, 2 new rows" in run(base_python, project, own, "dataset", "commit", "churn")
        judged = run(base_python, project, own, "dataset", "validate", "churn-flagged")
        assert "nulls, classes, types and finite numbers are checked, nothing else" in judged
        assert "pip install 'outrider[gx]'" in judged
        page = service.client.get("/m/churn/datasets/churn-flagged/1/data-docs")
        assert "Checked without Great Expectations" in page.text
        assert service.stop() == 0
