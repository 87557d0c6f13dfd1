from typing import Any

import numpy as np
import pytest
from sqlalchemy import Engine, column, delete, insert, select, update

from outrider.assertions import Batch
from outrider.assertions.selection import POLICIES, Policy
from outrider.dataops.labels import queue as labels
from outrider.dataops.labels.estimates import read_estimates
from outrider.dataops.state import improvement_tables, tables
from outrider.dataops.state.database import write
from tests.dataops.label_requests import request_labels


def add(
    engine: Engine, name: str, *, entity: str | None = None, severity: float | None = 1.0, ts_us: int = 0
) -> None:
    with write(engine) as connection:
        row = ord(name[0])
        record = {
            "model": "m",
            "id": name,
            "seq": 1,
            "row": row,
            "ts_us": ts_us,
            "digest": 0,
            "entity": entity,
        }
        connection.execute(insert(tables.Record), [record])
        if severity is not None:
            flag = {"id": name, "model": "m", "record_id": name, "assertion": "blurry", "revision": "1"}
            more = {
                "slot": "champion",
                "severity": severity,
                "level": "info",
                "seq": 1,
                "row": row,
                "ts_us": 0,
            }
            connection.execute(insert(tables.Flag), [{**flag, **more}])


def label(engine: Engine, name: str) -> None:
    with write(engine) as connection:
        row = {
            "seq": 9,
            "row": ord(name[0]),
            "model": "m",
            "record_id": name,
            "source": "human",
            "value": "1",
        }
        connection.execute(
            insert(improvement_tables.Label), [row | {"label": {"label": 1}, "ts_us": 0, "received_us": 0}]
        )


def request(
    engine: Engine,
    budget: int,
    policy: Policy = "uniform",
    *,
    since_us: int | None = None,
    audit_share: float = 0.0,
) -> list[str]:
    return [
        item.record_id for item in ask(engine, budget, policy, since_us=since_us, audit_share=audit_share)
    ]


def ask(engine: Engine, budget: int, policy: Policy, **more: Any) -> list[labels.RequestedLabel]:
    with write(engine) as connection:
        return request_labels(connection, model="m", budget=budget, policy=policy, seed=0, now_us=1, **more)


def test_flagged_unlabelled_records_are_asked_for_once(engine: Engine) -> None:
    for name in "abcd":
        add(engine, name)
    add(engine, "e", severity=None)
    label(engine, "a")
    first = request(engine, 2)
    assert len(first) == 2
    assert set(first) <= {"b", "c", "d"}
    assert set(first) | set(request(engine, 9)) == {"b", "c", "d"}
    assert request(engine, 9) == []


