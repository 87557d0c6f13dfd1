"""check-config: what it lists, and that every way in which user code can be wrong is told."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.errors import ConfigError
from tests.databases import place_database
from tests.forked import forks

CONFIG = """
[models.m]
predictor = "model.py:predict"
assertions = ["checks.py"]
behavior = ["test_m.py"]
"""

CHECKS = """
from outrider.assertions import Window, assertion
print("noise on stdout")

@assertion(level="critical", owner="risk")
def high(batch):
    '''Too high.'''
    return batch.column("inputs.x") > 5

@assertion(window=Window(rows=2))
def flips(batch):
    return batch.column("inputs.x") > 5
"""

SUITE = """
from outrider.behavioral_tests import INV, MFT, expect, perturb

test_noise = INV(perturb=perturb.tabular.jitter("x", noise=0.1), expect=expect.same("label"), live=0.1)
test_zero = MFT(cases=[{"inputs": {"x": 0.0}}], labels=[0])
"""


@pytest.fixture(autouse=True)
def forked() -> Iterator[None]:
    """The host that loads the files, thirty times."""
    with forks():
        yield


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "outrider.toml": CONFIG,
        "checks.py": CHECKS,
        "test_m.py": SUITE,
        "model.py": "def predict(batch):\n    return {'label': batch.column('inputs.x') * 0}\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def check(project: Path, *options: str) -> str:
    config = str(project / "outrider.toml")
    found = CliRunner().invoke(
        app, ["check-config", "--config", config, *options], catch_exceptions=False, env={"COLUMNS": "200"}
    )
    assert found.exit_code == 0, found.output
    return found.stdout


def test_json_lists_what_every_model_offers(project: Path) -> None:
    found = json.loads(check(project, "--json"))
    assert found["problems"] == []
    offered = found["models"]["m"]
    assert [judge["name"] for judge in offered["assertions"]] == ["high", "flips"]
    assert offered["assertions"][0]["owner"] == "risk"
    assert offered["assertions"][1]["window"]["rows"] == 2
    assert [(test["name"], test["rate"]) for test in offered["live"]] == [("test_noise", 0.1)]
    assert offered["suites"] == {"test_m.py": 2}


def test_a_data_folder_of_another_layout_is_refused_as_the_service_does(project: Path) -> None:
    config = project / "outrider.toml"
    config.write_text(f'{CONFIG}score_of = "answer"\n', encoding="utf-8")
    folder = project / "outrider-data"
    folder.mkdir(exist_ok=True)
    place_database(folder / "state.db")
    check(project, "--no-run")
    with closing(sqlite3.connect(folder / "state.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0037'")
    with pytest.raises(ConfigError, match="tables of another layout"):
        check(project, "--no-run")


def test_the_table_lists_the_same(project: Path) -> None:
    said = check(project)
    for word in (
        "high",
        "critical",
        "Too high.",
        "risk",
        "windowed",
        "test_noise",
        "2 behavioral tests",
        "ok",
    ):
        assert word in said
    assert "noise on stdout" not in said


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("checks.py", "1 / 0\n", r"checks\.py:1: ZeroDivisionError"),
        ("checks.py", "a = 1\ndef (\n", r"checks\.py:2: SyntaxError: invalid syntax$"),
        ("checks.py", "import os\nos._exit(9)\n", r"ended the process \(exit code 9\)"),
        ("checks.py", "import time\n\ntime.sleep(600)\n", r"longer than 8 s; it stood at .*checks\.py:3"),
        ("test_m.py", "import nothing_like_it\n", r"test_m\.py.*ModuleNotFoundError"),
        (
            "model.py",
            "def predikt(batch): ...\n",
            r"models\.m\.predictor: .*defines no 'predict'; .* predikt",
        ),
        ("model.py", "def predict(:\n", r"model\.py: invalid syntax"),
        ("outrider.toml", CONFIG + 'weights = "w.safetensors"\n', r"models\.m\.weights: .* does not exist"),
        ("outrider.toml", '[models.m]\npredictor = "predict"\n', r"expected file\.py:name"),
        ("outrider.toml", '[models.m]\npredictor = "no.py:predict"\n', r"no\.py does not exist"),
        ("outrider.toml", '[models.m]\nassertions = ["no.py"]\n', r"no\.py does not exist"),
        (
            "outrider.toml",
            f'{CONFIG}[[webhooks]]\nurl = "http://a/"\nsecret_file = "hook.secret"\n',
            r"hook\.secret cannot be read",
        ),
        ("outrider.toml", f'{CONFIG}[[webhooks]]\nurl = "http://a/"\nsecret = "!"\n', r"whsec_ and base64"),
        ("outrider.toml", "", r"at least one \[models\.NAME\] section"),
    ],
)
def test_a_problem_is_told(project: Path, file: str, text: str, message: str) -> None:
    (project / file).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        check(project, "--deadline-s", "8" if "sleep" in text else "60")


def test_every_problem_is_told_and_json_still_comes(project: Path) -> None:
    (project / "checks.py").write_text("1 / 0\n")
    (project / "model.py").unlink()
    config = str(project / "outrider.toml")
    found = CliRunner().invoke(app, ["check-config", "--config", config, "--json"])
    assert isinstance(found.exception, ConfigError)
    problems = json.loads(found.stdout)["problems"]
    assert len(problems) == len(str(found.exception).splitlines()) == 2


def test_what_judges_lack_is_told(project: Path) -> None:
    judges = """
