"""Streaming = batch: any split of a stream and any restart in it give the flags of one check of all of it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from outrider.assertions import Batch, Checker, Findings, Flags, Group, WeakLabels, Window, assertion
from tests.soak import examples

START = datetime(2026, 1, 5, tzinfo=UTC)


@assertion
def negative(batch: Batch) -> Any:
    return np.maximum(0, -batch.column("outputs.label"))


@assertion(per_record=True)
def three(record: Any) -> Any:
    return record["outputs.label"] == 3


@assertion(window=Window(rows=3, idle_s=3.0, columns=("outputs.label",)))
def flicker(view: Batch) -> Any:
    """The label was gone for one record."""
    label = view.column("outputs.label")
    before, then = view.previous("outputs.label", null=-9), view.previous("outputs.label", 2, null=-9)
    return (then == label) & (before != label) & (before != -9)


@assertion(window=Window(seconds=2.0, idle_s=4.0, lateness_s=1.0))
def corrected(view: Batch) -> Findings:
    """Like ``Consistency``: a label that both neighbours speak against, corrected; and lonely records."""
    label, entity, id_ = view.column("outputs.label"), view.column("entity"), view.keys
    middle, first = view.previous_rows(1), view.previous_rows(2)
    blip = view.is_new & (first >= 0) & (label[middle] != label) & (label[first] == label)
    rows = np.flatnonzero(blip)
    short = np.flatnonzero(view.is_last & (middle < 0))
    count = len(rows)
    return Findings(
        np.concatenate([rows, short]),
        np.concatenate([np.abs(label[rows] - label[middle[rows]]), np.ones(len(short))]).astype(float),
        subject=[f"{entity[row]}/{label[row]}" for row in rows] + [f"short/{id_[row]}" for row in short],
        members=[np.array([first[r], middle[r], r]) for r in rows] + [np.array([r]) for r in short],
        evidence=[{"was": int(label[middle[row]])} for row in rows] + [None] * len(short),
        weak_labels=WeakLabels(
            row=middle[rows],
            finding=np.arange(count),
            kind=["replace"] * count,
            field=["outputs.label"] * count,
            element=np.full(count, -1),
            value=[int(label[row]) for row in rows],
            confidence=np.full(count, 2 / 3),
        ),
    )


@assertion(window=Group(by="attrs.frame", wait_s=2.0))
def crowded(view: Batch) -> Any:
    """Another record of the frame has the same label."""
    fired = np.zeros(view.rows, bool)
    label = view.column("outputs.label")
    for _, rows in view.groups("attrs.frame"):
        values, counts = np.unique(label[rows], return_counts=True)
        fired[rows] = np.isin(label[rows], values[counts > 1])
    return fired


CHECKER = Checker([negative, three, flicker, corrected, crowded])


@dataclass
class Told:
    """What flags say, whatever the order in which they came."""

    flags: set[tuple[Any, ...]] = field(default_factory=set)
    weak: set[tuple[Any, ...]] = field(default_factory=set)

    def add(self, flags: Flags) -> None:
        number = np.arange(flags.batch.rows) if flags.numbers is None else flags.numbers
        subjects, evidence = flags.subject, flags.evidence
        for index, members in enumerate(flags.members):
            found = (
                flags.assertions[flags.code[index]].name,
                subjects[index],
                int(number[flags.row[index]]),
                str(flags.batch.keys[flags.row[index]]),
                float(flags.severity[index]),
                tuple(number[members].tolist()),
                str(evidence[index]),
            )
            assert found not in self.flags
            self.flags.add(found)
        weak = flags.weak_labels
        for index in range(len(weak)):
            flag = int(weak.finding[index])
            correction = (subjects[flag], int(number[weak.row[index]]), weak.kind[index], weak.value[index])
            self.weak.add(correction)


class AnyStream(RuleBasedStateMachine):
    """Feeds a stream in pieces; at the end everything was told once, as one check of it all tells it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, Any]] = []
        self.waiting = 0
        self.now_s = 0.0
        self.stream = CHECKER.stream()
        self.told = Told()

    @initialize()
    def begin(self) -> None:
        self.arrive("a", 0, 0.0, 0.0, "f")

    @rule(
        entity=st.sampled_from(["a", "b", None]),
        label=st.integers(-1, 3),
        ts_s=st.sampled_from([-1.0, -0.5, 0.0, 0.5]),
        after_s=st.sampled_from([0.0, 0.0, 0.5, 1.0, 3.0, 5.0]),
        frame=st.sampled_from(["f", "g", None]),
    )
    def arrive(self, entity: str | None, label: int, ts_s: float, after_s: float, frame: str | None) -> None:
        self.now_s += after_s
        record = {
            "id": f"r{len(self.records)}",
            "entity": entity,
            "ts": START + timedelta(seconds=self.now_s + ts_s),
            "received": START + timedelta(seconds=self.now_s),
            "outputs.label": label,
            "attrs.frame": frame,
        }
        self.records.append(record)

    @rule()
    def arrive_again(self) -> None:
        self.records.append({**self.records[-1], "received": START + timedelta(seconds=self.now_s)})

    @rule()
    def judge(self) -> None:
        rows = len(self.records)
        self.told.add(self.stream.check(self.batch().slice(self.waiting, rows - self.waiting)))
        self.waiting = rows

    @rule(after_s=st.sampled_from([0.5, 1.0, 4.0]))
    def wait(self, after_s: float) -> None:
        self.judge()
        self.now_s += after_s
        self.told.add(self.stream.advance(START + timedelta(seconds=self.now_s)))

    @rule()
    def restart(self) -> None:
        self.judge()
        self.stream = CHECKER.stream(self.stream.checkpoint())

    def batch(self) -> Batch:
        columns: dict[str, Any] = {
            name: [record[name] for record in self.records] for name in self.records[0]
        }
        columns["attrs.frame"] = np.array(columns["attrs.frame"], dtype=object)
        return Batch.from_columns(columns | {"entity": np.array(columns["entity"], dtype=object)}, model="m")

    def teardown(self) -> None:
        if not self.records:
            return
        self.judge()
        self.told.add(self.stream.finish())
        whole = Told()
        whole.add(CHECKER.check(self.batch()))
        assert self.told == whole


TestAnyStream = AnyStream.TestCase
TestAnyStream.settings = settings(max_examples=examples(30), stateful_step_count=15)
