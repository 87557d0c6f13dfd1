"""Promotions without a verdict or a named override, in random events with kills.

The gate, people with and without reasons, rollbacks and changed statuses act on one database. Transactions
are broken off at random statements; in the second part the process that makes the events is killed again and
again. Afterwards the history of champions is held against verdicts and statuses.
"""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event, func, select

from benchmarks.figure import Figure
from outrider.dataops.improvement.promotion import promote_for
from outrider.dataops.improvement.verdicts import keep_verdict
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.models.champion_history import list_changes
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state import migrations
from outrider.dataops.state.database import open_database, write
from outrider.dataops.state.improvement_tables import ChampionChange, GateVerdict, ModelVersion
from outrider.dataops.state.tables import table_of
from outrider.errors import OutriderError

EVENTS = 100_000
KILLS = 40
BREAKS = 0.05
"""Share of the transactions that are broken off."""
VERSIONS = 12
"""Versions that are under way at a time."""
CHANGES = 200_000
TARGETS = (WebhookTarget("http://receiver.example", ("model.promoted", "model.rolled_back")),)
SOURCE = Source("function", "model.py:predict").to_json()
OUTCOMES = (
    {"passed": True, "undecided": False},
    {"passed": False, "undecided": False},
    {"passed": False, "undecided": True},
)


class BrokenOffError(Exception):
    """Transaction broken off between two statements."""


class RandomEvents:
    """Events of gate and people on one model."""

    def __init__(self, engine: Engine, objects: LocalObjects, seed: int) -> None:
        self.engine = engine
        self.draw = random.Random(seed)
        self._left: int | None = None
        self.broken = 0
        event.listen(engine, "before_cursor_execute", self._break)
        with write(engine) as connection:
            models.register_initial(
                connection,
                objects,
                model="m",
                version="0",
                content=b"0",
                is_weights=True,
                now_us=self.now,
                source=SOURCE,
            )
            self.made = int(models.next_version(connection, "m"))

    @property
    def now(self) -> int:
        """Time in microseconds, which now and then goes back."""
        return time.time_ns() // 1000 + self.draw.choice((0, 0, 0, -86_400_000_000))

    def step(self) -> None:
        """One event; a broken one leaves nothing."""
        act = self.draw.choices(
            (self.register, self.judge, self.promote, self.roll_back, self.set_status), (3, 4, 4, 2, 1)
        )[0]
        self._left = self.draw.randrange(1, 8) if self.draw.random() < BREAKS else None
        try:
            with write(self.engine) as connection:
                act(connection)
        except OutriderError:
            pass
        except BrokenOffError:
            self.broken += 1
        finally:
            self._left = None

    def register(self, connection: Connection) -> None:
        """A challenger comes."""
        version = str(self.made)
        self.made += 1
        models.register(
            connection, model="m", version=version, status="challenger", digest="", weights=None,
            now_us=self.now, source=SOURCE,
        )  # fmt: skip

    def judge(self, connection: Connection) -> None:
        """The gate concludes as it does for a job: verdict and promotion at once."""
        champion, candidate = models.champion(connection, "m"), self.version()
        found = models.get(connection, "m", candidate)
        if champion is None or found.status != "challenger":
            return
        outcome = self.draw.choice(OUTCOMES)
        promotes = bool(outcome["passed"]) and self.draw.random() < 0.5
        verdict = keep_verdict(
            connection, model="m", candidate=candidate, champion=champion.version, promoted=promotes,
            reasons=["all of it"], evidence=outcome, now_us=self.now,
        )  # fmt: skip
        if promotes:
            models.promote(
                connection, "m", candidate, now_us=self.now, reason="passed", by="gate", verdict=verdict,
                targets=TARGETS,
            )  # fmt: skip
        elif outcome == {"passed": False}:
            models.set_status(connection, "m", candidate, "refused", now_us=self.now)

    def promote(self, connection: Connection) -> None:
        """Somebody asks for a promotion, with or without force and reason."""
        promote_for(
            connection, "m", self.version(), by=self.draw.choice(("ann", "bob")),
            reason=self.draw.choice(("", " ", "seen")), is_forced=self.draw.random() < 0.2, now_us=self.now,
            targets=TARGETS,
        )  # fmt: skip

    def roll_back(self, connection: Connection) -> None:
        """Somebody asks for a rollback."""
        to = self.version() if self.draw.random() < 0.5 else None
        models.rollback(connection, "m", to=to, now_us=self.now, reason="worse", by="ann", targets=TARGETS)

    def set_status(self, connection: Connection) -> None:
        """A status changes for another reason."""
        status = self.draw.choice(("retired", "failed", "refused", "challenger"))
        models.set_status(connection, "m", self.version(), status, now_us=self.now)

    def version(self) -> str:
        """One of the newest versions, one that is not there among them."""
        return str(self.draw.randrange(max(self.made - VERSIONS, 0), self.made + 1))

    def _break(self, *_: Any) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise BrokenOffError