[models.m.judges.grounded]
url = "http://127.0.0.1:1/v1/chat/completions"
prompt_file = "none.txt"
answer = { verdict = ["yes", "no"] }

[models.m.judges.tone]
predictor = "tone.py:judge"
reads = ["inputs.x"]
answer = { tone = "string" }
"""
    (project / "outrider.toml").write_text(CONFIG + judges, encoding="utf-8")
    needs = (
        '\n@assertion(needs=("judge.missing",))\ndef waits(batch):\n    return batch.column("inputs.x") > 5\n'
    )
    (project / "checks.py").write_text(CHECKS + needs, encoding="utf-8")
    with pytest.raises(ConfigError) as told:
        check(project)
    for problem in (
        f"judges.grounded.prompt_file: {project / 'none.txt'} does not exist",
        f"judges.tone.predictor: {project / 'tone.py'} does not exist",
        "assertion waits needs judge.missing, which is not configured",
    ):
        assert problem in str(told.value)


@pytest.mark.parametrize(
    ("retrain", "told"),
    [
        ('trainer = "train.py:fine_tune"', "retrain.trainer: {folder}/train.py does not exist"),
        ('trainer = "model.py:fine_tune"', "defines no 'fine_tune'"),
        ('method = "lora"', "a torch module or a Hugging Face folder expected, got function"),
        (
            'method = "distill"\narchitecture = "small"',
            "retrain.architecture: {folder}/small holds no config",
        ),
        ('trainer = "somebody"', "trainer: here, external or file.py:fine_tune expected, got 'somebody'"),
        ('method = "distill"', "method = 'distill' and architecture belong together"),
        ('enabled = true\ntrainer = "external"', ""),
        ("enabled = true", ""),
    ],
)
def test_what_training_lacks_is_told(project: Path, retrain: str, told: str) -> None:
    (project / "outrider.toml").write_text(f"{CONFIG}\n[models.m.retrain]\n{retrain}\n")
    if not told:
        check(project)
        return
    with pytest.raises(ConfigError) as raised:
        check(project)
    assert told.format(folder=project) in str(raised.value)


def test_the_suite_of_incidents_is_checked_once_it_exists(project: Path) -> None:
    (project / "behavior").mkdir()
    file = project / "behavior" / "incidents.suite.json"
    case = {"id": "a", "inputs": [{"x": 1.0}], "label": 0}
    test = {"name": "answers", "kind": "MFT", "cases": [case]}
    file.write_text(json.dumps({"outrider_suite": 1, "name": "incidents", "tests": [test]}), encoding="utf-8")
    arguments = ["check-config", "--config", str(project / "outrider.toml"), "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert found["models"]["m"]["suites"] == {"test_m.py": 2, "incidents.suite.json": 1}
    file.write_text("<<<<<<< ours", encoding="utf-8")
    error = CliRunner().invoke(app, arguments).exception
    assert isinstance(error, ConfigError)
    assert "incidents.suite.json is not JSON" in str(error)


MODELS = """
[models.texts]
folder = "net"
inputs = ["text"]

[models.texts.challengers.adapted]
adapter = "lora"

[models.texts.challengers.file]
onnx = "gone.onnx"
recipe = ["bf16"]

[models.far]
endpoint = "http://127.0.0.1:9/v1/chat/completions"
inputs = ["prompt"]
task = "generation"
options = { deadline = 3 }

[models.far.uploads]
endpoints = ["127.0.0.1:9"]
options = { deadline = 3 }

[models.bare]

[models.bare.challengers.twin]
recipe = ["bf16"]

