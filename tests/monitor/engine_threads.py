"""Engines in threads: production's loops over production's socket pairs, without processes of their own."""

import contextlib
import socket
import threading
from collections.abc import Sequence

from sqlalchemy import Engine

from outrider.dataops.payloads.objects import LocalObjects
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.events import EngineEvent
from outrider.monitor.engine.groups import EngineGroups
from outrider.monitor.engine.launch import Launch
from outrider.monitor.engine.metrics import EngineMetrics
from outrider.monitor.engine.process import EngineProcess
from outrider.monitor.settings.config import Settings

ENDS_S = 10.0


class EngineThread:
    """Serves its end of the pair until that closes; a model that hangs holds it up for ever."""

    def __init__(self, launch: Launch, sock: socket.socket) -> None:
        self._sock = sock.dup()
        options = DeviceOptions.from_json(launch.options)
        self._engine = EngineProcess(
            self._sock, folder=launch.folder, options=options, batch_rows=launch.batch_rows,
            board=launch.board,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, daemon=True, name="engine")
        self._thread.start()

    @property
    def pid(self) -> None:
        """It cannot be killed."""

    def kill(self) -> None:
        """Close its end; it ends behind the pass that runs."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(ENDS_S)

    def exit_text(self) -> str:
        """How it ended."""
        return "its thread ended"

    def is_shot(self) -> bool:
        """It cannot be killed."""
        return False

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError):  # the other end is gone
                self._engine.run()
        finally:
            self._sock.close()


class EngineThreads(EngineGroups):
    """Engines whose events are all there at once: how long they took is then no part of what a test sees."""

    def __init__(
        self, settings: Settings, engine: Engine, objects: LocalObjects, metrics: EngineMetrics
    ) -> None:
        super().__init__(settings, engine, objects, metrics, start=EngineThread)

    def events(self) -> Sequence[EngineEvent]:
        """What has come when everything is loaded and answered."""
        found = [*super().events()]
        while any(c.waiting_rows or (c.names and not c.is_up) for c in self.clients.values()):
            self.wait(0.1)
            found += super().events()
        return found
