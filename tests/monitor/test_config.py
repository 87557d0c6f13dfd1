"""outrider.toml: precedence, and errors that name the key, what was expected and what came."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outrider.errors import ConfigError
from outrider.monitor.settings.config import Settings, find_config, load_settings


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("OUTRIDER_")]:
        monkeypatch.delenv(name)
    return tmp_path / "outrider.toml"


def test_the_environment_is_above_the_file_and_the_file_above_the_default(
    write: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write.write_text("[server]\nport = 9000\nhost = '0.0.0.0'\n[models.m.labels]\nbudget = 7\n")
    monkeypatch.setenv("OUTRIDER_SERVER__PORT", "9001")
    monkeypatch.setenv("OUTRIDER_MODELS__M__LABELS__BUDGET", "8")
    settings = load_settings(write)
    assert (settings.server.port, settings.server.host) == (9001, "0.0.0.0")
    assert settings.server.metrics_open is True
    assert settings.models["m"].labels.budget == 8
    assert settings.models["m"].labels.policy == "adaptive"


def test_an_empty_file_is_all_defaults(write: Path) -> None:
    write.write_text("")
    assert load_settings(write) == Settings(base=write.parent)


def test_agreement_of_embeddings_is_refused_where_there_is_no_embedding_model(write: Path) -> None:
    write.write_text('[models.m.shadow]\nagree = ["facts", "embedding"]\n')
    with pytest.raises(
        ConfigError, match="agree: embedding is for outrider compare --embed; a service embeds"
    ):
        load_settings(write)


def test_paths_are_relative_to_the_file(write: Path) -> None:
    write.write_text("[storage]\nfolder = 'data'\n")
    settings = load_settings(write)
    assert settings.data_folder == (write.parent / "data").resolve()
    assert settings.path("checks.py") == (write.parent / "checks.py").resolve()


RATE = "[[models.m.retrain.triggers.flag_rates]]\nassertion = 'a'\n"
ERRORS = [
    ("[serve]\nport = 1\n", r"serve: unknown key; did you mean 'server'\?"),
    ("[server]\nprot = 1\n", r"server\.prot: unknown key; did you mean 'port'\?"),
    ("[models.m]\nassertion = []\n", r"models\.m\.assertion: unknown key; did you mean 'assertions'\?"),
    ("[models.m.gate]\nmax_dorp = 0.1\n", r"models\.m\.gate\.max_dorp: .* 'max_drop'\?"),
    ("[[webhooks]]\nurl = 'x'\nevent = []\n", r"webhooks\.0\.event: .* 'events'\?"),
    ("[server]\nzzz = 1\n", r"server\.zzz: unknown key; see docs/configuration\.md"),
    ("[server]\nport = 'high'\n", r"server\.port: .*integer.*, got 'high'"),
    ("[server]\nport = 70000\n", r"server\.port: .*65535.*, got 70000"),
    ("[host]\ndeadline_s = 0\n", r"host\.deadline_s: .*greater than 0, got 0"),
    ("[models.m.labels]\npolicy = 'best'\n", r"models\.m\.labels\.policy: .*'uniform'.*, got 'best'"),
    (f"{RATE}start = 0.1\nrearm = 0.1\n", r"flag_rates\.0: a: rearm must be below start, got rearm = 0\.1"),
    (f"{RATE}start = 2\n", r"flag_rates\.0\.start: .*less than 1, got 2"),
    (f"{RATE}start = true\n", r"flag_rates\.0\.start: a number expected, got true"),
    (f"{RATE}", r"flag_rates\.0\.start: Field required"),
    (f"{RATE}start = 0.1\nhours = nan\n", r"flag_rates\.0\.hours: "),
    (f"{RATE}start = 0.1\n{RATE}start = 0.2\n", r"triggers: flag_rates: a is named twice"),
    ("[models.m.retrain.triggers]\nincidents = 'info'\n", r"triggers\.incidents: .*'critical', got 'info'"),
    ("[models.m.retrain.triggers]\nevery_hours = 0\n", r"triggers\.every_hours: .*greater than 0, got 0"),
    ("[models.m.retrain.triggers]\nalerts = ['a', 'a']\n", r"triggers: alerts: a is named twice"),
    ("[models.m.retrain]\nmode = 'auto'\n", r"retrain\.mode: .*'automatic' or 'suggest', got 'auto'"),
    ("[[webhooks]]\nevents = []\n", r"webhooks\.0\.url: Field required"),
    ("[models.m]\narchitecture = 'a.py:b'\n", r"models\.m: architecture needs weights"),
    ("[models.m]\narchitecture = 'a.py:b'\npredictor = 'a.py:c'\n", "exclude each other"),
    ("[models.'..']\n", r"models: model '\.\.': a name expected that is not empty, '\.' or '\.\.'"),
    ("[models.'a/b']\n", "models: model 'a/b': a name expected without slashes"),
    ("[models.'a@1']\n", "models: model 'a@1': a name expected without '@', which a version follows"),
    (
        '[models.m]\ntask = "scoring"\nscore_of = "positive"\nclasses = ["a", "b"]\n',
        "task = 'scoring' answers numbers",
    ),
    ("[models.m]\nversion = '..'\n", r"models: models\.m\.version: '\.\.': a name expected that is not"),
    ("[server\n", "cannot be read"),
]


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_a_mistake_names_key_and_value(write: Path, text: str, message: str) -> None:
    write.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_settings(write)
    assert str(caught.value).startswith(str(write))


def test_every_mistake_is_listed(write: Path) -> None:
    write.write_text("[server]\nport = 'high'\nhots = ''\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(write)
    assert len(str(caught.value).splitlines()) == 2


def test_a_mistake_in_the_environment_names_the_key_too(write: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write.write_text("")
    monkeypatch.setenv("OUTRIDER_SERVER__PORT", "high")
    with pytest.raises(ConfigError, match=r"server\.port: .*got 'high'"):
        load_settings(write)


@pytest.mark.parametrize("name", ["URL", "KEY", "KEY_FILE", "CONFIG", "CONTROL_FD", "REQUIRE_ALL"])
def test_variables_of_other_use_are_no_settings(
    write: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write.write_text("")
    monkeypatch.setenv(f"OUTRIDER_{name}", "1")
    load_settings(write)


def test_a_missing_file_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`outrider init` writes one, --config names another"):
        load_settings(tmp_path / "outrider.toml")


def test_the_file_is_found_by_option_then_environment_then_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTRIDER_CONFIG", raising=False)
    assert find_config() == Path("outrider.toml")
    monkeypatch.setenv("OUTRIDER_CONFIG", "other.toml")
    assert find_config() == Path("other.toml")
    assert find_config(Path("given.toml")) == Path("given.toml")


def test_a_wrong_file_ends_commands_with_exit_code_3(write: Path) -> None:
    write.write_text("[server]\nprot = 1\n")
    command = [sys.executable, "-m", "outrider", "check-config", "--config", str(write)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stdout == ""
    assert "did you mean 'port'?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("left", ["behavior/incidents.suite.json", "behavior/a.incidents.suite.json"])
def test_cases_of_incidents_are_not_forgotten_when_models_come_and_go(write: Path, left: str) -> None:
    several = "[models.a]\n[models.b]\n" if "a." not in left else "[models.a]\n"
    file = write.parent / left
    file.parent.mkdir()
    file.write_text("{}", encoding="utf-8")
    write.write_text(several, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf'write incident_suite = "{left}" under the model'):
        load_settings(write)
    for named in (f'incident_suite = "{left}"', f'behavior = ["{left}"]', 'behavior = ["behavior"]'):
        write.write_text(several.replace("[models.a]\n", f"[models.a]\n{named}\n"), encoding="utf-8")
        assert load_settings(write).left_incidents() is None


def test_an_address_with_a_password_is_refused_and_not_told(tmp_path: Path) -> None:
    path = tmp_path / "outrider.toml"
    path.write_text('[models.m.challengers.far]\nendpoint = "https://me:hunter2@host/v2/models/m"\n')
    with pytest.raises(ConfigError, match=r"options\.key_env") as raised:
        load_settings(path)
    assert "hunter2" not in str(raised.value)
