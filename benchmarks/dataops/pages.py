"""Pages of a dataset of 1,000 versions and a million rows of 34 columns.

``python -m benchmarks.dataops.pages [ROWS] [FOLDER]``. One version of all rows, then 999 that add, relabel
and remove a few, each through the store, with flags, quarantine and what validation found. Each page is asked
for as a browser would, without the network; FOLDER keeps the service's files, to look at.
"""

import asyncio
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pyarrow as pa
from fastapi import FastAPI
from sqlalchemy import Engine

from benchmarks.dataops.versions import ROWS, rows_of
from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.dataops.datasets import changes, quarantine
from outrider.dataops.datasets.validation import Rules, validate
from outrider.dataops.datasets.versions import Provenance
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.models.lineage import add_edges
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import migrations
from outrider.dataops.state.database import now_us, open_database, write
from outrider.monitor.http.keyring import Keyring
from outrider.monitor.server.app import build_app
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import StorageSettings
from outrider.monitor.views.every import every_router
from outrider.monitor.views.service import Service

VERSIONS, ADDED, RELABELLED, REMOVED, QUARANTINED = 1000, 20, 10, 5, 10_000
ASKED, MOST_MS = 15, 100
MODEL, DATASET = "m", "m-flagged"
FLAGS = '[["blurry", "3f2a1c9d01aa", 0.82], ["dark", "77aa01bb23cd", 0.4]]'
LABEL = "label.label"


class Dataset:
    """Dataset of a model in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.engine: Engine = open_database(f"sqlite:///{folder / 'state.db'}")
        migrations.upgrade(self.engine)
        self.objects = LocalObjects(folder / "objects")
        self.rng = np.random.default_rng(0)

    def build(self, rows: int) -> None:
        """Make all versions."""
        table = rows_of(rows, 1, "r")
        sample = Batch.from_arrow(table.slice(0, 1000), model=MODEL)
        summary = validate(sample, Rules(classes=range(5), inputs=("x0", "t0"))).summary
        self.change(1, table, [], summary)
        spare = self.rng.permutation(rows)[: VERSIONS * (RELABELLED + REMOVED)].reshape(VERSIONS, -1)
        for number in range(2, VERSIONS + 1):
            chosen = table.take(pa.array(np.sort(spare[number - 1][:RELABELLED])))
            other = pa.array((chosen.column(LABEL).to_numpy() + 1) % 5)
            chosen = chosen.set_column(chosen.schema.get_field_index(LABEL), LABEL, other)
            gone = table.column("id").take(pa.array(spare[number - 1][RELABELLED:])).to_pylist()
            new = pa.concat_tables([rows_of(ADDED, number, f"v{number:04}-"), chosen])
            self.change(number, new, gone, summary)
        reason = "inputs.x0: expect_column_values_to_be_between(min_value=0)"
        with write(self.engine) as connection:
            held = {f"q{row:06}": reason for row in range(QUARANTINED)}
            quarantine.hold(connection, DATASET, held, rules="", labels={}, now_us=now_us())
            version = f"{DATASET}@{VERSIONS}"
            add_edges(connection, "model", f"{MODEL}@2", [("dataset", version, "fresh")], now_us=now_us())

    def change(self, number: int, table: pa.Table, removed: list[str], summary: dict[str, Any]) -> None:
        """Commit one version."""
        origins = [
            Provenance(
                name,
                "blurry,dark",
                "expert" if name[0] == "r" and number > 1 else "crowd",
                "held_out" if hash_of(name) % 5 == 0 else "train",
                number,
                row,
                "1",
                FLAGS,
                None,
                1.0,
            )
            for row, name in enumerate(table.column("id").to_pylist())
        ]
        with self.engine.connect() as connection:
            draft = changes.prepare(
                connection,
                self.objects,
                dataset=DATASET,
                batch=Batch.from_arrow(table, model=MODEL),
                provenance=origins,
                append=True,
                removed=removed,
            )
        account = {
            "labels": len(origins),
            "rows": ADDED,
            "corrected": 0,
            "removed": 0,
            "left_out": {},
            "refusals": {},
            "of_other_models": 0,
        }
        with write(self.engine) as connection:
            changes.commit(
                connection,
                draft,
                validation=summary,
                now_us=now_us(),
                made_from=[("job", f"job-{number}", "trigger"), ("records", MODEL, "flagged and labelled")],
                notes={"labels": account},
            )


def hash_of(name: str) -> int:
    """Number that an id always has."""
    return int(name[-4:], 16) if name[0] == "r" else int(name[1:5])


def addresses() -> dict[str, str]:
    """Pages by figure."""
    at = f"/m/{MODEL}"
    here = f"{at}/datasets/{DATASET}"
    return {
        "datasets": f"{at}/datasets",
        "dataset": here,
        "version": f"{here}/{VERSIONS}",
        "first_version": f"{here}/1",
        "diff": f"{here}/diff?old={VERSIONS - 1}&new={VERSIONS}",
        "diff_of_100": f"{here}/diff?old={VERSIONS - 100}&new={VERSIONS}",
        "lineage": f"{at}/lineage?start={quote(f'dataset:{DATASET}@{VERSIONS}')}",
    }


async def asked(app: FastAPI, path: str) -> list[float]:
    """Seconds of each answer, the first one apart."""
    transport = httpx.ASGITransport(app=app)
    taken = []
    async with httpx.AsyncClient(transport=transport, base_url="http://outrider.test") as client:
        for _ in range(ASKED + 1):
            began = perf_counter()
            answer = await client.get(path)
            taken.append(perf_counter() - began)
            assert answer.status_code == 200, f"{path}: {answer.status_code}"
    print(f"{path}: first {taken[0] * 1000:.0f} ms", file=sys.stderr)
    return taken[1:]


def measure(folder: Path, rows: int) -> list[Figure]:
    """Milliseconds of each page."""
    dataset = Dataset(folder)
    if not dataset.objects.folder.exists():
        began = perf_counter()
        dataset.build(rows)
        print(f"{VERSIONS} versions in {perf_counter() - began:.0f} s", file=sys.stderr)
    found = []
    with closing(SqliteJournal(folder / "journal.db", max_bytes=None)) as journal:
        settings = Settings(
            base=folder, storage=StorageSettings(folder=str(folder)), models={MODEL: ModelSettings()}
        )
        service = Service(dataset.engine, journal, settings, Keyring.of_folder(folder))
        app = build_app(fault=lambda: None, routers=[every_router(service)])
        data = f"{VERSIONS} versions, {rows} rows of 34 columns, {QUARANTINED} in quarantine"
        for name, path in addresses().items():
            value = statistics.median(asyncio.run(asked(app, path))) * 1000
            ratio = MOST_MS / value
            found.append(
                Figure(f"dataops.pages.{name}", value, "ms", f"{MOST_MS} ms", ratio, 1.0, n=ASKED, data=data)
            )
    dataset.engine.dispose()
    return found


def main() -> None:
    """Print the figures."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(name)
        folder.mkdir(exist_ok=True)
        for figure in measure(folder, rows):
            figure.show()


if __name__ == "__main__":
    main()
