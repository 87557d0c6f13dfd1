import time
from collections.abc import Callable, Sequence

from outrider.assertions import Batch
from outrider.monitor.engine.asks import Outputs
from outrider.monitor.engine.groups import EngineGroups

from .inference import InferenceClient
from .shadow_versions import ShadowVersions

WAIT_S = 1.0


class AnswersAgain:
    def __init__(self, model: str, engines: EngineGroups, versions: Sequence[str]) -> None:
        self._engines = engines
        self._versions = ShadowVersions(model, engines, clock=time.monotonic)
        self._client = InferenceClient(engines, {model: self._versions})
        self._versions.keep(None, [*versions])

    def outputs(self, version: str, batch: Batch) -> Outputs | None:
        self._wait_until(lambda: self._versions.is_settled(version))
        if not batch.rows or not self._versions.is_asked(version):
            return None
        request = self._client.begin([version], batch)
        self._wait_until(lambda: request.has(version))
        answer = request.answers[version]
        self._versions.answered(version, answer)
        return answer.outputs

    def _wait_until(self, is_there: Callable[[], bool]) -> None:
        self._client.poll_events()
        while not is_there():
            self._engines.wait(WAIT_S)
            self._client.poll_events()
