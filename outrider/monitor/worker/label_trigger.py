"""Trigger of labels: evaluated with every commit that has labels or flags."""

import time
from dataclasses import dataclass

from sqlalchemy import Connection

from outrider.dataops.datasets.collect import dataset_of
from outrider.dataops.datasets.label_fates import LabelScope
from outrider.dataops.improvement.firing import settle_labels
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.state.database import now_us
from outrider.monitor.settings.config import Settings

TOLD_AGAIN_S = 10.0
"""An evaluation that says the same again is logged so often."""


@dataclass(slots=True)
class _Told:
    """What the log was last told, when, and the equal evaluations since."""

    what: tuple[str, float | None]
    at: float
    skipped: int = 0


class LabelTrigger:
    """Retrainings started or suggested where enough labels of a model ask for one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._targets = [WebhookTarget(hook.url, hook.events) for hook in settings.webhooks]
        self._told: dict[str, _Told] = {}

    def follow(self, connection: Connection, model: str) -> None:
        """Evaluate in the transaction that commits the labels."""
        own, now = self._settings.models[model], time.monotonic()
        if not own.retrain.enabled:
            return
        told = self._told.get(model)
        known = None if told is None or now - told.at >= TOLD_AGAIN_S else told.what
        found, _ = settle_labels(
            connection,
            LabelScope(model, dataset_of(model), own.retrain.rows, rules=own.rules_digest),
            own.retrain.guards,
            threshold=own.retrain.labelled_flags,
            now_us=now_us(),
            command=own.training_command(model),
            targets=self._targets,
            known=known,
            times=1 + (0 if told is None else told.skipped),
        )
        if told is not None and known == (found.reason, found.score):
            told.skipped += 1
        else:
            self._told[model] = _Told((found.reason, found.score), now)
