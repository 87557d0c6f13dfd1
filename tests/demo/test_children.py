import os
import time
from pathlib import Path

import pytest

from outrider.demo.children import ChildDied, Children, DemoProcess
from outrider.demo.files import MARK, Plan, environment, free_port, prepare_folder, write_project
from outrider.errors import ConfigError
from outrider.monitor.settings.config import load_settings


def test_all_are_stopped_when_the_context_ends(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Children(tmp_path, dict(os.environ)) as children:
            started.extend(children.start(name, ["-c", "import time; time.sleep(60)"]) for name in "ab")
            children.check()
            raise KeyboardInterrupt

    started: list[DemoProcess] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    first, second = started
    assert first.process.returncode == second.process.returncode == -15


def test_one_that_dies_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Children(tmp_path, dict(os.environ)) as children:
        child = children.start("reader", ["-c", "print('out of ink'); raise SystemExit(7)"])
        child.process.wait()
        with pytest.raises(ChildDied, match=r"reader ended with exit code 7.*\n  out of ink"):
            children.check()


def test_one_that_may_end_may_not_fail(tmp_path: Path) -> None:
    with Children(tmp_path, dict(os.environ)) as children:
        children.start("good", ["-c", ""], may_end=True).process.wait()
        children.check()
        children.start("bad", ["-c", "1 / 0"], may_end=True).process.wait()
        with pytest.raises(ChildDied, match="ZeroDivisionError"):
            children.check()


def test_lines_reach_a_child(tmp_path: Path) -> None:
    with Children(tmp_path, dict(os.environ)) as children:
        child = children.start("echo", ["-c", "print('heard', input())"], may_end=True)
        child.say("faulty")
        child.process.wait()
        assert child.tail().strip() == "heard faulty"


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(ConfigError, match="--folder"):
        prepare_folder(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_the_folder_of_an_earlier_demo_is_emptied(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    prepare_folder(folder)
    (folder / "journal.db").write_text("old")
    prepare_folder(folder)
    assert [path.name for path in folder.iterdir()] == [MARK]


@pytest.mark.parametrize("is_control", [False, True])
def test_the_project_is_a_valid_configuration_with_ports_and_seed(tmp_path: Path, is_control: bool) -> None:
    write_project(Plan(tmp_path, 7, is_control=is_control), port=1234, service_port=4321)
    settings = load_settings(tmp_path / "outrider.toml")
    model = settings.models["digits"]
    assert (settings.server.port, settings.worker.seed, model.retrain.seed) == (1234, 7, 7)
    assert settings.webhooks[0].url == "http://127.0.0.1:4321/hooks"
    assert model.retrain.rows == ("labelled" if is_control else "flagged")
    assert model.watch.auto_rollback is not is_control
    assert (tmp_path / "webhook.secret").stat().st_mode & 0o077 == 0


def test_settings_of_the_caller_do_not_reach_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_SERVER__PORT", "1")
    monkeypatch.setenv("OUTRIDER_DISABLED", "1")
    told = {name for name in environment(tmp_path) if name.startswith("OUTRIDER_")}
    assert told == {"OUTRIDER_KEY_FILE"}


def test_a_taken_port_gives_way_to_a_free_one() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert free_port(port) not in (0, port)
    time.sleep(0.01)
    assert free_port(port) == port
