"""Whatever is asked, loaded and unloaded, in whatever order: each answer comes once, as if asked alone."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.monitor.engine.asks import AskAnswer, Priority, again_of
from outrider.monitor.engine.engine import Engine
from outrider.monitor.engine.executor import Executor, LoadedVersion
from outrider.monitor.engine.plan import executors_of
from tests.monitor.engine.exact import SOURCE, Sums, ask, drain, together
from tests.soak import examples

FACTORS = {"1": 1.0, "2": 2.0, "3": 3.0}
PLANS: dict[str, Callable[..., list[Executor]]] = {
    "alone": executors_of,
    "trunk": together(False),
    "adapters": together(True),
}


@dataclass(frozen=True, slots=True)
class Asked:
    rows: list[list[int]]
    versions: list[str]
    priority: Priority
    again: float


@dataclass(frozen=True, slots=True)
class Swap:
    version: str
    is_load: bool


records = st.lists(
    st.lists(st.sampled_from([1, 1, 1, 2, 3, 66, 55]), min_size=1, max_size=20), min_size=1, max_size=12
)
asks = st.builds(
    Asked,
    rows=records,
    versions=st.lists(st.sampled_from(sorted(FACTORS)), min_size=1, max_size=3, unique=True),
    priority=st.sampled_from(Priority),
    again=st.sampled_from([0.0, 0.3, 1.0]),
)
swaps = st.builds(Swap, st.sampled_from(sorted(FACTORS)), is_load=st.booleans())
actions = st.lists(st.one_of(asks, swaps, st.just("step")), min_size=1, max_size=14)


def padded(rows: list[list[int]]) -> np.ndarray:
    table = np.zeros((len(rows), 20))
    for at, row in enumerate(rows):
        table[at, : len(row)] = row
    return table


def load(engine: Engine, version: str, *, is_ragged: bool) -> None:
    engine.add(LoadedVersion(("m", version), SOURCE, Sums(FACTORS[version], is_ragged=is_ragged)))


def is_hopeless(rows: list[list[int]]) -> bool:
    bad = sum(bool({55, 66} & set(row)) for row in rows)
    return bad > min(len(rows) // 2, 16) or bad == len(rows)


def check(answer: AskAnswer, rows: list[list[int]], version: str, asked: list[list[int]]) -> None:
    """As every record alone is answered: poison where it raises, else its own value."""
    bad = [at for at, row in enumerate(rows) if {55, 66} & set(row)]
    if answer.outputs is None:
        assert is_hopeless(rows) or is_hopeless(asked), answer.failure
        return
    assert [record.row for record in answer.poison] == bad
    for at, row in enumerate(rows):
        if at not in bad:
            assert answer.outputs["value"][at] == FACTORS[version] * sum(row)


@settings(max_examples=examples(60))
@given(
    actions=actions,
    plan=st.sampled_from(sorted(PLANS)),
    is_ragged=st.booleans(),
    batch_rows=st.integers(1, 16),
)
def test_every_ask_is_answered_once_and_as_if_it_were_alone(
    actions: list[Asked | Swap | str], plan: str, is_ragged: bool, batch_rows: int
) -> None:
    engine = Engine(batch_rows=batch_rows, plan=PLANS[plan])
    for version in FACTORS:
        load(engine, version, is_ragged=is_ragged)
    expected: dict[tuple[int, str], tuple[list[list[int]], str, list[list[int]]] | None] = {}
    answers: list[AskAnswer] = []
    for number, action in enumerate(actions):
        if isinstance(action, Asked):
            for version in action.versions:
                is_known = ("m", version) in engine.names
                expected[number, version] = (action.rows, version, action.rows) if is_known else None
            rows = action.rows
            again = [at for at in range(len(rows)) if (at * 0.618) % 1.0 < action.again]
            for version in action.versions if again else []:
                known = expected[number, version]
                twice = ([rows[at] for at in again], version, rows)
                expected[number, again_of(version)] = None if known is None else twice
            given_rows = padded(rows)
            engine.submit(ask(number, given_rows, *action.versions, priority=action.priority, again=again))
        elif isinstance(action, Swap) and action.is_load:
            load(engine, action.version, is_ragged=is_ragged)
        elif isinstance(action, Swap):
            engine.unload(("m", action.version))
        else:
            answers += engine.step()
    answers += drain(engine)
    assert sorted((answer.number, answer.version) for answer in answers) == sorted(expected)
    for answer in answers:
        known = expected[answer.number, answer.version]
        if known is None:
            assert answer.failure.startswith("not_loaded")
        else:
            check(answer, *known)
    assert engine.waiting == engine.waiting_rows == 0
