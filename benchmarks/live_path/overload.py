"""Twice the traffic that a model can take, with an objective of one second: ages at verdict and what is shed.

Real intake and worker processes. The model sleeps for each record in proportion to the tokens that the trace
says were generated, so that its cost and not this machine sets the capacity; that is measured first, by how
long a burst takes without an objective. Then arrivals of the Azure conversation trace come one request each,
at their own times, scaled to twice that. Ages are taken from outside: from the ``ts`` that the sender put on
a record to when another process sees its verdict committed, looking every 10 ms.
"""

import http.client
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq

from benchmarks.data import data_folder
from benchmarks.figure import Figure

SLO_S = 1.0
OVERLOAD = 2.0
RUN_S = 25.0
BURST = 300
COST_S = 0.008
ENTITIES = 400
LOOK_S = 0.01
WARM_UP = 10**6
"""Number of the first record that is only sent to have everything up; their ages do not count."""
WARM_UP_ROWS = 60

CONFIG = """
[server]
port = 0

[models.chat]
predictor = "model.py:predict"
target = "label"
classes = [0, 1]
assertions = ["checks.py"]
behavior = ["test_chat.py"]
"""
OBJECTIVE = f"\n[models.chat.latency]\nslo_s = {SLO_S}\n"
MODEL = """
import time


def predict(batch):
    tokens = batch.column("inputs.tokens")
    time.sleep(float(tokens.sum()) * {per_token})
    return {{"label": (tokens > 200).astype(int)}}
"""
CHECKS = """
from outrider.assertions import Window, assertion


@assertion
def huge(batch):
    return batch.column("inputs.tokens") > 600


@assertion(window=Window(rows=3, columns=("outputs.label",)))
def all_long(batch):
    return [False] * batch.rows
"""
BEHAVIOR = """
from outrider.behavioral_tests import INV


def one_more(batch, rng):
    return batch.with_columns({"inputs.tokens": batch.column("inputs.tokens") + 1})


test_one_more = INV(perturb=one_more, live=0.1)
"""


@dataclass(slots=True)
class Run:
    """A running service, what was sent to it, and when its verdicts were seen."""

    folder: Path
    url: str
    key: str
    sent: dict[str, float] = field(default_factory=dict)
    seen: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Journal block and time, by record."""
    measures: list[str] = field(default_factory=list)
    """What was shed, as it was first seen."""
    refused: int = 0

    def query(self, sql: str) -> list[tuple[int, ...]]:
        """Read ``state.db``."""
        with closing(sqlite3.connect(f"file:{self.folder / 'state.db'}?mode=ro", uri=True, timeout=10)) as db:
            return db.execute(sql).fetchall()

    def counts(self) -> dict[str, int]:
        """Exact counters of the champion's slot."""
        with closing(sqlite3.connect(f"file:{self.folder / 'state.db'}?mode=ro", uri=True, timeout=10)) as db:
            return dict(db.execute("SELECT name, value FROM counter WHERE slot = 'champion'"))

    def waiting(self) -> int:
        """Skipped records that are not judged yet."""
        sql = "SELECT coalesce(sum(records - passed), 0) FROM backfill WHERE done_us IS NULL"
        return int(self.query(sql)[0][0])

    def accounted(self) -> int:
        """Records of which it is known what became of them."""
        counts = self.counts()
        names = ("records", "duplicates", "conflicts", "poison", "unopened", "shed:sampled", "shed:expired")
        return sum(counts.get(name, 0) for name in names) + self.waiting()


@contextmanager
def service(folder: Path, config: str, per_token: float) -> Iterator[Run]:
    """``outrider serve`` on a new project, stopped at the end."""
    folder.mkdir()
    files = {
        "outrider.toml": config,
        "model.py": MODEL.format(per_token=per_token),
        "checks.py": CHECKS,
        "test_chat.py": BEHAVIOR,
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    data = folder / "outrider-data"
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "outrider", "serve", "--config", str(folder / "outrider.toml")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    try:
        address = data / "run" / "server.json"
        until(lambda: address.exists() and (data / "key").exists(), 60.0)
        url = json.loads(address.read_text(encoding="utf-8"))["url"]
        run = Run(data, url, (data / "key").read_text(encoding="utf-8").strip())
        until(lambda: is_ready(run), 60.0)
        yield run
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def is_ready(run: Run) -> bool:
    """Whether intake answers."""
    try:
        with closing(connection(run)) as http_connection:
            http_connection.request("GET", "/readyz")
            return http_connection.getresponse().status == 200
    except OSError:
        return False


def connection(run: Run) -> http.client.HTTPConnection:
    """A connection to the service."""
    parts = urlsplit(run.url)
    return http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=30)


def until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Poll a condition."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s} s")
        time.sleep(0.05)


def send(run: Run, http_connection: http.client.HTTPConnection, first: int, tokens: list[int]) -> None:
    """One request with so many records, stamped with the time of their capture."""
    now = time.time()
    stamp = datetime.fromtimestamp(now, UTC).isoformat()
    records = [
        {
            "model": "chat",
            "id": f"r{number}",
            "entity": f"c{number * 7919 % ENTITIES}",
            "ts": stamp,
            "inputs": {"tokens": count},
        }
        for number, count in enumerate(tokens, first)
    ]
    run.sent |= {str(record["id"]): now for record in records}
    headers = {"Authorization": f"Bearer {run.key}", "Content-Type": "application/json"}
    http_connection.request("POST", "/v1/records", json.dumps(records), headers)
    response = http_connection.getresponse()
    response.read()
    if response.status != 202:
        run.refused += len(records)


