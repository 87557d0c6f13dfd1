"""Watches over new champions, followed: evidence, proposals, rollbacks.

A thread of the trainer. Evidence is made anew from what is stored, so it goes on where it was after a
restart, and labels that were corrected, withdrawn or erased count as they stand.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from outrider.assertions.comparison.looks import thin
from outrider.dataops.flags.shadow_flags import common_records
from outrider.dataops.improvement import watches
from outrider.dataops.improvement.paired_labels import labelled_pairs
from outrider.dataops.improvement.watch_evidence import (
    WatchLook,
    flags_sentence,
    labels_sentence,
    look_at_flags,
    look_at_labels,
)
from outrider.dataops.improvement.watches import BY_WATCH, WatchRow
from outrider.dataops.labels.estimates import newest_label
from outrider.dataops.ledger.cursors import judged_by_both
from outrider.dataops.models import registry as models
from outrider.dataops.outbox import enqueue
from outrider.dataops.state.database import now_us, write
from outrider.dataops.state.disabled_versions import left_out
from outrider.monitor.settings.model_sections import ModelSettings

from .context import JobContext

log = logging.getLogger(__name__)
REST_BY_COST = 10.0
"""Pause before evidence is renewed, as a multiple of its cost: it reads all records of the watch."""


class Watches:
    def __init__(
        self, context: JobContext, *, now: Callable[[], int] = now_us, rest_by_cost: float = REST_BY_COST
    ) -> None:
        self._context = context
        self._now = now
        self._rest_by_cost = rest_by_cost
        self._seen: dict[tuple[str, int], tuple[int, int]] = {}
        self._rests: dict[tuple[str, int], float] = {}

    def look(self) -> None:
        with self._context.engine.connect() as connection:
            running = watches.running(connection)
        keys = {(watch.model, watch.began_us) for watch in running}
        for kept in (self._seen, self._rests):
            for ended in kept.keys() - keys:
                del kept[ended]
        for watch in running:
            if watch.model not in self._context.settings.models:
                continue
            try:
                self._follow(watch)
            except OperationalError:
                raise
            except Exception:  # one model must not hold up the watches of others
                log.exception("%s: the watch over version %s", watch.model, watch.version)

    def _follow(self, watch: WatchRow) -> None:
        settings, key = self._context.model(watch.model), (watch.model, watch.began_us)
        with self._context.engine.connect() as connection:
            champion = models.champion(connection, watch.model)
        if champion is None or champion.version != watch.version:
            self._close(watch)
            return
        is_over = self._now() >= watch.began_us + int(settings.watch.hours * 3.6e9)
        began = time.monotonic()
        if began < self._rests.get(key, 0.0) and not is_over:
            return
        with self._context.engine.connect() as connection:
            until = watch.until_seq
            if until is None:
                until = judged_by_both(connection, watch.model, watch.former)
            records = watches.answered_records(connection, watch, until=until)
            newest = newest_label(connection, watch.model, after=watch.after_seq)
        if is_over or self._seen.get(key) != (records, newest):
            self._judge(watch, settings, until=until, records=records)
            self._seen[key] = records, newest
        self._rests[key] = began + (1 + self._rest_by_cost) * (time.monotonic() - began)
        if is_over:
            self._end(watch)
        elif watch.until_seq is None and records >= settings.watch.records:
            with write(self._context.engine) as connection:
                watches.retire(connection, watch, now_us=self._now(), until_seq=until)

    def _close(self, watch: WatchRow) -> None:
        with write(self._context.engine) as connection:
            champion = models.champion(connection, watch.model)
            version = None if champion is None else champion.version
            if version != watch.version:
                watches.close(connection, watch, champion=version, now_us=self._now())

    def _judge(self, watch: WatchRow, settings: ModelSettings, *, until: int, records: int) -> None:
        """Renew and keep the evidence; propose or roll back where it proves the champion worse."""
        with self._context.engine.connect() as connection:
            findings, is_proven = gather(connection, watch, settings, until=until)
        with write(self._context.engine) as connection:
            champion = models.champion(connection, watch.model)
            is_due = is_proven and champion is not None and champion.version == watch.version
            if champion is not None and is_due and settings.watch.auto_rollback:
                findings["held_back"] = self._obstacle(connection, watch, replaced=champion.replaced)
            is_running = watches.save(connection, watch, findings, records=records)
            if is_due and is_running:
                self._act(connection, watch, findings)

    def _obstacle(self, connection: Connection, watch: WatchRow, *, replaced: str | None) -> str:
        """Obstacle to an automatic rollback; empty for none."""
        former = models.get(connection, watch.model, watch.former)
        if replaced != watch.former:
            return f"version {watch.version} replaced version {replaced}"
        if (why := left_out(connection, watch.model).get(watch.former)) is not None:
            return f"version {watch.former} is disabled: {why}"
        if models.lost_objects(self._context.objects, former):
            return f"the weights of version {watch.former} are lost"
        return ""

    def _act(self, connection: Connection, watch: WatchRow, findings: dict[str, Any]) -> None:
        """Propose a rollback once, or do it where opted in and unobstructed."""
        now, held_back = self._now(), findings.get("held_back")
        rolls_back = held_back == ""
        data: dict[str, object] = {"model": watch.model, "version": watch.version, "former": watch.former}
        data |= {"reasons": findings["proven"], "records": findings["records"], "rolls_back": rolls_back}
        data |= {"held_back": held_back or None}
        targets = self._context.targets
        if watches.propose(connection, watch, now_us=now):
            enqueue(connection, "rollback.proposed", data, targets=targets, now_us=now)
            log.warning("%s: version %s is worse: %s", watch.model, watch.version, findings["proven"][0])
        if rolls_back:
            reason = f"the watch over version {watch.version}: {findings['proven'][0]}"
            models.rollback(
                connection,
                watch.model,
                to=watch.former,
                by=BY_WATCH,
                now_us=now,
                reason=reason,
                targets=targets,
            )
            watches.end(connection, watch, "rolled_back", findings | {"by": BY_WATCH}, now_us=now)

    def _end(self, watch: WatchRow) -> None:
        with write(self._context.engine) as connection:
            for found in watches.running(connection, watch.model):
                if found.began_us == watch.began_us:
                    outcome = "kept" if found.proposed_us is None else "proposed"
                    watches.end(connection, found, outcome, found.findings, now_us=self._now())


def gather(
    connection: Connection, watch: WatchRow, settings: ModelSettings, *, until: int
) -> tuple[dict[str, Any], bool]:
    pair = watch.model, watch.version, watch.former
    error = settings.watch.error
    flags = look_at_flags(common_records(connection, *pair, after=watch.after_seq, until=until), error=error)
    pairs = labelled_pairs(connection, *pair, after=watch.after_seq, until=until, target=settings.target)
    labels = look_at_labels(pairs, error=error)
    told = {
        "flags": flags_sentence(watch.version, watch.former, flags),
        "labels": labels_sentence(watch.version, watch.former, labels, is_numeric=pairs.is_numeric),
    }
    looks = {"flags": flags, "labels": labels}
    findings = {
        "records": flags.records,
        "labelled": labels.records,
        "left_out": dict(pairs.left_out),
        "sentences": told,
        "proven": [told[name] for name, look in looks.items() if look.is_proven],
    }
    for name, look in looks.items():
        findings[name] = asdict(look)
        findings[f"{name}_looks"] = _series(watch.findings.get(f"{name}_looks", []), look)
    return findings, bool(findings["proven"])


def _series(before: list[dict[str, Any]], look: WatchLook) -> list[dict[str, Any]]:
    found = list(before)
    if look.records and (not found or found[-1]["records"] != look.records):
        found.append({"records": look.records, "value": look.difference, "low": look.low, "high": look.high})
        thin(found)
    return found
