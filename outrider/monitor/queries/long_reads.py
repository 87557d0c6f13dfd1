"""Long reads in processes of their own, one of a kind at a time."""

import json
import threading
from collections.abc import Sequence
from typing import Any

from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.process.helper import HelperError, ask_helper


class LongReads:
    """Reads of one kind: ``python -m module`` writes JSON; ``busy`` answers who asks while another
    runs, ``failed`` begins the answer where there is none."""

    def __init__(self, module: str, *, busy: str, failed: str, limit_s: float) -> None:
        self._module, self._busy, self._failed, self._limit_s = module, busy, failed, limit_s
        self._lock = threading.Lock()

    def ask(self, arguments: Sequence[str]) -> Any:
        if not self._lock.acquire(blocking=False):
            raise ProblemError(problem(409, self._busy))
        try:
            return json.loads(ask_helper(self._module, arguments, limit_s=self._limit_s))
        except HelperError as error:
            raise ProblemError(problem(503, f"{self._failed}: {error}")) from error
        finally:
            self._lock.release()
