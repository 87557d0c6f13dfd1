"""Context of the trainer's jobs."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Engine

from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.payloads.objects import ObjectStore
from outrider.errors import ConfigError, OutriderError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings


class Stopping(OutriderError):  # noqa: N818 - reads as the state it is
    ...


@dataclass(frozen=True, slots=True)
class JobContext:
    settings: Settings
    engine: Engine
    objects: ObjectStore
    journal: BlockSource
    targets: Sequence[WebhookTarget] = ()
    stop: threading.Event = field(default_factory=threading.Event)
    poll_s: float = 0.2
    has_unread: Callable[[str, int], bool] = lambda _model, _seq: False
    newest: Callable[[], int] = lambda: 0
    holds: Callable[[str, int, int], bool] = lambda _model, _after, _until: False

    def model(self, name: str) -> ModelSettings:
        if name not in self.settings.models:
            known = ", ".join(self.settings.models) or "none"
            raise ConfigError(f"no model {name!r} in the configuration; there are {known}")
        return self.settings.models[name]

    @property
    def service(self) -> str:
        try:
            noted = json.loads((self.settings.data_folder / "run" / "server.json").read_text("utf-8"))
            return str(noted["url"])
        except (OSError, ValueError, KeyError):
            return f"http://{self.settings.server.host}:{self.settings.server.port}"

    def check_stop(self) -> None:
        if self.stop.is_set():
            raise Stopping("the trainer was asked to end")
