"""Labels given on pages, taken like sent ones."""

import asyncio
import json
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

from outrider.errors import JournalFull
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.intake.decode import Decoder
from outrider.monitor.intake.group_commit import GroupCommit, QueueFull, WriterUnavailable
from outrider.monitor.settings.config import Settings

SOURCE = "page"


@dataclass(frozen=True, slots=True)
class PageLabels:
    _settings: Settings
    _decoder: Decoder
    _writer: GroupCommit

    def field(self, model: str) -> str:
        return self._settings.models[model].target

    def classes(self, model: str) -> tuple[int | str, ...]:
        return self._settings.models[model].classes if model in self._settings.models else ()

    def new_key(self) -> str:
        return uuid4().hex

    def give(self, model: str, record_id: str, value: Any, *, form: str) -> None:
        """Make a label durable, or raise a ProblemError; the same label of a form is stored once."""
        label = {"model": model, "id": record_id, "label": {self.field(model): value}, "source": SOURCE}
        if form:
            said = json.dumps([form, record_id, value])
            label["key"] = sha256(said.encode()).hexdigest()[:32]
        body = json.dumps(label).encode()
        parts, rejected = self._decoder.read(body, kind="labels", form="json", model=None)
        decoded = self._decoder.build(
            parts, rejected, kind="labels", received_us=time.time_ns() // 1000, halves=()
        )
        if decoded.rejected:
            why = decoded.rejected.listed[0]
            status = 410 if why.is_erased else 422
            raise ProblemError(problem(status, f"{why.field}: {why.reason}", field=why.field))
        try:
            asyncio.run(self._writer.submit(decoded.blocks, len(body)))
        except (QueueFull, WriterUnavailable, JournalFull) as error:
            status = 507 if isinstance(error, JournalFull) else 503
            raise ProblemError(problem(status, f"{error}; nothing was stored: send it again")) from None