def faults(engine: Engine) -> list[str]:
    """Changes that had neither verdict nor override, and champions that the history does not know."""
    verdict, version, change = table_of(GateVerdict), table_of(ModelVersion), table_of(ChampionChange)
    with engine.connect() as connection:
        told = {row.id: row for row in connection.execute(select(verdict))}
        is_champion = version.c.status == "champion"
        champions = list(connection.scalars(select(version.c.version).where(is_champion)))
        assert connection.scalar(select(func.count()).select_from(change)) <= CHANGES  # type: ignore[operator]
        history = list_changes(connection, "m", limit=CHANGES)[::-1]
    found = [] if len(champions) == 1 else [f"{len(champions)} champions"]
    if champions != [history[-1].version]:
        found.append(f"{champions} is champion, {history[-1].version} by the history")
    seen: set[str] = set()
    before = None
    for row in history:
        passed = told.get(row.verdict or "")
        is_told = passed is not None and (passed.candidate, passed.champion) == (row.version, row.replaced)
        is_due = {
            "registered": before is None,
            "promoted": row.version in seen or (is_told and passed.evidence.get("passed")),  # type: ignore[union-attr]
            "overridden": bool(row.by and row.reason.strip()),
            "rolled_back": row.version in seen,
        }[row.action]
        if not is_due or row.replaced != before:
            found.append(str(row))
        seen.add(row.version)
        before = row.version
    return found


@contextlib.contextmanager
def fresh_folder() -> Iterator[Path]:
    """Folder with an empty database."""
    folder = Path(tempfile.mkdtemp())
    try:
        engine = open_database(f"sqlite:///{folder / 'state.db'}")
        migrations.upgrade(engine)
        engine.dispose()
        yield folder
    finally:
        shutil.rmtree(folder)


def opened(folder: Path, seed: int) -> RandomEvents:
    """Events on the database of a folder."""
    return RandomEvents(open_database(f"sqlite:///{folder / 'state.db'}"), LocalObjects(folder), seed)


def broken_off(events: int = EVENTS) -> tuple[int, int]:
    """Faults after random events, and how many of these were broken off."""
    with fresh_folder() as folder:
        made = opened(folder, seed=0)
        for number in range(events):
            made.step()
            if number % 10_000 == 0 and sys.stderr.isatty():
                print(f"{number:,} of {events:,} events", file=sys.stderr)
        found = faults(made.engine)
        made.engine.dispose()
        return len(found), made.broken


def _go_on(folder: Path, seed: int) -> None:
    made = opened(folder, seed)
    while True:
        made.step()


def killed(kills: int = KILLS) -> int:
    """Faults after a process of random events was killed so often."""
    context = multiprocessing.get_context("spawn")
    draw = random.Random(0)
    with fresh_folder() as folder:
        found = 0
        for seed in range(kills):
            process = context.Process(target=_go_on, args=(folder, seed), daemon=True)
            process.start()
            engine = open_database(f"sqlite:///{folder / 'state.db'}")
            reached = _changes(engine) + draw.randrange(1, 20)
            until = time.monotonic() + 60
            while _changes(engine) < reached and time.monotonic() < until:
                time.sleep(0.002)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            found += len(faults(engine))
            engine.dispose()
        return found


def _changes(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(table_of(ChampionChange))) or 0)


if __name__ == "__main__":
    wrong, broken = broken_off()
    Figure.of_share(
        "improvement.promotions.held", EVENTS - wrong, EVENTS,
        "share of events after which every champion has its verdict, its time before, or a named override",
        target=1.0, data=f"seed 0; {broken:,} transactions broken off, clocks that go back a day",
    ).show()  # fmt: skip
    Figure.of_share(
        "improvement.promotions.held_through_kills", KILLS - min(killed(), KILLS), KILLS,
        "share of kills after which that holds", target=1.0,
        data="SIGKILL among random events, seeds 0 to 39",
    ).show()  # fmt: skip