def capacity(run: Run, tokens: list[int]) -> float:
    """Records per second of a burst that waits as a whole."""
    with closing(connection(run)) as http_connection:
        send(run, http_connection, 0, tokens[:8])
        until(lambda: run.accounted() >= 8, 60.0)
        for start in range(0, BURST, 10):
            send(run, http_connection, 8 + start, tokens[8 + start : 18 + start])
    begin, before = time.monotonic(), run.accounted()
    until(lambda: run.accounted() >= BURST + 8, 120.0)
    return (BURST + 8 - before) / (time.monotonic() - begin)


def watch(run: Run, stop: threading.Event) -> None:
    """Note when verdicts are committed, and what is shed."""
    database = f"file:{run.folder / 'state.db'}?mode=ro"
    with closing(sqlite3.connect(database, uri=True, timeout=10)) as db:
        last = 0
        while not stop.wait(LOOK_S):
            rows = db.execute("SELECT rowid, id, seq FROM record WHERE rowid > ?", (last,)).fetchall()
            now = time.time()
            for rowid, key, seq in rows:
                last = max(last, rowid)
                run.seen[key] = (seq, now)
            for (measure,) in db.execute("SELECT measure FROM freshness"):
                if measure not in run.measures:
                    run.measures.append(measure)


def drive(run: Run, arrivals_s: list[float], tokens: list[int]) -> None:
    """Send one request per arrival, at its time."""
    with closing(connection(run)) as http_connection:
        # A cold start is no overload: the first records load what live tests need, and tell the pace.
        for number in range(WARM_UP, WARM_UP + WARM_UP_ROWS):
            send(run, http_connection, number, tokens[:1])
            time.sleep(0.05)
        until(lambda: run.accounted() >= WARM_UP_ROWS, 60.0)
        begin = time.monotonic()
        for number, (at_s, count) in enumerate(zip(arrivals_s, tokens, strict=True)):
            time.sleep(max(0.0, begin + at_s - time.monotonic()))
            send(run, http_connection, number, [count])


def main() -> None:
    """Print what an overload of two does."""
    trace = pq.read_table(data_folder("azure_llm_trace_conv") / "trace.parquet")
    arrival_s = trace.column("arrival_s").to_numpy()
    tokens = trace.column("generated_tokens").to_pylist()
    per_token = COST_S / statistics.fmean(tokens)
    with tempfile.TemporaryDirectory() as folder:
        with service(Path(folder, "capacity"), CONFIG, per_token) as run:
            per_s = capacity(run, tokens)
        shown("live_path.overload.capacity", per_s, "records/s", "a burst without an objective")
        rows = int(OVERLOAD * per_s * RUN_S)
        scaled = arrival_s[:rows] * (RUN_S / arrival_s[rows - 1])
        with service(Path(folder, "overload"), CONFIG + OBJECTIVE, per_token) as run:
            stop = threading.Event()
            watcher = threading.Thread(target=watch, args=(run, stop))
            watcher.start()
            try:
                drive(run, scaled.tolist(), tokens[:rows])
                until(lambda: run.accounted() >= len(run.sent) - run.refused, 120.0)
                until(lambda: run.waiting() == 0, 300.0)
                time.sleep(10 * LOOK_S)
            finally:
                stop.set()
                watcher.join()
            report(run, OVERLOAD * per_s)


def report(run: Run, offered_per_s: float) -> None:
    """Print ages and sums."""
    counts = run.counts()
    gaps = run.query("SELECT after_seq, until_seq FROM backfill")
    ages = np.array(
        [
            at - run.sent[key]
            for key, (seq, at) in run.seen.items()
            if int(key[1:]) < WARM_UP and not any(after < seq <= until for after, until in gaps)
        ]
    )
    offered = len(run.sent) - run.refused
    p50, p99 = np.quantile(ages, (0.5, 0.99)).tolist()
    Figure("live_path.overload.p99", p99, "s", f"objective of {SLO_S:g} s", SLO_S / p99, target=1.0).show()
    shown("live_path.overload.p50", p50, "s", "admitted records, from capture to verdict")
    shown("live_path.overload.in_time", float((ages <= SLO_S).mean()), "share", "admitted records")
    shown("live_path.overload.offered", float(offered), "records", f"{offered_per_s:.0f} a second")
    for name in ("records", "backfilled", "shed:sampled", "shed:expired", "live:test_one_more:shed"):
        shown(f"live_path.overload.{name}", float(counts.get(name, 0)), "records", "offered", offered)
    shown("live_path.overload.skips", float(len(gaps)), "jumps", "windows began anew")
    total = float(run.query("SELECT sum(weight) FROM record")[0][0])
    shown(
        "live_path.overload.weights", total, "records", "offered, as the weights of the judged tell", offered
    )
    Figure(
        "live_path.overload.accounted", float(run.accounted()), "records", "offered",
        run.accounted() / offered, target=1.0,
    ).show()  # fmt: skip
    asked = run.query(
        "SELECT count(*) FROM live_answer JOIN record ON record.id = record_id"
        " WHERE live_answer.status != 'shed' AND record.weight > 1"
    )
    # records are shed after live tests: whoever is judged in place of others is asked nothing
    shown("live_path.overload.order", float(asked[0][0]), "live questions", "asked while records were shed")
    print(json.dumps({"name": "live_path.overload.measures", "seen": run.measures}), flush=True)


def shown(name: str, value: float, unit: str, against: str, over: float = 0.0) -> None:
    """Print a figure without a target."""
    Figure(name, value, unit, against, value / over if over else 1.0).show()


if __name__ == "__main__":
    main()
