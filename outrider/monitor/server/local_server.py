"""Server in a thread of this process, with bounded connections."""

import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn

from outrider.monitor.http.limits import ASGIApp
from outrider.monitor.settings.sections import ConnectionSettings

from .connections import Connections, connections_that_fit


class LocalServer:
    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._listener.getsockname()[1]}"
        limits = ConnectionSettings()
        connections = Connections(limits, total=connections_that_fit(limits.total))
        config = uvicorn.Config(
            app,
            http=connections.protocol(),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            interface="asgi3",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, name="local server", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
