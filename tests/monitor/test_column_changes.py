"""A column whose type changed while it was not settled: what was stored is what is judged, and replayed."""

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.assertions import load_assertions
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.group_commit import merge
from outrider.monitor.intake.schema_book import SchemaBook
from outrider.monitor.worker import replay as replaying
from tests.end_to_end.service import write_project

from .decoding import decode_body
from .workbench import START_US, Workbench, workbench

CHECKS = """
import numpy as np

from outrider.assertions import Window, assertion


@assertion
def north(batch):
    \"\"\"The clinic is called north.\"\"\"
    return np.array([value == "north" for value in batch.field("attrs.clinic")], dtype=bool)


@assertion(window=Window(rows=3, columns=("inputs.x",)))
def still(batch):
    \"\"\"The same value three times; reads nothing of the column that changes.\"\"\"
    x, one, two = batch.column("inputs.x"), batch.previous("inputs.x"), batch.previous("inputs.x", 2)
    return (x == one) & (x == two)


@assertion(window=Window(rows=2))
def same_clinic(batch):
    \"\"\"The clinic of the record before.\"\"\"
    clinic = batch.field("attrs.clinic")
    pairs = zip(clinic, batch.previous_rows(), strict=True)
    return np.array([row >= 0 and one is not None and clinic[row] == one for one, row in pairs])


@assertion
def odd_note(batch):
    \"\"\"A rare field says so.\"\"\"
    return np.array([value == 7 for value in batch.field("attrs.note")], dtype=bool)
"""
CLINICS: list[Any] = [True, "north", "north", True, None, "south", *["north"] * 6, 3, "south"]


def feed(bench: Workbench, decoder: Decoder, bodies: list[list[dict[str, Any]]]) -> list[str]:
    """Blocks of these requests in the journal, as intake writes them; ids that were refused."""
    refused = []
    for body in bodies:
        bench.now_us += 100_000
        decoded = decode_body(
            decoder,
            json.dumps(body).encode(),
            kind="records",
            form="json",
            received_us=bench.now_us,
            model="toy",
        )
        refused += [str(one.id) for one in decoded.rejected.listed]
        if decoded.blocks:
            bench.journal.append(merge(decoded.blocks), bench.now_us)
    return refused


def records() -> list[dict[str, Any]]:
    return [
        {
            "id": f"r{n}",
            "entity": "a",
            "inputs": {"x": 0.5},
            "attrs": {"clinic": clinic, f"x{n}": 1, "note": 7},
        }
        for n, clinic in enumerate(CLINICS)
    ]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_records_of_every_type_are_judged_once_and_a_replay_finds_the_same(tmp_path: Path, size: int) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS)) as bench:
        decoder = Decoder(SchemaBook({"toy": {}}), max_columns=4)
        sent = records()
        refused = feed(bench, decoder, [sent[at : at + size] for at in range(0, len(sent), size)])
        bench.work()
        taken = {f"r{n}": clinic for n, clinic in enumerate(CLINICS) if f"r{n}" not in refused}
        assert set(taken.values()) >= {"north", "south"}
        assert len(refused) <= 3
        assert bench.count("records") == len(taken)
        assert bench.flags("north") == {id_ for id_, clinic in taken.items() if clinic == "north"}
        assert bench.flags("odd_note") == set(taken)
        assert bench.rows("SELECT reason FROM dead_letter") == []
        assert bench.flags("still")
        judges = load_assertions(tmp_path / "checks.py")
        until = replaying.judged_until(bench.engine, "toy", "champion")
        which = replaying.stretch(bench.journal, judges, since_us=0, until=until)
        again = replaying.replay(
            bench.engine, bench.journal, "toy", bench.settings.models["toy"], judges, which
        )
        revisions = replaying.stored_revisions(bench.engine, "toy")
        for judge in judges:
            stored = replaying.stored_flags(bench.engine, "toy", judge.name, revisions[judge.name][-1], which)
            assert again.fired()[judge.name] == stored


def test_windows_that_do_not_read_the_column_go_on_over_its_change(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS)) as bench:
        decoder = Decoder(SchemaBook({"toy": {}}))
        sent = [{"id": f"r{n}", "entity": "a", "inputs": {"x": 0.5}, "attrs": {"clinic": c}} for n, c in
                enumerate([True, "north", "north", "south"])]  # fmt: skip
        assert feed(bench, decoder, [[one] for one in sent]) == []
        bench.work()
        assert bench.flags("still") == {"r2", "r3"}
        assert bench.flags("same_clinic") == {"r2"}
        assert bench.now_us > START_US
