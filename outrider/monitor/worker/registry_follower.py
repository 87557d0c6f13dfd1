"""Registry follower: versions, slots, pauses and suspensions in the stream.

Suspensions by people hold for every slot, those by strikes for one.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from outrider.dataops.flags.registered_assertions import Suspension, suspensions
from outrider.dataops.improvement import shadow_tests
from outrider.dataops.improvement.retirement import retire
from outrider.dataops.ledger import commit as ledger
from outrider.dataops.ledger.backfill import SLOT as BACKFILL
from outrider.dataops.ledger.checkpoints import forget_windows
from outrider.dataops.ledger.commit import Effects
from outrider.dataops.ledger.cursors import cursor
from outrider.dataops.ledger.stated_values import VERSION
from outrider.dataops.models.registry import get, names_of_versions, versions_in_service
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.disabled_versions import Why, leave_out, take_back
from outrider.dataops.state.pauses import Paused, list_pauses
from outrider.monitor.registry.registration import Registration

from .context import WorkerContext
from .metrics import role_of
from .pipeline import CHAMPION, Pipeline
from .shadow_versions import ENDED_UNTIL_RETIRED


class SuspensionFollower:
    def __init__(self, pipelines: Mapping[str, Pipeline]) -> None:
        self._pipelines = pipelines
        self._by_hand: dict[str, dict[str, int]] = {name: {} for name in pipelines}

    def follow(self, connection: Connection) -> None:
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


class RegistryFollower:
    def __init__(self, context: WorkerContext, registration: Registration) -> None:
        self.paused = Paused()
        self._context = context
        self._registration = registration
        self._suspensions = SuspensionFollower(context.pipelines)
        self._disabled: dict[str, dict[Why, dict[str, str]]] = {name: {} for name in context.pipelines}
        """Versions that are not asked or owe answers, as stored."""

    def is_registered(self, model: str) -> bool:
        """True where any version of a model is known; until then its records wait in the journal."""
        return model not in self._registration.unregistered

    def read(self) -> None:
        """Read suspensions, pauses and wanted versions; load new versions and drop unwanted ones."""
        self._registration.update()
        with self._context.engine.connect() as connection:
            self._suspensions.follow(connection)
            found = versions_in_service(connection)
            registered = names_of_versions(connection)
            self.paused = Paused.of(list_pauses(connection))
            over = shadow_tests.over(connection)
        for name, versions in self._context.versions.items():
            self._context.pipelines[name].stated.book(VERSION).declare(registered.get(name, ()))
            here = [row for row in found if row.model == name]
            champion = next((row.version for row in here if row.status == "champion"), None)
            challengers = [row.version for row in here if row.status != "champion"]
            versions.keep(champion, sorted(v for v in challengers if (name, v) not in over))

    def update_slots(self) -> list[tuple[str, str]]:
        """Open cursors of new challengers and close removed slots, which are returned."""
        closed = []
        for name, pipeline in self._context.pipelines.items():
            slots = [CHAMPION, *self._context.versions[name].challengers]
            for slot in slots:
                if (name, slot) not in self._context.cursors:
                    self._context.cursors[name, slot] = self._open_cursor(name, slot)
            gone = [slot for slot in pipeline.slots if role_of(slot) == "challenger" and slot not in slots]
            for slot in gone:
                del pipeline.slots[slot]
                self._context.cursors.pop((name, slot), None)
            if gone:
                self.forget_windows(name)
            closed += [(name, slot) for slot in gone]
            self._context.challengers[name] = slots[1:] if self.is_registered(name) else []
        return closed

    def follow_champions(self) -> list[str]:
        """Move incidents to the champions; returns the models with a new one."""
        incidents, swapped = self._context.incidents, []
        for name, versions in self._context.versions.items():
            if incidents[name].version != versions.champion:
                incidents[name].version = versions.champion
                swapped.append(name)
        return swapped

    def forget_windows(self, model: str) -> None:
        slots = [CHAMPION, *self._context.versions[model].challengers, BACKFILL]
        with write(self._context.engine) as connection:
            forget_windows(connection, model, keep=slots)

    def retire_ended(self) -> None:
        for name, versions in self._context.versions.items():
            while versions.to_retire:
                version, reason = versions.to_retire.popitem()
                why = f"it held up or ended its process {ENDED_UNTIL_RETIRED} times: {reason}"
                with write(self._context.engine) as connection:
                    if get(connection, name, version).status == "challenger":
                        retire(connection, name, version, why=why, now_us=now_us())
                        self._context.incidents[name].retired(connection, version, why, now_us=now_us())

    def note_disabled(self) -> None:
        for name, versions in self._context.versions.items():
            found: dict[Why, dict[str, str]] = {
                "left_out": {**versions.failures},
                "owing": {**versions.owing},
            }
            if self._disabled[name] == found:
                continue
            with write(self._context.engine) as connection:
                take_back(connection, name)
                for why, reasons in found.items():
                    for version, detail in sorted(reasons.items()):
                        leave_out(connection, name, version, detail, now_us=now_us(), why=why)
            self._disabled[name] = found

    def _open_cursor(self, model: str, slot: str) -> int:
        """Committed cursor of a slot; a new challenger starts at the champion's."""
        with write(self._context.engine) as connection:
            at = cursor(connection, model, slot)
            if not at and slot != CHAMPION:
                at = self._context.cursors[model, CHAMPION]
                if at:
                    ledger.apply(connection, Effects(model, slot, at))
            return at