[models.bare.challengers.net]
architecture = "model.py:predict"
inputs = ["x"]
"""


def test_what_is_wrong_with_models_of_every_kind_is_said(project: Path) -> None:
    (project / "outrider.toml").write_text(MODELS, encoding="utf-8")
    folder = project / "net"
    for name in ("net", "lora"):
        (project / name).mkdir()
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    (project / "lora" / "adapter_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        check(project)
    told = [line.partition("outrider.toml: models.")[2] for line in str(raised.value).splitlines()]
    expected = [
        f"texts.folder: {folder} has no tokenizer: save_pretrained of the tokenizer writes tokenizer.json",
        f"texts.folder: {folder} has no model.safetensors; pytorch_model.bin is a pickle, which runs",
        f"texts.folder: {folder / 'config.json'}: a ForSequenceClassification model expected for task",
        f"texts.challengers.adapted.adapter: {project / 'lora' / 'adapter_config.json'} cannot be read",
        f"texts.challengers.file.onnx: {project / 'gone.onnx'} does not exist; outrider convert writes one",
        "texts.challengers.file.recipe: only a torch module or a Hugging Face folder takes it",
        "far.endpoint: options.deadline: http://127.0.0.1:9/v1/chat/completions knows deadline_s",
        "far.uploads.options.deadline: uploaded endpoints know deadline_s, block_rows",
        "bare.challengers.twin.kind: architecture, folder, onnx, predictor or endpoint expected; the model",
        "bare.challengers.net.weights: the safetensors file of this version expected, or adapted_from",
    ]
    assert len(told) == len(expected)
    assert [want for want, line in zip(expected, told, strict=True) if not line.startswith(want)] == []


NAMES = """
[models.m]
architecture = "model.py:predict"
weights = "w.safetensors"
inputs = ["x"]
classes = ["no", "yes"]

[models.m.challengers.small]
recipe = ["int4"]
adapted_from = "gone"

[models.tenant]
folder = "net"
inputs = ["text"]
options = { max_token = 3 }
adapted_from = "other@1"

