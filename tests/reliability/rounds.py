"""Rounds of one intake that dies: traffic, a ledger of what was acknowledged, a look at the journal."""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from outrider.dataops.journal.journal import SqliteJournal
from outrider.monitor.http.keyring import load_or_create_key
from tests.soak import PATIENCE_S

CONFIG = "[server]\nport = 0\n\n[models.toy]\n"
CONNECTIONS = 3
PRAGMAS = ("wal_autocheckpoint = 40",)  # a checkpoint every few commits: they are where it is hard


class Forker:
    """A `forking_intake` process, with the shim preloaded where there is one."""

    def __init__(self, shim: Path | None = None) -> None:
        environment = dict(os.environ)
        if shim is not None:
            environment["LD_PRELOAD"] = str(shim)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.forking_intake"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=Path(__file__).parents[2],
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE_S)

    def ask(self, **order: Any) -> Any:
        """Give an order; its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@dataclass
class Place:
    """A data folder over many rounds, and the ledger of what was acknowledged from it."""

    folder: Path
    rng: random.Random
    acknowledged: set[str] = field(default_factory=set)
    offered: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    seen_seq: int = 0
    seen: set[str] = field(default_factory=set)
    statuses: dict[int, int] = field(default_factory=dict)
    fruitful: int = 0
    """Rounds in which something was acknowledged before the end."""

    @property
    def config(self) -> Path:
        """The configuration, made with its key at the first question."""
        path = self.folder / "outrider.toml"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(CONFIG, encoding="utf-8")
            load_or_create_key(self.folder / "outrider-data" / "key")
        return path

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.folder / "outrider-data" / "journal.db"

    def cut_round(
        self, forker: Forker, *, pragmas: Sequence[str] = PRAGMAS, after: int | None = None
    ) -> None:
        """Traffic until the power goes, at an operation on the disk; a random one, often among the first."""
        if after is None:
            after = self.rng.choice(
                [self.rng.randrange(12), self.rng.randrange(400), self.rng.randrange(400)]
            )
        how = self.rng.randrange(2)
        order = {"cut_after": after, "how": how, "seed": self.rng.randrange(1, 2**60), "pragmas": pragmas}
        self._round(forker, order, kill_s=None)

    def kill_round(self, forker: Forker) -> None:
        """Traffic until kill -9, at a random moment of it; in one round of ten while the intake starts."""
        self._round(forker, {"pragmas": PRAGMAS}, kill_s=self.rng.uniform(0.0, 0.05))

    def check(self) -> None:
        """Look at what the journal has beyond what was seen, and remember what is lost."""
        with SqliteJournal(self.journal) as journal:
            while blocks := journal.read(self.seen_seq):
                for block in blocks:
                    assert not block.damage, block.damage
                    self.seen_seq = block.seq
                    if block.kind == "records":
                        with pa.ipc.open_stream(block.payload) as reader:
                            self._note(reader.read_all().column("id").to_pylist())
        self.lost |= self.acknowledged - self.seen
        assert self.seen <= self.offered

    def check_all(self) -> None:
        """The same from the beginning: what was there once must be there still."""
        self.seen_seq, self.seen = 0, set()
        self.check()

    def _note(self, ids: list[str]) -> None:
        assert not self.seen & set(ids), "a record stands in the journal twice"
        self.seen |= set(ids)

    def _round(self, forker: Forker, order: dict[str, Any], *, kill_s: float | None) -> None:
        started = forker.ask(config=str(self.config), **order)
        before = len(self.acknowledged)
        senders = [
            threading.Thread(target=self._send, args=(started["port"], self.rng.randrange(2**30)))
            for _ in range(CONNECTIONS)
        ]
        for sender in senders:
            sender.start()
        if kill_s is not None:
            until = time.monotonic() + PATIENCE_S
            starting = self.rng.random() < 0.1
            while not starting and len(self.acknowledged) == before and time.monotonic() < until:
                time.sleep(0.002)
            time.sleep(kill_s)
            os.kill(started["pid"], signal.SIGKILL)
        for sender in senders:
            sender.join(PATIENCE_S)
        status = forker.ask(wait=started["pid"])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.fruitful += len(self.acknowledged) > before
        if self.journal.exists():
            self.check()

    def _send(self, port: int, seed: int) -> None:
        """Send until the other side is gone."""
        rng = random.Random(seed)
        key = (self.folder / "outrider-data" / "key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            for number in range(100_000):
                ids = [f"{seed}-{number}-{row}" for row in range(rng.choice([1, 1, 7, 40]))]
                text = "x" * rng.choice([3, 3, 500, 30_000 // len(ids)])
                body = json.dumps([{"model": "toy", "id": i, "inputs": {"t": text, "n": 1}} for i in ids])
                self.offered.update(ids)
                connection.request("POST", "/v1/records", body, headers)
                answer = connection.getresponse()
                said = answer.read()
                assert answer.status == 202, said
                self.acknowledged.update(ids)
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()
