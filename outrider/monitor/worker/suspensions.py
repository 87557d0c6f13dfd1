"""Suspensions of assertions: made by people for every slot, by strikes for the slot where they fell."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Engine

from outrider.dataops.journal.journal import Journal

from .pipeline import CHAMPION, Pipeline
from .registered_assertions import Suspension, newest_strikes, suspensions

RESTORED_STRIKES = 1000
"""Latest failures read after a restart: far more than suspensions let happen in one strike window."""


class SuspensionFollower:
    """Suspensions by people, as the slots of all models have taken them over."""

    def __init__(self, pipelines: Mapping[str, Pipeline]) -> None:
        self._pipelines = pipelines
        self._by_hand: dict[str, dict[str, int]] = {name: {} for name in pipelines}

    def follow(self, connection: Connection) -> None:
        """Take over what people suspended and resumed."""
        found = suspensions(connection)
        for name, pipeline in self._pipelines.items():
            self._follow(pipeline, [one for one in found if one.model == name])

    def _follow(self, pipeline: Pipeline, found: Sequence[Suspension]) -> None:
        pipeline.slots[CHAMPION].suspended = {one.assertion: one.until_us for one in found}
        by_hand = {one.assertion: one.until_us for one in found if one.reason}
        lifted = self._by_hand[pipeline.name].keys() - by_hand.keys()
        for slot in pipeline.slots.keys() - {CHAMPION}:
            state = pipeline.slots[slot]
            kept = {name: until for name, until in state.suspended.items() if name not in lifted}
            state.suspended = kept | by_hand
        self._by_hand[pipeline.name] = by_hand


def restore_strikes(engine: Engine, journal: Journal, pipeline: Pipeline) -> None:
    """Go on counting the champion's strikes, and keep suspended what was."""
    steps = journal.steps()
    since = steps[-1].seq if steps else -1  # times before a step say nothing behind it
    with engine.connect() as connection:
        strikes = newest_strikes(connection, pipeline.name, after_seq=since, limit=RESTORED_STRIKES)
        suspended = {one.assertion: one.until_us for one in suspensions(connection, pipeline.name)}
    pipeline.restore_strikes(strikes, suspended)
