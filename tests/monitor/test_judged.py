"""Which answer of a record is judged: production's where it said anything, else the replica's."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.assertions import Assertion, Batch, Findings, Window, assertion
from outrider.assertions.library import llm
from outrider.assertions.windows.state import WindowState
from outrider.dataops.ledger.commit import Effects
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.sections import HostSettings
from outrider.monitor.stream.units import Unit
from outrider.monitor.worker.judged import JudgedRecords
from outrider.monitor.worker.ledger_rows import RecordLocations
from outrider.monitor.worker.pipeline import CHAMPION, Pipeline
from outrider.monitor.worker.replay import InProcess
from outrider.monitor.worker.stages.work import Timings
from tests.end_to_end.service import CHECKS, write_project
from tests.soak import examples

from .workbench import workbench

Answers = Mapping[str, Any]


def records(said: Sequence[Mapping[str, Any]], **columns: Any) -> Batch:
    """Records of which production said these outputs; ``columns`` are known from others."""
    rows = [{"id": f"r{n}", "inputs": {"x": n}, "outputs": dict(one)} for n, one in enumerate(said)]
    batch = Batch.from_records(rows, model="m")
    nothing = {
        f"outputs.{n}": pa.nulls(len(said), k) for n, k in columns.items() if not batch.has(f"outputs.{n}")
    }
    return batch.with_columns(nothing)


def column(judged: JudgedRecords, name: str) -> list[Any]:
    """Values of ``outputs.<name>`` as single records show them; ``-`` where there is no such column."""
    found: list[Any] = ["-"] * judged.rows
    for part in judged.parts:
        rows = range(judged.rows) if part.rows is None else part.rows.tolist()
        if part.batch.has(f"outputs.{name}"):
            for row, value in zip(rows, part.batch.arrow(f"outputs.{name}").to_pylist(), strict=True):
                found[row] = value
    return found


def test_production_is_judged_where_it_said_anything_and_the_replica_where_it_said_nothing() -> None:
    batch = records([{"text": "no"}, {}, {"topic": "b"}])
    replica = {"text": np.array(["x", "y", "z"], dtype=object), "topic": np.array(["q"] * 3, dtype=object)}
    judged = JudgedRecords.of(batch, replica)
    assert column(judged, "text") == ["no", "y", None]
    assert column(judged, "topic") == [None, "q", "b"]
    assert judged.batch.arrow("outputs.text").to_pylist() == ["no", "y", None]
    assert judged.batch.by_replica.tolist() == [False, True, False]
    answers = judged.batch.answers("champion")
    assert answers is not None
    assert answers.arrow("outputs.text").to_pylist() == ["x", "y", "z"]
    assert [part.batch.by_replica.tolist() for part in judged.parts] == [[False, False], [True]]
    for part in judged.parts:
        said = part.batch.answers("champion")
        assert said is not None
        assert said.arrow("outputs.text").to_pylist() == [["x", "y", "z"][n] for n in part.rows]  # type: ignore[union-attr]


def test_a_block_without_the_target_is_judged_as_production_answered() -> None:
    judged = JudgedRecords.of(
        records([{"text": "no"}]), {"text": np.array(["yes"]), "topic": np.array(["t"])}
    )
    assert column(judged, "text") == ["no"]
    assert column(judged, "topic") == [None]
    assert judged.is_whole


def test_without_a_replica_records_are_judged_as_they_came() -> None:
    batch = records([{"text": "no"}, {}])
    judged = JudgedRecords.of(batch, None)
    assert judged.batch is batch
    assert not judged.batch.by_replica.any()


TENSOR = np.arange(4, dtype=np.float32).reshape(2, 2)
CASES: dict[str, tuple[Any, Any, list[Any]]] = {
    "texts beside class numbers": ("cat", np.array([3, 3]), ["cat", 3]),
    "class numbers beside texts": (3, np.array(["cat", "cat"]), [3, "cat"]),
    "numbers of two kinds": (1, np.array([0.5, 0.5], dtype=np.float32), [1, 0.5]),
    "truth values beside numbers": (1, np.array([False, False]), [1, False]),
    "tensors": ([0.5, 0.5], TENSOR.astype(np.float64), [[0.5, 0.5], [2.0, 3.0]]),
    "tensors of other shapes": ([0.5, 0.5, 0.5], TENSOR, [[0.5, 0.5, 0.5], [2.0, 3.0]]),
    "a number beside tensors": (1.5, TENSOR, [1.5, [2.0, 3.0]]),
}


@pytest.mark.parametrize("name", CASES)
def test_answers_of_other_types_are_judged_as_they_are(name: str) -> None:
    own, replica, expected = CASES[name]
    judged = JudgedRecords.of(records([{"label": own}, {}]), {"label": replica})
    shown = column(judged, "label")
    assert [np.asarray(v).tolist() for v in shown] == expected
    assert judged.batch.rows == 2
    assert judged.texts("outputs.label")[0] is not None
    # What windows hold goes on from block to block, whichever of both comes.
    state = WindowState(Window(rows=3))
    kinds = set()
    blocks: list[list[dict[str, Any]]] = [[{"label": own}, {}], [{"label": own}] * 2, [{}, {}]]
    for said in blocks:
        batch = records(said, label=judged_type(own)).with_columns({"entity": ["e", "e"]})
        whole = JudgedRecords.of(batch, {"label": replica}).batch
        kinds.add(whole.arrow("outputs.label").type)
        state.update(whole)
        assert state.entities == 1
    assert len(kinds) == 1
    assert state.rows == 2  # no record ended the entity


def judged_type(own: Any) -> pa.DataType:
    return records([{"label": own}]).arrow("outputs.label").type


def test_lists_keep_the_fields_of_both() -> None:
    replica = np.empty(2, dtype=object)
    replica[:] = [[{"x": 1.5, "k": "a"}], [{"x": 2.5, "k": "b"}]]
    judged = JudgedRecords.of(records([{"boxes": [{"x": 1}]}, {}]), {"boxes": replica})
    assert column(judged, "boxes") == [[{"x": 1}], [{"k": "b", "x": 2.5}]]
    assert [len(value) for value in judged.batch.arrow("outputs.boxes").to_pylist()] == [1, 1]


# ---- the stream ------------------------------------------------------------------------------------------


@assertion
def reads_label(batch: Batch) -> Any:
    """Severity from the label and who said it, as a single record shows it."""
    if not batch.has("outputs.label"):
        return np.zeros(batch.rows)
    values = batch.arrow("outputs.label").to_pylist()
    score = batch.column("outputs.score", null=0.0) if batch.has("outputs.score") else np.zeros(batch.rows)
    kinds = [3.0 if isinstance(v, str) else 2.0 if v is not None else 1.0 for v in values]
    return np.array(kinds) + 0.25 * batch.by_replica + 10 * np.asarray(score, dtype=np.float64)


@assertion
def differs(batch: Batch) -> Any:
    """The replica would say something else."""
    answers = batch.answers("champion")
    assert answers is not None
    own = batch.arrow("outputs.label").to_pylist() if batch.has("outputs.label") else [None] * batch.rows
    return [a != b for a, b in zip(own, answers.arrow("outputs.label").to_pylist(), strict=True)]


@assertion(window=Window(rows=3, idle_s=1e6))
def changes(batch: Batch) -> Findings:
    """The label is not that of the record before."""
    at = [
        row
        for row, before in enumerate(batch.previous_rows().tolist())
        if before >= 0
        and batch.is_new[row]
        and str(batch.arrow("outputs.label")[row]) != str(batch.arrow("outputs.label")[before])
    ]
    return Findings(np.array(at, dtype=np.int64), np.where(batch.by_replica[at], 2.0, 1.0))


CHECKED: Sequence[Assertion] = (reads_label, differs, changes)


def flags(parts: Sequence[tuple[Batch, Answers | None]]) -> set[tuple[Any, ...]]:
    """(record, assertion, version, severity) of a stream of blocks."""
    pipeline = Pipeline(
        "m", ModelSettings(target="label"), HostSettings(), host=InProcess("m", CHECKED), seed=1
    )
    found: set[tuple[Any, ...]] = set()
    for seq, (batch, outputs) in enumerate(parts, start=1):
        unit = Unit("m", seq, seq, seq * 1_000_000, batch, np.full(batch.rows, seq), np.arange(batch.rows))
        judged = pipeline.judged(CHAMPION, batch, outputs, {})
        assert judged is not None
        effects = Effects("m", CHAMPION, seq)
        place = RecordLocations.of(
            unit, batch, np.arange(batch.rows), pipeline.versions(CHAMPION, judged.batch, "7")
        )
        pipeline.check(effects, judged, place, "7", timings=Timings())
        assert not effects.strikes
        found |= {*effects.flags.select("record_id", "assertion", "version", "severity")}
    return found


said_by_production = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "label": st.sampled_from(["a", "b"]),
            "score": st.sampled_from([0.5, 0.25]),
            "note": st.just("n"),
        },
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(30))
@given(
    said=said_by_production,
    cuts=st.sets(st.integers(1, 11)),
    replica_is=st.sampled_from(["numbers", "texts"]),
    versioned=st.booleans(),
)
def test_verdicts_do_not_depend_on_how_the_stream_is_cut(
    said: list[dict[str, Any]], cuts: set[int], replica_is: str, versioned: bool
) -> None:
    known = {"label": pa.string(), "score": pa.float64(), "note": pa.string()}
    whole = records(said, **known).with_columns({"entity": [f"e{n % 2}" for n in range(len(said))]})
    if versioned:
        whole = whole.with_columns({"version": ["3"] * len(said)})
    labels = np.array([n % 3 for n in range(len(said))])
    replica = {
        "label": labels
        if replica_is == "numbers"
        else np.array([["a", "b", "c"][n] for n in labels], dtype=object),
        "score": np.full(len(said), 0.125, dtype=np.float32),
        "own": labels,
    }
    edges = [0, *sorted(cut for cut in cuts if cut < len(said)), len(said)]
    parts: list[tuple[Batch, Answers | None]] = [
        (whole.slice(a, b - a), {n: v[a:b] for n, v in replica.items()}) for a, b in pairwise(edges)
    ]
    together = flags([(whole, replica)])
    assert flags(parts) == together
    # Records judged one by one see the same, whatever else came before.
    alone = {
        flag
        for n, one in enumerate(said)
        for flag in flags(
            [
                (
                    records([one]).with_columns({"id": [f"r{n}"], "version": ["3" if versioned else None]}),
                    {name: v[n : n + 1] for name, v in replica.items()},
                )
            ]
        )
        if flag[1] != "changes"
    }
    assert alone == {flag for flag in together if flag[1] != "changes"}
    versions = {flag[0]: flag[2] for flag in together}
    for n, one in enumerate(said):
        if f"r{n}" in versions:
            assert versions[f"r{n}"] == ("3" if one and versioned else "7")


# ---- the service's own parts -----------------------------------------------------------------------------

REPLICA = """

