"""A withdrawn label counts nowhere, and neither do those that it takes back."""

import pytest
from sqlalchemy import Engine, insert, select, text

from outrider.dataops.flags.quality import labelled_records
from outrider.dataops.labels import queue
from outrider.dataops.labels.estimates import newest_labels, requested_errors
from outrider.dataops.labels.withdrawn import decides
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write

from .test_flagged import add_label, add_record

LABEL = tables.table_of(improvement_tables.Label)


@pytest.fixture
def told(engine: Engine) -> Engine:
    """Record a is labelled, b's label is withdrawn, c's withdrawn and given again, d's is noted beside."""
    requests = [
        {"model": "m", "record_id": name, "policy": "random", "reason": "", "probability": 0.5, "round": 1}
        | {"created_us": 1, "population": 4, "floor": 1.0}
        for name in "abcd"
    ]
    for row, name in enumerate("abcd"):
        add_record(engine, 1, row, name)
        add_label(engine, 10 + row, name, 1)
    add_label(engine, 20, "b", None)
    add_label(engine, 21, "c", None)
    add_label(engine, 22, "c", 0)
    with write(engine) as connection:
        connection.execute(text("UPDATE record SET predicted = '0'"))
        note = {"seq": 23, "row": 0, "model": "m", "record_id": "d", "source": "human", "value": None}
        connection.execute(insert(LABEL), [note | {"label": {"note": "dark"}, "ts_us": 0, "received_us": 0}])
        connection.execute(insert(improvement_tables.LabelRequest), requests)
    return engine


def test_decides_values_and_withdrawals_not_notes(told: Engine) -> None:
    with told.connect() as connection:
        found = connection.scalars(select(LABEL.c.seq).where(~decides(LABEL))).all()
    assert found == [23]


def test_the_queue_waits_for_a_record_whose_label_was_withdrawn(told: Engine) -> None:
    add_record(told, 2, 0, "e")  # nobody was asked about it; it was labelled, and the label withdrawn
    add_label(told, 30, "e", 1)
    with told.connect() as connection:
        one = queue.choose_labels(connection, model="m", budget=9, policy="random", seed=0, now_us=2).requests
    assert one == []
    add_label(told, 31, "e", None)
    with told.connect() as connection:
        still = {row.record_id for row in queue.list_requests(connection, status="open")}
        done = {row.record_id for row in queue.list_requests(connection, status="labelled")}
        waiting = queue.count_waiting(connection)
        choice = queue.choose_labels(connection, model="m", budget=9, policy="random", seed=0, now_us=2)
    assert (still, done, waiting) == ({"b"}, {"a", "c", "d"}, {"m": 1})
    assert [request.record_id for request in choice.requests] == ["e"]


def test_estimates_and_quality_pass_over_withdrawn_labels(told: Engine) -> None:
    with told.connect() as connection:
        newest = newest_labels(connection, "m", after=0, until=1, limit=100)
        errors = requested_errors(connection, "m")
        wrong = {one.id: one.wrong for one in labelled_records(connection, "m").records}
    assert newest == {1: {"a": "1", "c": "0", "d": "1"}}
    assert errors == {(1, "a"): True, (1, "c"): False, (1, "d"): True}
    assert wrong == {"a": True, "c": False, "d": True}
