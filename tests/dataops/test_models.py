import json

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from outrider.dataops.models import lineage
from outrider.dataops.models import registry as models
from outrider.dataops.models.champion_history import list_changes
from outrider.dataops.models.registry import NotPromotable
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import write
from outrider.errors import NotFound
from tests.model_sources import FUNCTION

HOOK = (WebhookTarget("http://receiver.example", ("model.promoted", "model.rolled_back")),)


@pytest.fixture
def three(engine: Engine, objects: LocalObjects) -> Engine:
    """Version 1 is champion, 2 and 3 are challengers."""
    with write(engine) as connection:
        models.register_initial(
            connection,
            objects,
            model="m",
            version="1",
            content=b"one",
            is_weights=True,
            now_us=1,
            source=FUNCTION,
        )
        for version in ("2", "3"):
            models.register(
                connection,
                model="m",
                version=version,
                status="challenger",
                digest="d",
                weights=objects.put(version.encode()),
                now_us=2,
                made_from=[("model", "m@1", "weights")],
                source=FUNCTION,
            )
    return engine


def statuses(engine: Engine) -> dict[str, str]:
    with engine.connect() as connection:
        return {model.version: model.status for model in models.all_versions(connection, "m")}


def events(engine: Engine) -> list[tuple[str, str]]:
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT event, payload FROM outbox ORDER BY rowid"))
        return [(event, json.loads(payload)["data"]["version"]) for event, payload in rows]


def test_the_configured_version_becomes_champion_once(three: Engine, objects: LocalObjects) -> None:
    with write(three) as connection:
        again = models.register_initial(
            connection,
            objects,
            model="m",
            version="9",
            content=b"nine",
            is_weights=True,
            now_us=5,
            source=FUNCTION,
        )
        assert again.version == "1"
        assert models.weights_bytes(connection, objects, "m", "1") == b"one"
        assert models.next_version(connection, "m") == "4"


def test_a_predictor_function_has_a_digest_and_no_weights(engine: Engine, objects: LocalObjects) -> None:
    with write(engine) as connection:
        found = models.register_initial(
            connection,
            objects,
            model="f",
            version="1",
            content=b"code",
            is_weights=False,
            now_us=1,
            source=FUNCTION,
        )
        assert found.weights is None
        assert len(found.digest) == 64
        with pytest.raises(NotFound, match="no weights of its own: it is a function"):
            models.weights_bytes(connection, objects, "f", "1")


def test_promotion_retires_the_old_champion_and_tells(three: Engine) -> None:
    with write(three) as connection:
        models.promote(connection, "m", "2", now_us=3, reason="better", by="ann", targets=HOOK)
    assert statuses(three) == {"1": "retired", "2": "champion", "3": "challenger"}
    assert events(three) == [("model.promoted", "2")]


def test_rollback_returns_along_the_chain_of_promotions(three: Engine) -> None:
    with write(three) as connection:
        models.promote(connection, "m", "2", now_us=3, reason="better", by="ann")
        models.promote(connection, "m", "3", now_us=4, reason="better still", by="ann")
    for expected in ("2", "1"):
        with write(three) as connection:
            back = models.rollback(connection, "m", now_us=5, reason="worse", by="ann", targets=HOOK)
        assert back.version == expected
    with write(three) as connection, pytest.raises(NotPromotable, match="nothing to roll back to"):
        models.rollback(connection, "m", now_us=6, reason="worse", by="ann")
    assert statuses(three) == {"1": "champion", "2": "retired", "3": "retired"}
    assert events(three) == [("model.rolled_back", "2"), ("model.rolled_back", "1")]


def test_any_former_champion_comes_back_and_no_other(three: Engine) -> None:
    with write(three) as connection:
        models.promote(connection, "m", "2", now_us=3, reason="better", by="gate", verdict="v")
        with pytest.raises(NotPromotable, match=r"m@3 never was champion; former champions: 1"):
            models.rollback(connection, "m", now_us=4, reason="", by="ann", to="3")
        with pytest.raises(NotPromotable, match="is champion already"):
            models.rollback(connection, "m", now_us=4, reason="", by="ann", to="2")
        models.promote(connection, "m", "3", now_us=5, reason="now", by="ann", is_override=True)
        assert models.rollback(connection, "m", now_us=6, reason="worse", by="bob", to="1").version == "1"
        found = list_changes(connection, "m")
        assert list_changes(connection, "m", limit=1, before=found[1].seq) == found[2:3]
    told = [(row.version, row.replaced, row.action, row.by, row.verdict, row.until_us) for row in found]
    assert told == [
        ("1", "3", "rolled_back", "bob", None, None),
        ("3", "2", "overridden", "ann", None, 6),
        ("2", "1", "promoted", "gate", "v", 5),
        ("1", None, "registered", "configuration", None, 3),
    ]


def test_the_history_refuses_changes(three: Engine) -> None:
    for statement in ("DELETE FROM champion_change", "UPDATE champion_change SET version = '9'"):
        with write(three) as connection, pytest.raises(IntegrityError, match="append-only"):
            connection.execute(text(statement))
    with write(three) as connection:  # an erasure takes what quotes a person out of a reason
        assert connection.execute(text("UPDATE champion_change SET reason = ''")).rowcount == 1


def test_a_crash_in_a_promotion_changes_nothing(three: Engine) -> None:
    def crash() -> None:
        with write(three) as connection:
            models.promote(connection, "m", "2", now_us=3, reason="better", by="ann", targets=HOOK)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    assert statuses(three) == {"1": "champion", "2": "challenger", "3": "challenger"}
    assert events(three) == []


def test_there_is_one_champion_and_status_cannot_take_its_place(three: Engine) -> None:
    with write(three) as connection:
        models.set_status(connection, "m", "1", "refused", now_us=3)
        models.set_status(connection, "m", "2", "failed", now_us=3, note="loss was nan")
        with pytest.raises(NotPromotable, match="loss was nan"):
            models.promote(connection, "m", "2", now_us=4, reason="", by="ann")
        with pytest.raises(NotFound, match="no version '7'"):
            models.promote(connection, "m", "7", now_us=4, reason="", by="ann")
    assert list(statuses(three).values()).count("champion") == 1


def test_lineage_of_a_champion_reaches_its_parent(three: Engine) -> None:
    with write(three) as connection:
        models.promote(connection, "m", "2", now_us=3, reason="better", by="ann")
        tree = lineage.trace(connection, "m")
        with pytest.raises(NotFound, match="version '8'"):
            lineage.trace(connection, "m", "8")
    assert (tree["id"], tree["status"]) == ("m@2", "champion")
    parents = [(parent["id"], parent["role"]) for parent in tree["parents"]]
    assert parents == [("m@1", "replaced"), ("m@1", "weights")]
    assert tree["parents"][1]["seen"] is True