def test_one_record_of_an_entity_and_ten_minutes_in_each_round(engine: Engine) -> None:
    for number, name in enumerate("abcdef"):
        add(engine, name, entity="card", ts_us=(number // 3) * 600_000_000)
    first = request(engine, 9)
    assert [name in "abc" for name in sorted(first)] == [True, False]
    assert len(request(engine, 9)) == 2
    assert len(request(engine, 9)) == 2
    assert request(engine, 9) == []


def test_the_stretch_of_near_duplicates_is_a_setting(engine: Engine) -> None:
    for number, name in enumerate("abcdef"):
        add(engine, name, entity="card", ts_us=number * 10_000_000)
    assert len(ask(engine, 9, "uniform", audit_share=0.0, group_s=60.0)) == 1
    assert len(ask(engine, 9, "uniform", audit_share=0.0, group_s=10.0)) == 5


def test_a_round_fills_its_budget_from_what_its_policy_leaves(engine: Engine) -> None:
    for name in "abcdefgh":
        add(engine, name, entity="card", severity=1.0 if name < "c" else None)
    found = ask(engine, 6, "uniform", audit_share=0.1)
    assert len(found) == 6
    at = next(number for number, item in enumerate(found) if not item.is_audit)
    assert all(item.is_audit for item in found[at + 1 :])
    assert [item.probability * item.population for item in found[at + 1 :]] == pytest.approx([1.0] * (5 - at))
    assert len(ask(engine, 6, "uniform", audit_share=0.1)) == 2
    assert ask(engine, 6, "uniform", audit_share=0.1) == []


def test_random_asks_for_unflagged_records_too(engine: Engine) -> None:
    add(engine, "a", severity=None)
    assert request(engine, 9) == []
    assert request(engine, 9, "random") == ["a"]


def test_uncertainty_takes_the_most_severe_first(engine: Engine) -> None:
    for name, severity in (("a", 0.2), ("b", 0.9), ("c", 0.5)):
        add(engine, name, severity=severity)
    assert request(engine, 2, "uncertainty") == ["b", "c"]


def test_since_leaves_older_records_out(engine: Engine) -> None:
    add(engine, "a", ts_us=5)
    add(engine, "b", ts_us=10)
    assert request(engine, 9, since_us=10) == ["b"]


def test_requests_are_open_until_a_label_comes(engine: Engine) -> None:
    for name in "ab":
        add(engine, name)
    request(engine, 2)
    label(engine, "b")
    with engine.connect() as connection:
        open_ones = labels.list_requests(connection, model="m", status="open")
        done = labels.list_requests(connection, model="m", status="labelled")
        assert len(labels.list_requests(connection)) == 2
    assert [item.record_id for item in open_ones] == ["a"]
    assert [(item.record_id, item.reason, item.is_labelled) for item in done] == [("b", "blurry", True)]


def answer(engine: Engine, **outputs: Any) -> None:
    """The champion's stored answers to records a, b, c, d in block 1."""
    batch = Batch.from_columns(
        {"id": np.array(list("abcd"), dtype=object), **{f"outputs.{k}": v for k, v in outputs.items()}},
        model="m",
    )
    with write(engine) as connection:
        version = {"model": "m", "version": "1", "status": "champion", "created_us": 0, "changed_us": 0}
        connection.execute(
            insert(improvement_tables.ModelVersion), [version | {"digest": "", "note": "", "source": "{}"}]
        )
        stored = {"model": "m", "version": "1", "seq": 1, "payload": batch.to_ipc()}
        connection.execute(insert(tables.Answer), [stored])


@pytest.mark.parametrize(
    "outputs",
    [
        {"margin": np.array([0.9, 0.1, 0.5, 0.8])},
        {"score": np.array([0.9, 0.4, 0.5, 0.8])},
        {"probs": np.array([[0.9, 0.1], [0.5, 0.5], [0.4, 0.6], [0.2, 0.8]])},
    ],
)
def test_uncertainty_reads_what_the_model_answered(engine: Engine, outputs: dict[str, Any]) -> None:
    for name in "abcd":
        add(engine, name, severity=None)
    answer(engine, **outputs)
    found = ask(engine, 2, "uncertainty", audit_share=0.0)
    assert [(item.record_id, item.reason) for item in found] == [("b", "uncertainty"), ("c", "uncertainty")]


def test_a_policy_that_lacks_what_it_needs_says_what_it_did_instead(engine: Engine) -> None:
    for name in "abcd":
        add(engine, name)
    assert (
        ask(engine, 1, "badge", audit_share=0.0)[0].reason == "random: not every record has outputs.embedding"
    )
    assert ask(engine, 1, "uncertainty", audit_share=0.0)[0].reason.startswith("severity: no outputs.margin")
    answer(engine, margin=np.array([0.9, 0.1, 0.5, 0.8]))
    found = ask(engine, 1, "badge", audit_share=0.0)[0]
    assert found.reason == "uncertainty: not every record has outputs.embedding"


def test_badge_uses_embeddings_that_the_model_emits(engine: Engine) -> None:
    for name in "abcd":
        add(engine, name, severity=None)
    probs = np.full((4, 2), 0.5)
    answer(engine, probs=probs, embedding=np.array([[9.0, 0], [9.0, 0], [0, 9.0], [0, 9.0]]))
    found = ask(engine, 2, "badge", audit_share=0.0)
    assert {item.record_id in "ab" for item in found} == {True, False}
    assert {item.reason for item in found} == {"badge"}


@pytest.mark.parametrize("policy", POLICIES)
def test_an_audit_is_drawn_from_all_records_and_every_pick_has_its_probability(
    engine: Engine, policy: Policy
) -> None:
    for number in range(60):
        add(engine, chr(65 + number), entity=f"e{number % 50}", severity=1.0 if number < 40 else None)
    found = ask(engine, 20, policy, audit_share=0.5)
    assert [item.position for item in found] == list(range(20))
    assert [item.population for item in found] == list(range(60, 40, -1))
    audits = [item for item in found if item.is_audit]
    assert len(audits) == 10
    assert {item.reason for item in audits} == {"audit"}
    assert all(0 < item.probability <= 1 for item in found)
    with engine.connect() as connection:
        stored = labels.list_requests(connection)
    assert {item.record_id: item for item in stored} == {item.record_id: item for item in found}


def count(engine: Engine, **counters: int) -> None:
    with write(engine) as connection:
        connection.execute(delete(tables.Counter))
        rows = [{"model": "m", "slot": "champion", "name": n, "value": v} for n, v in counters.items()]
        connection.execute(insert(tables.Counter), rows)


def test_bal_follows_the_assertion_whose_fires_fell(engine: Engine) -> None:
    for name in "abcdefgh":
        add(engine, name)
        with write(engine) as connection:
            connection.execute(
                update(tables.Flag)
                .where(column("record_id") == name)
                .values(assertion=f"on {name in 'abcd'}")
            )
    count(engine, records=100, **{"flags:on True": 50, "flags:on False": 50})
    request(engine, 1, "bal")
    with engine.connect() as connection:
        [seen] = connection.execute(select(tables.table_of(improvement_tables.LabelRound))).all()
    assert (seen.records, seen.fires, seen.policy) == (100, {"on True": 50, "on False": 50}, "bal")
    # Of 200 records more the one fires on half as before, the other on as many: r = 0 and 0.5.
    count(engine, records=300, **{"flags:on True": 150, "flags:on False": 100})
    reasons = [item.reason for item in ask(engine, 4, "bal", audit_share=0.0)]
    assert reasons.count("on False") >= 2
    probabilities = [item.probability for item in ask(engine, 1, "bal", audit_share=0.0)]
    assert probabilities[0] > 0


def test_a_choice_that_was_overtaken_is_not_written(engine: Engine) -> None:
    for name in "abcd":
        add(engine, name)
    wanted: dict[str, Any] = {"model": "m", "budget": 1, "policy": "uniform", "seed": 0, "now_us": 1}
    with engine.connect() as connection:
        choice = labels.choose_labels(connection, **wanted)
    request(engine, 1)
    with write(engine) as connection:
        assert not labels.queue_labels(connection, choice)
        assert labels.queue_labels(connection, labels.choose_labels(connection, **wanted))
        assert len(labels.list_requests(connection)) == 2


def test_estimates_weigh_chosen_labels_back_to_the_traffic(engine: Engine) -> None:
    names = [chr(0x4E00 + number) for number in range(300)]
    for number, name in enumerate(names):
        add(engine, name, severity=1.0 if number < 30 else None)
    with write(engine) as connection:  # every flagged record is wrong, one in ten of the others
        table = tables.table_of(tables.Record)
        for number, name in enumerate(names):
            wrong = number < 30 or number % 10 == 0
            connection.execute(table.update().where(table.c.id == name).values(predicted=str(int(not wrong))))
    for _ in range(3):
        for name in request(engine, 40, "adaptive", audit_share=0.3):
            label(engine, name)
    with engine.connect() as connection:
        found = read_estimates(connection, "m")
    truth = 1 - (30 + 27) / 300
    assert found.accuracy.low <= truth <= found.accuracy.high
    assert found.accuracy.high - found.accuracy.low < 0.4
    assert found.precision["blurry"].value == 1.0
    with engine.connect() as connection:
        assert read_estimates(connection, "other").accuracy.method == "none"
