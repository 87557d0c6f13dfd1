"""Any order of sides, repeats, refused commits, restarts and pauses gives each side to exactly one record."""

import itertools
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.monitor.intake.request_parts import HalfPart
from tests.monitor.joining_bench import SECOND, WAIT_S, Bench, half
from tests.soak import examples

Side = Literal["request", "response"]
Arrival = tuple[str, Side]
FIELDS: dict[Side, str] = {"request": "inputs", "response": "outputs"}

groups = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(sorted(FIELDS))), min_size=1, max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), groups),
        st.tuples(st.just("refused"), groups),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([1, 29, 31])),
    ),
    max_size=10,  # shorter than what was done is remembered
)


@dataclass
class Expected:
    """The rule in plain words: one dictionary per id, no columns, no journal."""

    waiting: dict[str, dict[Side, tuple[int, int]]] = field(default_factory=dict)
    done: dict[str, set[Side]] = field(default_factory=dict)
    records: list[tuple[str, int | None, int | None, bool]] = field(default_factory=list)

    def arrive(self, id_: str, side: Side, value: int, now: int) -> None:
        if id_ in self.done:
            if side not in self.done[id_]:
                self.done[id_].add(side)
                self.write(f"{id_}:{side}", {side: value}, partial=True)
            return
        sides = self.waiting.setdefault(id_, {})
        if side not in sides:
            sides[side] = value, now + int(WAIT_S * SECOND)
        if len(sides) == 2:
            self.close(id_, partial=False)

    def pass_time(self, now: int) -> None:
        for id_, sides in list(self.waiting.items()):
            if min(due for _, due in sides.values()) <= now:
                self.close(id_, partial=True)

    def close(self, id_: str, *, partial: bool) -> None:
        sides = self.waiting.pop(id_)
        self.done[id_] = set(sides)
        self.write(id_, {side: value for side, (value, _) in sides.items()}, partial=partial)

    def write(self, id_: str, values: dict[Side, int], *, partial: bool) -> None:
        self.records.append((id_, values.get("request"), values.get("response"), partial))


def parts(group: list[tuple[Arrival, int]]) -> list[HalfPart]:
    """Neighbours of one side travel in one part, as in one request."""
    made = []
    for side, members in itertools.groupby(group, key=lambda one: one[0][1]):
        rows = [{"id": id_, FIELDS[side]: {"v": value}} for (id_, _), value in members]
        made.append(half(side, rows))
    return made


def run(bench: Bench, script: list[tuple[str, Any]], expected: Expected, path: Path) -> Bench:
    numbers = itertools.count()
    for what, group in script:
        if what == "restart":
            bench.close()
            bench = Bench(path, now_s=bench.now_us / SECOND)
        elif what == "wait":
            bench.wait(group)
            expected.pass_time(bench.now_us)
        else:
            members = [(arrival, next(numbers)) for arrival in group]
            if what == "refused":
                bench.joiner.join(bench.halves(*parts(members)), bench.now_us)
                continue
            bench.send(*parts(members))
            for (id_, side), value in members:
                expected.arrive(id_, side, value, bench.now_us)
    bench.wait(WAIT_S)
    expected.pass_time(bench.now_us)
    return bench


@given(steps)
@settings(max_examples=examples(60))
def test_each_side_is_in_exactly_one_record(script: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        expected = Expected()
        bench = run(Bench(path), script, expected, path)
        records = [
            (
                record["id"],
                record.get("inputs", {}).get("v"),
                record.get("outputs", {}).get("v"),
                bool(record.get("partial")),
            )
            for record in bench.records()
        ]
        assert sorted(records, key=repr) == sorted(expected.records, key=repr)
        sides = {(id_, side) for what, group in script if what == "send" for id_, side in group}
        held = [
            (id_[0], side)
            for id_, x, y, _ in records
            for side, v in (("request", x), ("response", y))
            if v is not None
        ]
        assert sorted(held) == sorted(sides)
        assert bench.journal.due_halves(2**63 - 1) == []
        bench.close()
