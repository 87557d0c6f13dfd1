"""Projects of ``outrider init`` work at once, as a user would run them: in processes of their own."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from outrider.commands.init import Modality, Starter, starter_of, train_starter, write_project
from outrider.errors import ConfigError
from outrider.monitor.settings.config import load_settings
from tests.forked import forks

ROOT = str(Path(__file__).parents[2])
EXPECTED = {
    ".gitignore", "README.md", "checks.py", "model.py", "outrider.toml", "pytest.ini", "traffic.py",
    "train.py",
}  # fmt: skip
ASSERTIONS = {Modality.tabular: 4, Modality.text: 5, Modality.image: 4, Modality.chat: 6}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in ``folder``, with the checkout importable."""
    environment = os.environ | {"PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    with forks("sklearn.datasets", "sklearn.feature_extraction.text", "sklearn.linear_model"):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


def run_script(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in ``folder``, which is not one of its files."""
    script = folder.parent / "script.py"
    script.write_text(code, encoding="utf-8")
    return run(folder, str(script), *arguments)


@dataclass(frozen=True)
class Made:
    """A new project, and what its first ``pytest`` said, which trains its model."""

    modality: Modality
    folder: Path
    written: tuple[Path, ...]
    files: frozenset[str]
    tested: "subprocess.CompletedProcess[str]"


@pytest.fixture(scope="module", params=list(Modality), ids=str)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp(str(request.param)) / "mine"
    written = write_project(folder, request.param)
    files = frozenset(path.name for path in folder.iterdir() if path.is_file())
    if request.param == Modality.image:
        assert run(folder, "train.py").returncode == 0
    tested = run(folder, "-m", "pytest", "-p", "outrider.pytest_plugin", "-W", "error", "behavior")
    return Made(request.param, folder, tuple(written), files, tested)


@pytest.mark.costly("pytest of a new project is run as users run it")
def test_a_new_project_passes_its_behavioral_tests_at_once(made: Made) -> None:
    assert made.files - {"sentences.py"} == EXPECTED
    assert all(path.is_file() for path in made.written)
    assert made.tested.returncode == 0, made.tested.stdout + made.tested.stderr
    assert "behavioral tests" in made.tested.stdout
    assert "capability" in made.tested.stdout
    trained = "net.safetensors" if made.modality == Modality.image else "model.npz"
    assert (made.folder / trained).is_file()


def test_a_model_is_trained_where_its_folder_cannot_be_written(made: Made) -> None:
    if made.modality == Modality.image:  # a module's weights are a file
        return
    code = """
from pathlib import Path
import model

model.PATH = Path("/dev/null/model.npz")
trained = (model.index if hasattr(model, "index") else model.parameters)()
print(all(len(array.shape) < 3 and array.size for array in trained.values()))
"""
    ran = run_script(made.folder, code)
    assert ran.stdout.splitlines()[-1] == "True", ran.stderr
    assert "not saved" in ran.stdout


def test_its_configuration_names_what_exists_and_its_assertions_judge(made: Made) -> None:
    folder = made.folder
    settings = load_settings(folder / "outrider.toml")
    ((name, model),) = settings.models.items()
    assert all((folder / path).is_file() for path in (*model.assertions, *model.behavior))
    code = """
import sys, warnings
from pathlib import Path
from outrider.assertions import Checker, load_assertions
from outrider.behavioral_tests.cases import to_batch
from outrider.model_reference import load_predictor

warnings.simplefilter("error")
sample = to_batch(next(Path("data").iterdir()))
judges = load_assertions("checks.py")
answered = sample.with_outputs(load_predictor(".")(sample))
Checker(judges).check(answered)
assert len(judges) == int(sys.argv[1]), judges
assert all(judge.description for judge in judges)
print(sorted(column for column in answered.names if column.startswith("outputs.")))
"""
    result = run_script(folder, code, str(ASSERTIONS[made.modality]))
    assert result.returncode == 0, result.stderr
    assert f"outputs.{model.target}" in result.stdout
    assert name in (folder / "README.md").read_text(encoding="utf-8")


def test_outrider_test_runs_the_same_suite(tmp_path: Path) -> None:
    write_project(tmp_path, Modality.tabular)
    result = run(tmp_path, "-m", "outrider", "test", "--json")
    assert result.returncode == 0, result.stderr
    written = json.loads(result.stdout)
    assert written["passed"] is True
    assert len(written["tests"]) == 5
    wrong = (
        "from outrider.behavioral_tests import MFT\n"
        "healthy = dict(radius=9.0, texture=14.0, smoothness=0.09, concavity=0.02)\n"
        "test_wrong = MFT(cases=[healthy], labels='malignant')\n"
    )
    (tmp_path / "behavior" / "test_tumours.py").write_text(wrong, encoding="utf-8")
    failed = run(tmp_path, "-m", "outrider", "test")
    assert failed.returncode == 1
    assert "test_wrong" in failed.stdout
    assert run(tmp_path, "-m", "outrider", "test", "--model", "gone.py:f").returncode == 3
    (tmp_path / "behavior" / "test_tumours.py").write_text("", encoding="utf-8")
    assert run(tmp_path, "-m", "outrider", "test").returncode == 5


def test_what_is_installed_chooses_the_starter_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starter_of(Modality.image, None) is None
    with pytest.raises(ValueError, match="--starter words: --modality text expected, got chat"):
        starter_of(Modality.chat, Starter.words)
    monkeypatch.setattr("outrider.parts._is_installed", lambda name: True)
    assert starter_of(Modality.text, None) is Starter.bert
    assert starter_of(Modality.text, Starter.words) is Starter.words
    monkeypatch.setattr("outrider.parts._is_installed", lambda name: name != "peft")
    assert starter_of(Modality.text, None) is Starter.words
    with pytest.raises(ValueError, match=r"pip install 'outrider\[hf\]', or --starter words"):
        starter_of(Modality.text, Starter.bert)


def test_a_starter_that_cannot_be_trained_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def train():\n    raise OSError('full')\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"train\.py:2: OSError: full; the project is written, `python train"
    ):
        train_starter(tmp_path)


def test_init_writes_into_empty_folders_only(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    result = run(tmp_path, "-m", "outrider", "init")
    assert result.returncode == 2
    assert "not an empty folder" in result.stderr
    made = run(tmp_path, "-m", "outrider", "init", "new", "--modality", "chat", "--json")
    assert made.returncode == 0, made.stderr
    assert "behavior/test_helpdesk.py" in json.loads(made.stdout)["files"]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["notes.txt"]


def test_no_template_is_collected_or_compiled_by_tools() -> None:
    templates = Path(ROOT) / "outrider" / "templates"
    assert all(path.suffix == ".tmpl" for path in templates.rglob("*") if path.is_file())
    for path in templates.rglob("*.py.tmpl"):
        compile(path.read_text(encoding="utf-8"), str(path), "exec")
