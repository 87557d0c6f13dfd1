"""The assertion host against files that do harm while they are loaded, and against itself."""

import socket
from pathlib import Path

import pytest

from outrider.assertions import Batch
from outrider.errors import OutriderError
from outrider.monitor.host.client import HostClient
from outrider.monitor.process import wire
from tests.end_to_end.service import CHECKS, CONFIG, is_alive, wait_until, write_project
from tests.forked import LightPopen

TWO_FILES = CONFIG.replace('["checks.py"]', '["checks.py", "more.py"]')


def start(folder: Path, more: str) -> HostClient:
    config = write_project(folder, config=TWO_FILES)
    (folder / "more.py").write_text(more, encoding="utf-8")
    client = HostClient(config, popen=LightPopen, deadline_s=2.0)
    client.start()
    return client


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "raise KeyboardInterrupt", "1 / 0", "def ("])
def test_a_file_that_ends_the_process_while_it_is_loaded_costs_its_own_assertions(
    tmp_path: Path, text: str
) -> None:
    client = start(tmp_path, text)
    try:
        assert {o.name for o in client.offered["toy"]} == {"too_high", "unsure", "flips", "test_nudge"}
        assert "more.py" in client.errors["toy"][0]
    finally:
        client.stop()


@pytest.mark.parametrize(
    ("text", "told"),
    [("import os; os._exit(7)", "exit code 7"), ("import time; time.sleep(600)", "longer than 8 s")],
)
def test_a_file_that_kills_or_holds_up_the_process_is_left_out_and_named(
    tmp_path: Path, text: str, told: str
) -> None:
    config = write_project(tmp_path, config=TWO_FILES)
    (tmp_path / "more.py").write_text(text, encoding="utf-8")
    client = HostClient(config, popen=LightPopen, deadline_s=2.0, load_deadline_s=8.0)
    client.start()
    try:
        assert {o.name for o in client.offered["toy"]} == {"too_high", "unsure", "flips", "test_nudge"}
        (error,) = client.errors["toy"]
        assert "more.py" in error
        assert told in error
        client.stop()
        client.start()  # it stays left out, without another wait
        assert len(client.offered["toy"]) == 4
    finally:
        client.stop()


def test_a_name_that_two_files_give_is_an_error_and_the_first_stands(tmp_path: Path) -> None:
    client = start(
        tmp_path, CHECKS.replace("0.9", "0.8") + "\n\ntest_nudge = assertion(name='test_nudge')(len)\n"
    )
    try:
        names = [o.name for o in client.offered["toy"]]
        assert sorted(names) == ["flips", "test_nudge", "too_high", "unsure"]
        assert "too_high" in client.errors["toy"][0]
        assert any("test_nudge" in error for error in client.errors["toy"])
    finally:
        client.stop()


def test_a_host_that_offers_something_else_after_a_restart_is_not_used_on(tmp_path: Path) -> None:
    client = start(
        tmp_path, "from outrider.assertions import assertion\n\n\n@assertion\ndef more(batch): ...\n"
    )
    try:
        (tmp_path / "more.py").write_text("", encoding="utf-8")
        with pytest.raises(OutriderError, match="changed"):
            client.start()
    finally:
        client.stop()


def test_a_frame_that_claims_more_than_a_frame_may_hold_is_refused_before_memory_is_taken() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall((2).to_bytes(4, "little") + (1 << 60).to_bytes(8, "little"))
        with pytest.raises(EOFError, match="bytes"):
            wire.receive(ours)
        theirs.sendall((2).to_bytes(4, "little") + (0).to_bytes(8, "little") + b"xx")
        with pytest.raises(EOFError, match="protocol"):
            wire.receive(ours)


def test_what_an_assertion_starts_is_killed_with_the_host(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    body = (
        "    import subprocess\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        f"    open({str(marker)!r}, 'w').write(str(child.pid))\n"
        "    child.wait()\n"
    )
    config = write_project(tmp_path, checks=CHECKS + "\n\n@assertion\ndef spawns(batch):\n" + body)
    host = HostClient(config, popen=LightPopen, deadline_s=2.0)
    host.start()
    batch = Batch.from_records([{"inputs": {"x": 0.5}}], model="toy")
    judgement = host.check(batch, assertions=["spawns"])
    host.stop()
    assert [failure.reason for failure in judgement.failures] == ["deadline"]
    wait_until(lambda: not is_alive(int(marker.read_text(encoding="ascii"))), "the end of the child")
