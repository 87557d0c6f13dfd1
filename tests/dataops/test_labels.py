from sqlalchemy import Engine, insert

from outrider.assertions.selection import Policy
from outrider.dataops import labels, tables
from outrider.dataops.database import write


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
            insert(tables.Label), [row | {"label": {"label": 1}, "ts_us": 0, "received_us": 0}]
        )


def request(
    engine: Engine, budget: int, policy: Policy = "uniform", *, since_us: int | None = None
) -> list[str]:
    with write(engine) as connection:
        found = labels.request_labels(
            connection, model="m", budget=budget, policy=policy, seed=0, now_us=1, since_us=since_us
        )
    return [item.record_id for item in found]


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


def test_one_record_per_entity_over_all_rounds(engine: Engine) -> None:
    for name in "abc":
        add(engine, name, entity="card")
    assert len(request(engine, 9)) == 1
    assert request(engine, 9) == []


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
