"""SIGTERM under load, with a client that never ends its request and an assertion that never returns."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx

from tests.soak import PATIENCE_S, promised

from .service import CHECKS, CONFIG, Service, all_dead, wait_until, write_project
from .test_start_and_stop import journal_ids

HANGS = '''

@assertion
def hangs(batch):
    """Never returns on a record named stuck."""
    import pathlib, time
    while "stuck" in batch.keys:
        pathlib.Path(__file__).with_name("hanging").touch()
        time.sleep(1)
    return batch.column("inputs.x") > 2
'''
SENDERS = 4


def test_sigterm_ends_within_ten_seconds_whatever_hangs(tmp_path: Path) -> None:
    config = CONFIG + "\n[host]\ndeadline_s = 60.0\n"
    acknowledged: list[set[str]] = [set() for _ in range(SENDERS)]
    stop = threading.Event()
    with Service(write_project(tmp_path, config=config, checks=CHECKS + HANGS)) as service:
        url, headers = str(service.client.base_url), dict(service.client.headers)

        def load(mine: set[str], name: str) -> None:
            number = 0
            with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE_S) as client:
                while not stop.is_set():
                    number += 1
                    ids = [f"{name}-{number}-{row}" for row in range(20)]
                    block = [{"model": "toy", "id": id_, "inputs": {"x": 0.5}} for id_ in ids]
                    try:
                        if client.post("/v1/records", json=block).status_code == 202:
                            mine.update(ids)
                    except httpx.TransportError:
                        time.sleep(0.05)

        senders = [threading.Thread(target=load, args=(mine, f"s{n}")) for n, mine in enumerate(acknowledged)]
        service.post([{"id": "first", "inputs": {"x": 0.5}}])
        service.wait_judged(1)
        for sender in senders:
            sender.start()
        wait_until(lambda: sum(map(len, acknowledged)) > 500, "acknowledged records", service)
        service.post([{"id": "stuck", "inputs": {"x": 0.5}}])
        wait_until((tmp_path / "hanging").exists, "assertion that hangs", service)
        slow = socket.create_connection(("127.0.0.1", service.client.base_url.port or 0))
        head = "POST /v1/records HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
        slow.sendall(f"{head}Authorization: {headers['authorization']}\r\n\r\n[".encode())
        pids = list(service.processes().values())
        assert service.process is not None
        began = time.monotonic()
        os.kill(service.process.pid, signal.SIGTERM)
        code = service.process.wait(promised(20))
        seconds = time.monotonic() - began
        stop.set()
        for sender in senders:
            sender.join()
        slow.close()
    log = service.log.read_text(encoding="utf-8")[-3000:]
    assert code == 0, log
    assert seconds <= promised(10), log
    assert all_dead(pids)
    assert set().union(*acknowledged) <= journal_ids(service.folder / "journal.db")
