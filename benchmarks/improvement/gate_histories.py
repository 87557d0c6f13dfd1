"""Gate error end to end: real imports, jobs, answers and verdicts, on candidates of known truth.

In each history a held-out dataset is imported, a candidate is registered, and the trainer runs the job that
puts it before the gate. The rows hold what each model answers; the models are functions that read it out. One
candidate is worse by just what the margin allows, one better by twice of it, one equal.

``python -m benchmarks.improvement.gate_histories [HISTORIES]``
"""

import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.figure import Figure
from outrider.assertions import Batch
from outrider.dataops.improvement import jobs
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database, write
from outrider.monitor.http.common import targets_of
from outrider.monitor.settings.config import load_settings
from outrider.monitor.trainer.context import JobContext
from tests.running_jobs import run_next

CHAMPION = Source("function", "model.py:champion", inputs=("champion", "candidate"), classes=(0, 1))
HISTORIES = 100
MARGIN = 0.02
CONFIG = """
[models.m]
predictor = "model.py:champion"
inputs = ["champion", "candidate"]
classes = [0, 1]
[models.m.gate]
held_out = "held"
max_drop = 0.02
shadow_rows = 0
"""
MODEL = """
def champion(batch):
    return {"label": batch.column("inputs.champion").astype(int)}


def candidate(batch):
    return {"label": batch.column("inputs.candidate").astype(int)}
"""
KINDS = {"worse": (0.06, 0.04), "better": (0.02, 0.06), "equal": (0.04, 0.04)}
"""Share of the rows that the candidate alone gets wrong, and that the champion alone does."""
SHAPES = ((500, 10, 0.1), (1000, 50, 0.1), (2000, 50, 0.5), (3000, 1500, 0.0))
"""Rows, entities, intra-class correlation."""


def rows_of(rng: np.random.Generator, kind: str, shape: tuple[int, int, float]) -> pa.Table:
    """Labelled rows with the answers of both."""
    rows, entities, correlation = shape
    shares = np.array([*KINDS[kind], 1.0 - sum(KINDS[kind])])
    drawn = (
        rng.dirichlet(shares * (1 / correlation - 1), entities)
        if correlation
        else np.tile(shares, (entities, 1))
    )
    entity = np.arange(rows) % entities
    chance, ends = rng.random(rows), drawn.cumsum(axis=1)[entity]
    lost, won = chance < ends[:, 0], (chance >= ends[:, 0]) & (chance < ends[:, 1])
    label = rng.integers(0, 2, rows)
    columns = {
        "id": [f"r{row}" for row in range(rows)],
        "entity": [f"e{number}" for number in entity],
        "inputs.champion": np.where(won, 1 - label, label),
        "inputs.candidate": np.where(lost, 1 - label, label),
        "inputs.unique": rng.random(rows),  # the same answers to other rows are other rows
    }
    batch = Batch.from_columns(columns, model="m")
    return pa.Table.from_batches([batch.to_arrow()]).append_column("label.label", pa.array(label))


@contextmanager
def fresh_context() -> Iterator[JobContext]:
    """Project with a champion and nothing else."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "outrider.toml").write_text(CONFIG)
        (folder / "model.py").write_text(MODEL)
        settings = load_settings(folder / "outrider.toml")
        settings.data_folder.mkdir()
        engine = open_database(settings.database_url)
        migrations.upgrade(engine)
        objects = LocalObjects(settings.data_folder / "objects")
        journal = SqliteJournal(settings.journal_path, max_bytes=None)
        with write(engine) as connection:
            models.register_initial(
                connection,
                objects,
                model="m",
                version="1",
                content=b"",
                is_weights=False,
                now_us=1,
                source=CHAMPION.to_json(),
            )
        yield JobContext(settings, engine, objects, journal, targets_of(settings), poll_s=0.01)
        journal.close()
        engine.dispose()


def judged(context: JobContext, number: int, table: pa.Table) -> str:
    """Outcome of a candidate on newly imported rows, by the real jobs."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    digest = context.objects.put(sink.getvalue().to_pybytes())
    own, version = context.settings.models["m"], f"c{number}"
    gate = own.gate.model_copy(update={"held_out": f"held-{number}"})
    context.settings.models["m"] = own.model_copy(update={"gate": gate})
    source = replace(CHAMPION, reference="model.py:candidate")
    with write(context.engine) as connection:
        models.register(
            connection, model="m", version=version, status="challenger", digest="", weights=None, now_us=2,
            source=source.to_json(),
        )  # fmt: skip
        params = {"dataset": f"held-{number}", "object": digest}
        jobs.add(connection, model="m", kind="dataset", params=params, now_us=1)
        jobs.add(connection, model="m", kind="retrain", params={"candidate": version}, now_us=2)
    made, judged_by = run_next(context), run_next(context)
    if made is None or made.status != "done" or judged_by is None or judged_by.status == "failed":
        raise RuntimeError(f"history {number}: {made} {judged_by}")
    return judged_by.status


def main() -> None:
    """Print all figures."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    histories = int(sys.argv[1]) if len(sys.argv) > 1 else HISTORIES
    rng = np.random.default_rng(17)
    with fresh_context() as context:
        found = {kind: Counter[str]() for kind in KINDS}
        number = 0
        for kind, outcomes in found.items():
            for history in range(histories):
                number += 1
                shape = SHAPES[-1] if kind == "better" else SHAPES[history % len(SHAPES)]
                outcomes[judged(context, number, rows_of(rng, kind, shape))] += 1
                if sys.stderr.isatty():
                    print(f"{kind} {history + 1}: {dict(outcomes)}", file=sys.stderr)
    data = "real imports and jobs; {} rows, seed 17"
    spread = "500 to 3,000"
    for name, kind, outcome, most in (
        ("worse_promoted", "worse", "done", 0.05),
        ("equal_refused", "equal", "refused", 0.05),
    ):
        share = found[kind][outcome] / histories
        ratio = most / max(share, 1 / histories)
        Figure(
            f"improvement.gate_histories.{name}", share, "share", f"{most:g}", ratio, 1.0, histories,
            data=data.format(spread),
        ).show()  # fmt: skip
    share = found["better"]["done"] / histories
    Figure(
        "improvement.gate_histories.better_passed", share, "share", "0.9", share / 0.9, 1.0, histories,
        data=data.format("3,000"),
    ).show()  # fmt: skip


if __name__ == "__main__":
    main()