[models.tenant.challengers.fine]
adapted_from = "m@small"
"""


def test_names_that_nothing_has_are_said_before_a_model_is_loaded(project: Path) -> None:
    (project / "outrider.toml").write_text(NAMES, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        check(project)
    told = str(raised.value)
    assert "m.challengers.small.recipe: no step 'int4'; there are bf16, int8_weight_only" in told
    assert "m.challengers.small.adapted_from: m has no version 'gone'; there are 1, small" in told
    assert "tenant.options.max_token: classification of a folder knows max_tokens, dtype" in told
    assert "tenant.adapted_from: no model 'other'; there are m, tenant" in told
    assert "fine.adapted_from" not in told


ODD_SUITE = {
    "name": "s",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "agee"}},
        {"type": "expect_column_mean_to_be_betwen", "kwargs": {"column": "age"}},
    ],
}


@pytest.mark.parametrize("command", [["check-config", "--no-run"], ["serve", "--port", "0"]])
def test_expectations_that_cannot_hold_stop_a_start_with_the_nearest_name(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "model.py").write_text("def predict(batch):\n    return {}\n")
    (tmp_path / "suite.json").write_text(json.dumps(ODD_SUITE))
    (tmp_path / "outrider.toml").write_text(
        '[models.m]\npredictor = "model.py:predict"\ninputs = ["age"]\nexpectations = "suite.json"\n'
    )
    with forks():
        result = CliRunner().invoke(app, [*command, "--config", str(tmp_path / "outrider.toml")])
    told = str(result.exception)
    assert "[0] expect_column_values_to_be_between: no column 'agee'; nearest: inputs.age" in told
    assert (
        "no expectation 'expect_column_mean_to_be_betwen'; nearest: expect_column_mean_to_be_between" in told
    )


def test_arguments_of_expectations_are_checked_by_the_library(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def predict(batch):\n    return {}\n")
    path = tmp_path / "outrider.toml"
    own = '{type = "expect_column_mean_to_be_between", kwargs = {column = "x", max_valu = 1}}'
    path.write_text(f'[models.m]\npredictor = "model.py:predict"\nexpectations = [{own}]\n')
    with forks("great_expectations"):
        result = CliRunner().invoke(app, ["check-config", "--no-run", "--config", str(path)])
    assert "expectations[0]: expectation 'expect_column_mean_to_be_between' cannot be used" in str(
        result.exception
    )
    assert "max_valu" in str(result.exception)


POLICY = """
version = 1
held_out = "held"
shadow_rows = 100
suites = ["test_n"]
tests = ["test_nois", "test_zero"]
requires = ["shadow"]
[[flags]]
assertion = "hihg"
max_share = 0.1
[[flags]]
assertion = "grave"
max_share = 0.1
[memory]
max_mb = 1
"""


def test_names_of_a_policy_that_nobody_has_are_told_with_the_nearest(project: Path) -> None:
    gate = '\n[models.m.gate]\npolicy = "gate.toml"\n[models.m.judges.tone]\npredictor = "model.py:predict"\n'
    gate += 'reads = ["inputs.x"]\nanswer = { tone = "string" }\n'
    (project / "outrider.toml").write_text(CONFIG + gate, encoding="utf-8")
    (project / "gate.toml").write_text(POLICY, encoding="utf-8")
    needs = (
        '\n@assertion(needs=("judge.tone",))\ndef grave(batch):\n    return batch.column("inputs.x") > 5\n'
    )
    (project / "checks.py").write_text(CHECKS + needs, encoding="utf-8")
    with pytest.raises(ConfigError) as told:
        check(project)
    problems = [line.partition("models.m.")[2] for line in str(told.value).splitlines()]
    assert problems == [
        "gate.suites: behavior has no suite 'test_n'; nearest: test_m",
        "gate.tests: behavior has no test 'test_nois'; nearest: test_noise, test_zero",
        "gate.flags: no assertion 'hihg' judges records; nearest: high",
        "gate.flags: grave rests on a judge, which is asked about the champion alone",
        "gate.memory: the size of a function is unknown, so nothing is promoted; remove it",
    ]


def test_a_broken_policy_is_told_with_its_line(project: Path) -> None:
    (project / "outrider.toml").write_text(
        CONFIG + '\n[models.m.gate]\npolicy = "gate.toml"\n', encoding="utf-8"
    )
    (project / "gate.toml").write_text("version = 1\nmax_dorp = 1\nmax_drop = nan\n", encoding="utf-8")
    with pytest.raises(ConfigError) as told:
        check(project)
    first, second = str(told.value).splitlines()
    assert "models.m.gate.policy: gate.toml, line 3: max_drop: " in first + second
    assert (
        "models.m.gate.policy: gate.toml, line 2: max_dorp: unknown key; did you mean 'max_drop'?"
        in first + second
    )


def test_evidence_that_can_never_be_there_is_told(project: Path) -> None:
    gate = '\n[models.m.gate]\nrequires = ["shadow"]\nlatency = { max_ratio = 1.2 }\n'
    gate += "[models.m.retrain]\nenabled = true\nheld_out_share = 0.0\n"
    (project / "outrider.toml").write_text(CONFIG + gate, encoding="utf-8")
    with pytest.raises(ConfigError) as told:
        check(project)
    assert "gate.requires: 'shadow' can never be there" in str(told.value)
    assert "gate.latency.max_ratio: no labelled row to time on" in str(told.value)


TRIGGERS = """
[models.m.retrain.triggers]
behavior = true
flag_rates = [
  { assertion = "hihg", start = 0.1 },
  { assertion = "high", start = 0.1 },
  { assertion = "test_noise", start = 0.1 },
]
"""


def test_triggers_of_unknown_assertions_are_refused_and_idle_ones_told(project: Path) -> None:
    (project / "outrider.toml").write_text(CONFIG + TRIGGERS, encoding="utf-8")
    with pytest.raises(ConfigError) as told:
        check(project)
    problems = [line.partition("models.m.")[2] for line in str(told.value).splitlines()]
    assert problems == ["retrain.triggers.flag_rates: no assertion 'hihg'; nearest: high"]
    # Who stops all retraining at once is told, and not refused.
    (project / "outrider.toml").write_text(CONFIG + TRIGGERS.replace("hihg", "flips"), encoding="utf-8")
    warnings = json.loads(check(project, "--json"))["warnings"]
    assert "models.m.retrain.triggers: nothing fires, since retrain.enabled is false; set it" in warnings


def test_a_trigger_of_tests_needs_tests_and_alerts_a_secret_that_can_be_read(project: Path) -> None:
    config = CONFIG.replace('behavior = ["test_m.py"]', "") + "[models.m.retrain]\nenabled = true\n"
    config += "[models.m.retrain.triggers]\nbehavior = true\n[alerts]\nsecret_file = 'none.secret'\n"
    (project / "outrider.toml").write_text(config, encoding="utf-8")
    with pytest.raises(ConfigError) as told:
        check(project)
    assert "retrain.triggers.behavior: the model has no behavioral test" in str(told.value)
    assert "none.secret cannot be read" in str(told.value)


def test_what_a_rolling_comparison_can_never_decide_is_told(project: Path) -> None:
    gate = "\n[models.m.gate]\nshadow_rows = 100\n[models.m.gate.rolling]\n"
    gate += "[models.m.retrain]\nenabled = true\nheld_out_share = 0.0\n"
    (project / "outrider.toml").write_text(CONFIG + gate, encoding="utf-8")
    (warning,) = (text for text in json.loads(check(project, "--json"))["warnings"] if "gate.rolling" in text)
    assert "a version that does not answer beside the champion never has shadow_rows" in warning
    timed = gate.replace("held_out_share = 0.0", "") + "[models.m.gate.latency]\nmax_ratio = 2.0\n"
    (project / "outrider.toml").write_text(CONFIG + timed, encoding="utf-8")
    with pytest.raises(ConfigError, match="no labelled row to time on"):
        check(project)