@assertion
def of_replica(batch):
    return batch.by_replica


@assertion
def differs(batch):
    return batch.column("outputs.label", null=-1) != batch.answers("champion").column("outputs.label")
"""


def test_a_record_says_who_answered_and_a_claimed_version_is_not_what_was_judged(tmp_path: Path) -> None:
    with workbench(write_project(tmp_path, checks=CHECKS + REPLICA)) as bench:
        bench.feed(
            [
                {"id": "own", "inputs": {"x": 0.95}, "version": "5", "outputs": {"label": 0, "score": 0.9}},
                {"id": "other", "inputs": {"x": 0.95}, "version": "5", "outputs": {"note": "busy"}},
                {"id": "mirrored", "inputs": {"x": 0.95}, "version": "5"},
            ]
        )
        bench.work()
        assert bench.flags("too_high") == {"own", "other", "mirrored"}
        assert bench.flags("of_replica") == {"mirrored"}
        assert bench.flags("differs") == {"own", "other"}
        judged = dict(bench.rows("SELECT record_id, version FROM flag WHERE assertion = 'too_high'"))
        assert judged == {"own": "5", "other": "5", "mirrored": "1"}
        found = bench.rows("SELECT id, predicted, by_replica FROM record ORDER BY id")
        assert found == [("mirrored", "1", 1), ("other", None, 0), ("own", "0", 0)]


def test_refusals_of_production_are_found_before_and_after_a_record_with_the_target() -> None:
    refusal = llm.refusal()
    replica = {"answer": np.array(["Gladly."], dtype=object), "topic": np.array(["other"], dtype=object)}
    for known in ({}, {"topic": pa.string()}, {"topic": pa.int64()}):
        batch = records([{"answer": "I'm sorry, but I can't help with that."}], **known)
        batch = batch.with_columns({"inputs.prompt": ["Where is my order?"]})
        (part,) = JudgedRecords.of(batch, replica).parts
        assert refusal.findings(part.batch).row.tolist() == [0]
