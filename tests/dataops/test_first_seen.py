"""First records of versions, prompts and clients are events once; what is invented is none."""

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import Engine

from outrider.assertions import Batch
from outrider.dataops.alarms.model_events import model_events, nearest_event
from outrider.dataops.ledger.first_seen import (
    LEAST_ENTITIES,
    MOST_OF_A_DAY,
    SeenNames,
    note_configuration,
    note_first_seen,
)
from outrider.dataops.ledger.minutes import DAY_US, MINUTE_US
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.state.database import write

START_US = 1_790_000_000_000_000 - 1_790_000_000_000_000 % DAY_US


def batch(prompt: list[str | None], entities: list[str] | None = None) -> Batch:
    columns: dict[str, pa.Array] = {
        "id": pa.array([f"r{at}" for at in range(len(prompt))]),
        "attrs.prompt_version": pa.array(prompt, pa.string()),
    }
    if entities is not None:
        columns["entity"] = pa.array(entities)
    return Batch.from_columns(columns, model="m")


def names(seen: SeenNames, one: Batch, at_us: int = START_US) -> list[str]:
    return [row[2] for row in seen.stated(one, received_us=at_us)]


def test_a_prompt_is_seen_once_ten_entities_have_had_it() -> None:
    seen = SeenNames()
    assert names(seen, batch(["p1"] * 9 + [None])) == []
    alone = batch(["p2"] * 50, ["one"] * 50)
    assert names(seen, alone) == []
    assert names(seen, batch(["p1"] * 20, [f"e{at}" for at in range(20)])) == ["p1"]
    assert names(seen, batch(["p1"] * 20)) == []


@pytest.mark.costly("needs as many records as a promise is about")
def test_prompts_without_end_are_few_events(engine: Engine) -> None:
    seen = SeenNames()
    once = batch([f"request-{at}" for at in range(5000)])
    assert names(seen, once) == []
    often = batch([f"p{at // LEAST_ENTITIES}" for at in range(1000)])
    found = seen.stated(often, received_us=START_US)
    assert len(found) == MOST_OF_A_DAY
    with write(engine) as connection:
        note_first_seen(connection, found)
    with engine.connect() as connection:
        again = SeenNames.stored(connection, "m")
    assert names(again, often) == []  # behind a restart, too
    assert len(names(again, often, START_US + DAY_US)) == MOST_OF_A_DAY


def test_versions_are_seen_at_their_first_minute() -> None:
    seen, minutes = SeenNames(), START_US + np.arange(5) * MINUTE_US
    rows = seen.versions("m", ["1", None, OTHERS, "2", "1"], minutes)
    assert rows == [("m", "version", "1", START_US), ("m", "version", "2", START_US + 3 * MINUTE_US)]
    assert seen.versions("m", ["2", "1"], minutes[:2]) == []


@pytest.fixture
def noted(engine: Engine) -> Engine:
    with write(engine) as connection:
        hour = 60 * MINUTE_US
        note_first_seen(
            connection,
            [
                ("m", "version", "1", START_US),
                ("m", "version", "2", START_US + hour),
                ("m", "prompt_version", "p1", START_US),
                ("m", "prompt_version", "p2", START_US + 3 * hour),
                ("other", "prompt_version", "p9", START_US + 3 * hour),
            ],
        )
        for digest, at in (("aa", 0), ("aa", 1), ("bb", 5), ("bb", 6)):
            note_configuration(connection, digest, at_us=START_US + at * hour)
    return engine


def test_events_of_a_range_leave_out_what_a_model_began_with(noted: Engine) -> None:
    with noted.connect() as connection:
        found = model_events(connection, "m", since_us=START_US, until_us=START_US + DAY_US)
        assert [(one.kind, one.name) for one in found] == [
            ("version_seen", "2"), ("prompt_version", "p2"), ("reload", "bb"),
        ]  # fmt: skip
        assert found[1].text == "first records of prompt version p2"
        assert model_events(connection, "m", since_us=START_US, until_us=START_US + MINUTE_US) == []


def test_the_nearest_event_is_one_of_them(noted: Engine) -> None:
    with noted.connect() as connection:
        for hours, name in ((1.2, "2"), (2.9, "p2"), (5.5, "bb")):
            onset = START_US + int(hours * 60 * MINUTE_US)
            near = nearest_event(
                connection, "m", since_us=onset - DAY_US, until_us=START_US + DAY_US, onset_us=onset
            )
            assert near is not None
            assert near.name == name
