from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Engine

from outrider.dataops.alarms.incidents import IncidentBook
from outrider.dataops.journal.journal import Journal
from outrider.dataops.state.clock import present_us
from outrider.monitor.settings.config import Settings
from outrider.monitor.stream.units import Backlog

from .inference import InferenceClient
from .metrics import WorkerMetrics
from .objectives import Objectives
from .pipeline import CHAMPION, Pipeline
from .shadow_versions import ShadowVersions


@dataclass(frozen=True, slots=True)
class WorkerContext:
    settings: Settings
    engine: Engine
    journal: Journal
    metrics: WorkerMetrics
    objectives: Objectives
    inference: InferenceClient
    versions: Mapping[str, ShadowVersions]
    pipelines: Mapping[str, Pipeline]
    incidents: Mapping[str, IncidentBook]
    cursors: dict[tuple[str, str], int] = field(default_factory=dict)
    challengers: dict[str, list[str]] = field(default_factory=dict)
    _backlogs: dict[tuple[str, str], Backlog] = field(default_factory=dict)

    def waiting_records(self, model: str, slot: str = CHAMPION) -> int:
        cursor = self.cursors[model, slot]
        if (model, slot) not in self._backlogs:
            self._backlogs[model, slot] = Backlog(self.journal, model, cursor)
        return self._backlogs[model, slot].records(cursor)

    def present_us(self, seq: int, received_us: int) -> int:
        """Receive time of a block by the present clock."""
        return present_us(self.journal.steps(), seq, received_us)
