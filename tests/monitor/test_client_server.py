"""Client, commands and notebooks find one service in one way; what is not delivered is said."""

import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import outrider
from outrider.commands import api
from outrider.errors import ConfigError, ServerError
from outrider.monitor.client import Client, UndeliveredError, find_server, watch
from tests.soak import PATIENCE_S

from .receiver import Receiver, nothing_is_left

__all__ = ["nothing_is_left"]  # a fixture, for every test here


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty, and an environment that says nothing."""
    for name in list(os.environ):
        if name.startswith("OUTRIDER_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def write_config(folder: Path, text: str, *, data: str = "outrider-data", key: str = "or_key") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "outrider.toml").write_text(text)
    (folder / data / "run").mkdir(parents=True)
    (folder / data / "key").write_text(key + "\n")


def write_address(data: Path, url: str) -> None:
    (data / "run" / "server.json").write_text(json.dumps({"url": url, "pid": 1}))


def doors() -> list[tuple[str, str | None]]:
    """URL and key of each door, which must be the same."""
    command, notebook = api.connect(), outrider.connect()
    found: list[tuple[str, str | None]] = [(command.url, command.key), (notebook.url, notebook._api.key)]
    client = Client(model="m")
    sent_to = client.url
    client.close(timeout=0)
    return [*found, (sent_to, command.key)]


CASES: dict[str, tuple[str, dict[str, str], str | None, str]] = {
    "nothing but the default": ("", {}, None, "http://127.0.0.1:8470"),
    "port of the file": ("[server]\nport = 9471", {}, None, "http://127.0.0.1:9471"),
    "host of the file": ('[server]\nhost = "10.0.0.7"\nport = 9471', {}, None, "http://10.0.0.7:9471"),
    "all addresses": ('[server]\nhost = "0.0.0.0"', {}, None, "http://127.0.0.1:8470"),
    "environment before file": (
        "[server]\nport = 9471",
        {"OUTRIDER_SERVER__PORT": "9472"},
        None,
        "http://127.0.0.1:9472",
    ),
    "a running service before its file": (
        "[server]\nport = 9471",
        {},
        "http://127.0.0.1:9999",
        "http://127.0.0.1:9999",
    ),
    "OUTRIDER_URL before all": (
        "[server]\nport = 9471",
        {"OUTRIDER_URL": "https://outrider.example/x/"},
        "http://127.0.0.1:9999",
        "https://outrider.example/x",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_door_finds_the_same_service_and_key(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text, environment, address, expected = CASES[name]
    write_config(here, text)
    if address is not None:
        write_address(here / "outrider-data", address)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    assert doors() == [(expected, "or_key")] * 3


def test_commands_do_not_guess_where_nothing_names_a_service(here: Path) -> None:
    for door in (api.connect, outrider.connect):
        with pytest.raises(ConfigError, match=r"no outrider\.toml here"):
            door()
    client = Client(model="m")
    assert client.url == "http://127.0.0.1:8470"
    client.close(timeout=0)
    write_config(here, "")
    (here / "outrider.toml").unlink()
    write_address(here / "outrider-data", "http://127.0.0.1:9999")
    assert doors() == [("http://127.0.0.1:9999", "or_key")] * 3


def test_the_data_folder_is_that_of_the_configuration_that_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(here / "project", '[storage]\nfolder = "kept"\n[server]\nport = 0', data="kept")
    monkeypatch.setenv("OUTRIDER_CONFIG", "project/outrider.toml")
    with pytest.raises(ServerError, match=r"no service runs on .*kept"):
        api.connect()
    write_address(here / "project" / "kept", "http://127.0.0.1:9999")
    assert doors() == [("http://127.0.0.1:9999", "or_key")] * 3
    monkeypatch.delenv("OUTRIDER_CONFIG")
    found = api.connect(Path("project/outrider.toml"))
    assert (found.url, found.key) == ("http://127.0.0.1:9999", "or_key")


def test_the_environment_names_the_key_first(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(here, "")
    (here / "other").write_text("or_other")
    monkeypatch.setenv("OUTRIDER_KEY_FILE", "other")
    assert outrider.connect("http://127.0.0.1:1")._api.key == api.connect().key == "or_other"
    monkeypatch.setenv("OUTRIDER_KEY", "or_environment")
    assert outrider.connect("http://127.0.0.1:1")._api.key == api.connect().key == "or_environment"
    assert outrider.connect(key="or_given")._api.key == "or_given"


def test_a_configuration_that_cannot_be_read_is_an_error_of_commands_alone(here: Path) -> None:
    write_config(here, "[server\nport")
    for door in (api.connect, outrider.connect):
        with pytest.raises(ConfigError, match="cannot be read"):
            door()
    client = Client(model="m")  # the service that it stands in goes on
    assert client.label("a", {"y": 1})
    client.close(timeout=0)
    with pytest.raises(ConfigError, match=r"none\.toml"):
        api.connect(Path("none.toml"))


def test_labels_reach_the_port_of_the_file_with_the_key_of_its_folder(here: Path, receiver: Receiver) -> None:
    write_config(here, f"[server]\nport = {receiver.url.rpartition(':')[2]}\n")
    client = Client(model="churn")
    for number in range(300):
        assert client.label(f"r{number}", {"y": 1})
    assert client.flush()
    assert (len(receiver.labels), receiver.keys) == (300, {"Bearer or_key"})
    client.close()


def test_a_service_that_comes_up_elsewhere_later_is_found(here: Path, receiver: Receiver) -> None:
    write_config(here, f"[server]\nport = {closed_port()}\n")
    client = Client(model="churn")
    client.label("a", {"y": 1})
    with pytest.raises(UndeliveredError):
        client.flush(timeout=0.3)
    write_address(here / "outrider-data", receiver.url)
    assert client.flush(timeout=PATIENCE_S)
    assert [label["id"] for label in receiver.labels] == ["a"]
    client.close()


def test_flush_raises_with_counts_url_and_reason(here: Path) -> None:
    port = closed_port()
    write_config(here, f"[server]\nport = {port}\n")
    client = Client(model="churn")
    for number in range(300):
        client.label(f"r{number}", {"y": 1})
    with pytest.raises(UndeliveredError) as caught:
        client.flush(timeout=0.5)
    assert (caught.value.counts.queued, caught.value.url) == (300, f"http://127.0.0.1:{port}")
    assert str(caught.value).startswith(
        "300 records and labels of model 'churn' are not delivered to http://"
    )
    assert "ConnectionRefusedError" in caught.value.reason
    assert "server.port of outrider.toml" in caught.value.reason
    assert client.counts.queued == 300


def test_nothing_but_flush_raises(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(f"http://127.0.0.1:{closed_port()}", "key", model="churn")

    @watch(model="churn", client=client)
    def predict(x: int) -> int:
        return x + 1

    assert predict(1) == 2
    assert client.capture({"x": 1}, {}) is not None
    client.close(timeout=0.3)
    client.close(timeout=0.3)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("outrider: 2 records and labels of model 'churn' were not delivered to http://")
    assert client.label("a", {"y": 1}) is False


EXITS = {
    "closed port": "[server]\nport = {port}\n",
    "no file": None,
}


@pytest.mark.parametrize("name", EXITS)
def test_what_is_undelivered_at_exit_is_said_with_its_count(here: Path, name: str) -> None:
    text = EXITS[name]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OUTRIDER_")}
    if text is None:
        environment["OUTRIDER_URL"] = f"http://127.0.0.1:{closed_port()}"
    else:
        write_config(here, text.format(port=closed_port()))
    code = (
        "import logging; logging.disable()\nfrom outrider.monitor.client import Client\n"
        "c = Client(model='churn')\nfor i in range(300): c.label(f'r{i}', {'y': 1})\n"
    )
    root = Path(outrider.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    (said,) = done.stderr.splitlines()
    assert said.startswith(
        "outrider: 300 records and labels of model 'churn' were not delivered to http://127"
    )
    assert "ConnectionRefusedError" in said


def test_a_delivered_exit_says_nothing(here: Path, receiver: Receiver) -> None:
    code = (
        "import sys\nfrom outrider.monitor.client import Client\n"
        "c = Client(sys.argv[1], 'k', model='churn')\nfor i in range(300): c.label(f'r{i}', {'y': 1})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, receiver.url],
        env={**os.environ, "PYTHONPATH": str(Path(outrider.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert (done.stderr, len(receiver.labels)) == ("", 300)


@pytest.mark.parametrize("status", [401, 404, 503, 0])
def test_a_refusal_is_said_once_with_the_url_that_was_tried(
    here: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    url = receiver.url if status else f"http://127.0.0.1:{closed_port()}"
    receiver.status, receiver.answer = status, {"detail": "so it is"}
    client = Client(url, "key", model="churn")
    client.label("a", {"y": 1})
    until = time.monotonic() + PATIENCE_S
    while (client._sender is None or client._sender._failures < 4) and time.monotonic() < until:
        client._sender.wake()  # type: ignore[union-attr]  # pauses are cut short
        time.sleep(0.01)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert f"POST {url}/v1/labels" in said
    assert (f"{status} so it is" if status else "ConnectionRefusedError") in said
    if status:  # once it was taken, the next outage is news
        receiver.status = 202
        assert client.flush()
        receiver.status = status
        client.label("b", {"y": 1})
        with pytest.raises(UndeliveredError, match="so it is"):
            client.flush(0.3)
        assert len([record for record in caplog.records if "cannot deliver" in record.getMessage()]) == 2
    client.close(timeout=0)


def test_an_error_that_is_not_outriders_names_the_url(receiver: Receiver) -> None:
    receiver.status = 404
    service = api.Api(receiver.url, "key")
    with pytest.raises(outrider.errors.OutriderError) as caught:
        service.get("/v1/models")
    assert f"{receiver.url}/v1/models" in str(caught.value)
    refused: Any = api.Api(f"http://127.0.0.1:{closed_port()}", None, "server.port of outrider.toml")
    with pytest.raises(ServerError, match=r"\(server\.port of outrider\.toml\) does not answer"):
        refused.get("/v1/models")


def test_what_was_found_says_where_it_came_from(here: Path) -> None:
    assert find_server().origin == "the default: there is no outrider.toml"
    write_config(here, "")
    assert find_server().origin == "server.port of outrider.toml"
