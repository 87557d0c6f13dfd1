"""A changed configuration: checked beside the running service, refused with its reason, or taken up."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from outrider.commands.serve import cannot_change
from outrider.errors import ConfigError
from outrider.monitor.settings.config import accepted_settings, load_settings
from outrider.monitor.settings.reload import Changed, Reload, accepted_copy, environment_of, read_state

GOOD = '[models.toy]\npredictor = "model.py:predict"\n'
CHECK = """
import os, sys
copy, _, config = os.environ["OUTRIDER_ACCEPTED_CONFIG"].partition(os.pathsep)
text = open(copy).read()
if "bad" in text:
    sys.exit("models.toy: it is bad")
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "outrider-data" / "run").mkdir(parents=True)
    (tmp_path / "outrider.toml").write_text(GOOD)
    return tmp_path / "outrider.toml"


def reload_of(config: Path, check: str = CHECK, why: str | None = None) -> Reload:
    folder = config.parent / "outrider-data"
    return Reload(config, folder, check=[sys.executable, "-c", check], refuse=lambda _: why)


def outcome(change: Reload) -> Changed:
    change.begin()
    while change.is_checking:
        if (found := change.finish()) != "nothing":
            return found
        time.sleep(0.01)
    return "nothing"


def test_what_is_good_is_taken_up_and_what_is_bad_leaves_the_last_good_one(config: Path) -> None:
    change = reload_of(config)
    (name, value), *_ = change.accept_first().items()
    copy = Path(value.partition(os.pathsep)[0])
    assert name == "OUTRIDER_ACCEPTED_CONFIG"
    folder = config.parent / "outrider-data"
    assert outcome(change) == "code"  # the file is as before: only what it names can have changed
    config.write_text(GOOD + "# bad\n")
    assert outcome(change) == "nothing"
    assert copy.read_text() == GOOD
    state = read_state(folder)
    assert state.problem == "models.toy: it is bad"
    assert state.refused_s >= state.loaded_s > 0
    config.write_text(GOOD + "# better\n")
    assert outcome(change) == "configuration"
    assert copy.read_text() == GOOD + "# better\n"
    assert read_state(folder).problem == ""


def test_what_a_running_service_cannot_change_is_refused(config: Path) -> None:
    change = reload_of(config, why="server.port cannot change")
    change.accept_first()
    assert outcome(change) == "nothing"
    assert "server.port" in read_state(config.parent / "outrider-data").problem


@pytest.mark.parametrize("change", ["[server]\nport = 1\n", "[storage]\nfolder = 'elsewhere'\n"])
def test_address_and_folder_are_what_it_cannot_change(config: Path, tmp_path: Path, change: str) -> None:
    now = load_settings(config)
    copy = tmp_path / "copy.toml"
    copy.write_text(change + GOOD)
    key = "server.port" if "port" in change else "storage.folder"
    assert str(cannot_change(now, load_settings(config, copy=copy))).startswith(f"{key} cannot change")
    copy.write_text("[limits]\nrecords = 5\n" + GOOD)
    assert cannot_change(now, load_settings(config, copy=copy)) is None


def test_a_file_that_has_gone_is_refused(config: Path) -> None:
    change = reload_of(config)
    change.accept_first()
    config.unlink()
    assert outcome(change) == "nothing"
    assert "cannot be read" in read_state(config.parent / "outrider-data").problem


def test_processes_read_the_accepted_copy_wherever_the_file_is_named(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.toml"
    copy.write_text(GOOD.replace("toy", "other"))
    assert accepted_copy(config) is None
    ((name, value),) = environment_of(copy, config).items()
    monkeypatch.setenv(name, value)
    settings = load_settings(config)
    assert (list(settings.models), settings.base) == (["other"], tmp_path)
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text(GOOD)
    assert list(load_settings(elsewhere).models) == ["toy"]


def test_commands_find_a_service_whose_file_is_broken_by_now(config: Path) -> None:
    change = reload_of(config)
    change.accept_first()
    config.write_text("[broken")
    assert accepted_settings(config).data_folder == config.parent / "outrider-data"
    (config.parent / "outrider-data" / "run" / "outrider.toml").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        accepted_settings(config)


def test_a_process_of_the_service_can_ask_for_a_reload_and_nobody_else_is_asked() -> None:
    told = threading.Event()
    before = signal.signal(signal.SIGHUP, lambda *_: told.set())
    code = "from outrider.monitor.process.child import ask_for_reload; print(ask_for_reload())"
    try:
        for pid, expected in ((os.getpid(), "True"), (os.getpid() + 1, "False"), (None, "False")):
            told.clear()
            environment = {} if pid is None else {"OUTRIDER_SUPERVISOR_PID": str(pid)}
            done = subprocess.run(
                [sys.executable, "-c", code],
                env=os.environ | environment,
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout.strip() == expected
            assert told.is_set() is (expected == "True")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_state_that_cannot_be_read_is_an_empty_one(tmp_path: Path) -> None:
    assert read_state(tmp_path).loaded_s == 0.0
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps({"unknown": 1}))
    assert read_state(tmp_path).problem == ""
