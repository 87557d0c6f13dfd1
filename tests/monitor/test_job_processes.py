"""Processes of jobs: whatever a user's code does to one, that job alone ends, with its reason."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Connection, insert, text

from outrider.assertions import Batch
from outrider.dataops.improvement import jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.journal.journal import Entry, SqliteJournal
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.improvement_tables import VersionUpload
from outrider.dataops.state.job_states import ENDED
from outrider.dataops.state.tables import table_of
from outrider.monitor.http.common import targets_of
from outrider.monitor.process.memory import own_bytes, usable_bytes
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.context import JobContext
from outrider.monitor.trainer.job_process import open_context
from outrider.monitor.trainer.job_processes import JobProcesses
from outrider.monitor.trainer.process import supervise
from tests.databases import migrated_for
from tests.forked import TRAINING, forks
from tests.model_sources import section_source
from tests.running_jobs import run_next
from tests.soak import PATIENCE_S

torch = pytest.importorskip("torch")

CONFIG = """
[models.m]
architecture = "model.py:Net"
weights = "unused"
inputs = ["x"]
classes = [0, 1]
[models.m.retrain]
replay = "m-old"
epochs = 2
augment = "augment.py:augment"
{retrain}
[[webhooks]]
url = "http://127.0.0.1:9/hooks"
[worker]
device = "cpu"
"""
MODEL = """
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(1, 2)
"""
AUGMENT = "import os, sys, time\nkept = []\ndef augment(x, generator):\n    {body}\n    return x\n"


class Bench:
    """Trainer of one model whose augmentation does as it is told."""

    def __init__(self, folder: Path, body: str, retrain: str = "") -> None:
        (folder / "outrider.toml").write_text(CONFIG.format(retrain=retrain))
        (folder / "model.py").write_text(MODEL)
        (folder / "augment.py").write_text(AUGMENT.format(body=body))
        settings = load_settings(folder / "outrider.toml")
        self.engine = migrated_for(settings)
        self.objects = LocalObjects(settings.data_folder / "objects")
        self.journal = SqliteJournal(settings.journal_path, max_bytes=None)
        self.context = JobContext(
            settings, self.engine, self.objects, self.journal, targets_of(settings), poll_s=0.02
        )
        self.processes = JobProcesses(self.context, folder / "outrider.toml", {"dataset": 2, "training": 1})
        self._thread = threading.Thread(target=supervise, args=(self.context, self.processes))
        weights = dump_weights(torch.nn.Linear(1, 2).state_dict())
        with write(self.engine) as connection:
            models.register_initial(
                connection,
                self.objects,
                model="m",
                version="1",
                content=weights,
                is_weights=True,
                now_us=1,
                source=section_source(settings, "m"),
            )

    def import_rows(self, name: str = "m-old") -> str:
        columns = {"id": [f"{name}{row}" for row in range(40)], "inputs.x": [row % 7.0 for row in range(40)]}
        table = pa.Table.from_batches([Batch.from_columns(columns, model="m").to_arrow()])
        table = table.append_column("label.label", pa.array([row % 2 for row in range(40)]))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return self.add("dataset", dataset=name, object=self.objects.put(sink.getvalue().to_pybytes()))

    def add(self, kind: jobs.Kind = "retrain", **params: object) -> str:
        with write(self.engine) as connection:
            return jobs.add(connection, model="m", kind=kind, params=params, now_us=now_us())

    def get(self, job: str) -> JobRow:
        with self.engine.connect() as connection:
            return jobs.get(connection, job)

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "waited too long"
            time.sleep(0.02)

    def ended(self, job: str) -> JobRow:
        self.until(lambda: self.get(job).status in ENDED)
        return self.get(job)

    def train(self) -> str:
        self.import_rows()
        return self.add(from_scratch=True)

    def events(self) -> list[dict[str, object]]:
        with self.engine.connect() as connection:
            told = connection.scalars(text("SELECT payload FROM outbox WHERE event = 'retrain.failed'")).all()
        return [json.loads(one)["data"] for one in told]

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.context.stop.set()
        self._thread.join()
        self.processes.close()
        self.journal.close()
        self.engine.dispose()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(body: str, retrain: str = "") -> Bench:
        made.append(Bench(tmp_path, body, retrain))
        made[0].start()
        return made[0]

    with forks(*TRAINING):
        yield make
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("body", "retrain", "why"),
    [
        ("raise KeyError('colour')", "", r"KeyError: 'colour'; it stood at augment\.py:4"),
        ("sys.exit('enough')", "", r"SystemExit: enough; it stood at augment\.py:4"),
        ("print('so far', flush=True); os._exit(7)", "", "its process ended with exit code 7"),
        (
            "print('so far', flush=True); time.sleep(600)",
            "deadline_s = 12",
            r"longer than retrain\.deadline_s allows; it stood at augment\.py:4",
        ),
        (
            "print('so far', flush=True); kept.append(bytearray(10**9)); time.sleep(600)",
            "memory_mb = 800",
            r"it used .* MB of memory, more than 800 MB \(retrain\.memory_mb\); it stood at augment\.py:4",
        ),
    ],
    ids=["raises", "exits", "ends", "hangs", "eats memory"],
)
def test_a_training_that_misbehaves_fails_alone_with_its_reason(
    bench: Callable[..., Bench], body: str, retrain: str, why: str
) -> None:
    made = bench(body, retrain)
    job = made.ended(made.train())
    assert job.status == "failed"
    assert re.search(why, job.result["error"]), job.result
    assert any("so far" in line for line in job.result["log"]) or "so far" not in body
    (told,) = made.events()
    assert (told["job"], told["error"]) == (job.id, job.result["error"])
    assert made.ended(made.import_rows("other")).status == "done", "others go on"


def test_a_killed_process_is_tried_three_times_and_its_last_lines_are_kept(
    bench: Callable[..., Bench],
) -> None:
    made = bench("print('so far', flush=True); os.kill(os.getpid(), 9)")
    job = made.ended(made.train())
    assert (job.status, job.attempts) == ("failed", 3)
    assert job.result["error"] == "given up: its process died in stage 'train' in each of 3 attempts"
    assert job.result["log"][-1] == "so far"


def test_a_dataset_is_made_beside_a_training_that_is_cancelled_and_tried_again(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    made = bench("time.sleep(600)")
    job = made.train()
    made.until(lambda: made.get(job).stage == "train")
    (pid,) = [each.started.process.pid for each in made.processes._running.values() if each.job.id == job]
    assert made.ended(made.import_rows("other")).status == "done"
    assert made.get(job).status == "running"
    with write(made.engine) as connection:
        jobs.cancel(connection, job, by="anna", now_us=now_us())
    made.until(lambda: made.processes.is_idle)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert made.get(job).status == "cancelled"
    assert made.events() == []
    (tmp_path / "augment.py").write_text(AUGMENT.format(body="pass"))
    with write(made.engine) as connection:
        again = jobs.retry(connection, job, now_us=now_us())
    done = made.ended(again.id)
    assert done.status in ("done", "refused", "undecided"), done.result
    assert done.result["candidate"] == "2"


def test_a_process_waits_a_while_for_the_next_job(bench: Callable[..., Bench]) -> None:
    made = bench("pass")
    made.ended(made.import_rows())
    made.until(lambda: made.processes._spare is not None)
    spare = made.processes._spare
    assert spare is not None
    made.ended(made.import_rows("other"))
    made.until(lambda: made.processes._spare not in (None, spare))
    assert spare.process.returncode == 0
    made.processes._spare_until = 0.0
    made.until(lambda: made.processes._spare is None)


def test_a_trainer_that_ends_puts_its_jobs_back(bench: Callable[..., Bench]) -> None:
    made = bench("time.sleep(0.2)", "deadline_s = 500")
    job = made.train()
    made.until(lambda: made.get(job).stage == "train")
    made.context.stop.set()
    made._thread.join()
    made.processes.close()
    found = made.get(job)
    assert (found.status, found.attempts) == ("queued", 0)


def test_a_job_waits_for_the_judgement_of_what_was_sent_before_it(tmp_path: Path) -> None:
    made = Bench(tmp_path, "pass")

    def move(seq: int) -> None:
        with write(made.engine) as connection:
            connection.execute(text(f"INSERT OR REPLACE INTO cursor VALUES ('m', 'champion', {seq})"))

    asked: list[int] = []

    def has_unread(_: str, seq: int) -> bool:
        asked.append(seq)
        move(seq + 1)
        return seq < 3

    move(1)
    job = made.add("dataset")
    done = run_next(dataclasses.replace(made.context, has_unread=has_unread))
    assert done is not None
    assert (done.id, done.status, asked, done.params["upto_seq"]) == (job, "done", [1, 2, 3], 4)
    made.journal.close()
    made.engine.dispose()


def test_blocks_that_come_after_a_job_are_not_waited_for(tmp_path: Path) -> None:
    made = Bench(tmp_path, "pass")
    rows = Batch.from_columns({"id": ["a"], "inputs.x": [1.0]}, model="m")
    entry = Entry("records", "m", 1, rows.to_ipc())
    (before,) = made.journal.append([entry], 1)
    context = open_context(made.context.settings, threading.Event())
    made.journal.append([entry], 2)
    assert context.has_unread("m", before - 1)
    assert not context.has_unread("m", before)
    context.engine.dispose()
    made.journal.close()
    made.engine.dispose()


def test_memory_of_a_process_is_its_own() -> None:
    """Of another process: what this one frees beside would count."""
    asked = f"import os; from {own_bytes.__module__} import own_bytes; before = own_bytes(os.getpid()); "
    code = f"{asked}kept = b'x' * 50_000_000; print(own_bytes(os.getpid()) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 45_000_000 <= int(done.stdout) <= 80_000_000
    assert own_bytes(2**22 + 1) == 0
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < usable_bytes(0.5) <= whole / 2


UPLOADS = """
[models.m.uploads]
endpoints = ["127.0.0.1:9"]
key_envs = { "http://127.0.0.1:9" = "SCORER_TOKEN" }
"""


def test_job_that_trains_from_an_upload_has_no_secret_and_an_empty_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OUTRIDER_KEY", "OUTRIDER_MODEL_KEY", "SHOP_TOKEN", "SCORER_TOKEN", "OUTRIDER_SERVER__PORT"):
        monkeypatch.setenv(name, "7")
    bench = Bench(tmp_path, "pass", UPLOADS)
    asked = Source("endpoint", "http://127.0.0.1:9/v2/models/m", is_uploaded=True).to_json()
    first = bench.get(bench.add())
    with write(bench.engine) as connection:
        models.register(
            connection, model="m", version="2", status="challenger", digest="d", weights=None, now_us=1,
            source=asked,
        )  # fmt: skip
        uploaded(connection, "2")
    assert bench.processes._kept_secrets(first) is None  # its engine opens that alone
    with write(bench.engine) as connection:
        uploaded(connection, "1")
        run = {"champion": "m@1", "settings": {"trainer": "train.py:fine_tune"}}
        jobs.claim(connection, now_us=now_us())
        jobs.note(connection, first.id, stage="train", result={"run": run})
    kept = bench.processes._kept_secrets(first)
    assert kept == frozenset({"SCORER_TOKEN"})
    own = bench.get(bench.add(repeat=first.id))
    assert bench.processes._kept_secrets(own) is None  # code of the owner's may need any
    assert bench.processes._kept_secrets(bench.get(bench.add(candidate="2"))) is None
    started = bench.processes._started(kept)
    try:
        place = Path("/proc", str(started.process.pid))
        told = (place / "environ").read_bytes().split(b"\0")
        names = {one.partition(b"=")[0].decode() for one in told}
        assert not names & {"OUTRIDER_KEY", "OUTRIDER_MODEL_KEY", "SHOP_TOKEN"}
        assert {"OUTRIDER_SERVER__PORT", "SCORER_TOKEN"} <= names
        assert not list(Path(os.readlink(place / "cwd")).iterdir())
    finally:
        started.kill()
    assert started.scratch is not None
    assert not Path(started.scratch.name).exists()


def uploaded(connection: Connection, version: str) -> None:
    row = {
        "id": f"up_{version}", "model": "m", "token": False, "begun_by": "ann", "request": {},
        "status": "done", "version": version, "created_us": 0, "until_us": 0,
    }  # fmt: skip
    connection.execute(insert(table_of(VersionUpload)).values(row))
