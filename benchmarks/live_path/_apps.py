"""The servers that intake is held against: ``python -m benchmarks.live_path._apps floor|pydantic``."""

import os
import socket
import sys
from datetime import datetime
from typing import Any

import uvicorn


async def floor(scope: Any, receive: Any, send: Any) -> None:
    """Read a body, answer 202."""
    if scope["type"] != "http":
        return
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    status = 202 if scope["method"] == "POST" else 200
    headers = [(b"content-type", b"application/json"), (b"content-length", b"28")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"accepted":1,"rejected":[]}'})


def pydantic() -> Any:
    """FastAPI with the record as a pydantic model."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Record(BaseModel):
        model: str
        id: str | None = None
        ts: datetime | None = None
        version: str | None = None
        entity: str | None = None
        seq: int | None = None
        weight: float = 1.0
        partial: bool = False
        inputs: dict[str, Any] | None = None
        outputs: dict[str, Any] | None = None
        attrs: dict[str, Any] | None = None

    class Accepted(BaseModel):
        accepted: int
        rejected: list[str] = []

    app = FastAPI()

    @app.post("/v1/records", status_code=202)
    async def take(record: Record) -> Accepted:
        return Accepted(accepted=1 if record.inputs else 0)

    return app


def main() -> None:
    """Serve on the inherited socket."""
    app = floor if sys.argv[1] == "floor" else pydantic()
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    listener = socket.socket(fileno=int(os.environ["OUTRIDER_LISTEN_FD"]))
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
