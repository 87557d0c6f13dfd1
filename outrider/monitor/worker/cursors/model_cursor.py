"""Parts that the champion's and the challengers' cursors of one model share."""

from dataclasses import dataclass

from outrider.monitor.worker.backfill import Backfills
from outrider.monitor.worker.commits import Commits
from outrider.monitor.worker.context import WorkerContext

from .co_scheduling import CoScheduler


@dataclass(eq=False)
class ModelCursor:
    _model: str
    _context: WorkerContext
    _scheduler: CoScheduler
    _commits: Commits
    _backfills: Backfills

    def __post_init__(self) -> None:
        self._pipeline = self._context.pipelines[self._model]
        self._versions = self._context.versions[self._model]
