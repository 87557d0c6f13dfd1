from types import SimpleNamespace

from sqlalchemy import Engine, text

from outrider.dataops.flags.registered_assertions import register_offered
from outrider.dataops.state.database import write


def test_register_offered_takes_other_words_of_a_known_revision(engine: Engine) -> None:
    for description, owner in (("Too high.", ""), ("Beyond what a sensor shows.", "ann")):
        offered = SimpleNamespace(
            name="high", revision="rev", kind="assertion", level="warning", description=description,
            owner=owner, window=None, definition="",
        )  # fmt: skip
        with write(engine) as connection:
            register_offered(connection, "m", [offered], first_seq=0, now_us=1)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT description, owner, active FROM assertion")).all()
    assert [tuple(row) for row in rows] == [("Beyond what a sensor shows.", "ann", 1)]
