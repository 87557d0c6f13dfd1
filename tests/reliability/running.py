"""An intake in a process of its own, and what strangers do to it."""

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from outrider.dataops.journal.journal import SqliteJournal
from outrider.monitor.http.keyring import load_or_create_key
from tests.databases import place_database
from tests.soak import PATIENCE_S

from .rounds import Forker


@dataclass
class Running:
    """An intake of its own."""

    folder: Path
    pid: int
    port: int

    @property
    def key(self) -> str:
        """Key of the service."""
        return load_or_create_key(self.folder / "outrider-data" / "key")

    @property
    def resident_bytes(self) -> int:
        """Memory of the process now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def most_bytes(self) -> int:
        """Most memory that the process had since `forget_most`."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def forget_most(self) -> None:
        """Measure the most memory from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def connect(self) -> socket.socket:
        """Open a connection that says nothing."""
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def get(self, path: str) -> int:
        """Status of a path, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.key}"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def send(self, key: str) -> int:
        """Status of a record of this id, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        body = json.dumps({"model": "toy", "id": key, "inputs": {"x": 0.5}})
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/records", body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def stored(self) -> int:
        """Records in the journal."""
        with SqliteJournal(self.folder / "outrider-data" / "journal.db", read_only=True) as journal:
            return journal.count_records(0, journal.last_seq(), model="toy")

    def counted(self, name: str) -> float:
        """A sum over the samples of a metric, as the service shows it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.key}"})
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@contextmanager
def running(
    folder: Path,
    config: str,
    *,
    commit_s: float = 0.0,
    descriptors: int | None = None,
    is_whole: bool = False,
) -> Iterator[Running]:
    """An intake: with slow commits, few descriptors, or pages and queries too."""
    folder.mkdir(exist_ok=True)
    (folder / "outrider.toml").write_text(config, encoding="utf-8")
    if is_whole:
        (folder / "outrider-data").mkdir(mode=0o700)
        place_database(folder / "outrider-data" / "state.db")
    order = {"commit_s": commit_s, "descriptors": descriptors, "is_whole": is_whole}
    with Forker() as forker:
        started = forker.ask(config=str(folder / "outrider.toml"), **order)
        try:
            yield Running(folder, started["pid"], started["port"])
        finally:
            os.kill(started["pid"], signal.SIGTERM)
            forker.ask(wait=started["pid"])
