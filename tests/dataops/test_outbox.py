import json

import pytest
from sqlalchemy import Engine

from outrider.dataops import outbox
from outrider.dataops.outbox import BACKOFF_S, WebhookTarget, backoff_s, claim, enqueue
from outrider.dataops.state.database import write

SECOND = 1_000_000


def test_every_target_that_wants_an_event_gets_its_own_message(engine: Engine) -> None:
    wants = {"http://a": ("model.promoted",), "http://b": ("gate.refused",), "http://c": outbox.EVENTS}
    targets = [WebhookTarget(url, events) for url, events in wants.items()]
    with write(engine) as connection:
        ids = enqueue(connection, "model.promoted", {"model": "m"}, targets=targets, now_us=SECOND)
        due = outbox.due_urls(connection, now_us=SECOND)
        messages = [message for url in due if (message := claim(connection, url, now_us=SECOND))]
    assert sorted(ids) == sorted(message.id for message in messages)
    assert {message.url for message in messages} == {"http://a", "http://c"}
    assert all(message.id.startswith("msg_") for message in messages)
    assert json.loads(messages[0].payload) == {
        "type": "model.promoted",
        "timestamp": "1970-01-01T00:00:01Z",
        "data": {"model": "m"},
    }


def test_a_message_is_due_again_after_each_backoff_until_delivered(engine: Engine) -> None:
    with write(engine) as connection:
        enqueue(
            connection, "model.promoted", {}, targets=[WebhookTarget("http://a", outbox.EVENTS)], now_us=0
        )
    now, ids = 0, set()
    for wait in (*BACKOFF_S, BACKOFF_S[-1]):
        with write(engine) as connection:
            message = claim(connection, "http://a", now_us=now)
            assert message is not None
            assert claim(connection, "http://a", now_us=now) is None
            assert claim(connection, "http://a", now_us=now + wait * SECOND - 1) is None
            outbox.failed(connection, message.id, "503")
        ids.add(message.id)
        now += wait * SECOND
    assert len(ids) == 1
    with write(engine) as connection:
        message = claim(connection, "http://a", now_us=now)
        assert message is not None
        outbox.delivered(connection, message.id, now_us=now)
        assert outbox.due_urls(connection, now_us=2**62) == []
        assert claim(connection, "http://a", now_us=now * 2) is None


def test_an_event_of_a_rolled_back_transaction_does_not_exist(engine: Engine) -> None:
    def crash() -> None:
        with write(engine) as connection:
            enqueue(
                connection, "model.promoted", {}, targets=[WebhookTarget("http://a", outbox.EVENTS)], now_us=0
            )
            raise RuntimeError

    with pytest.raises(RuntimeError):
        crash()
    with engine.connect() as connection:
        assert outbox.due_urls(connection, now_us=2**62) == []


def test_backoff_grows_and_ends_at_ten_hours() -> None:
    waits = [backoff_s(attempts) for attempts in range(1, 20)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (1, 36_000)


def test_unknown_events_are_refused(engine: Engine) -> None:
    with write(engine) as connection, pytest.raises(ValueError, match=r"model\.exploded"):
        enqueue(connection, "model.exploded", {}, targets=[], now_us=0)
