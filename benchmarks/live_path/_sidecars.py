"""Sidecars that answer, and sidecars that do not: loopback servers in processes of their own.

``python -m benchmarks.live_path._sidecars silent|drip|error`` prints the port it listens on.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

CONFIG = """
[server]
port = 0
[storage]
min_free_bytes = {min_free_bytes}
[models.churn]
"""
ERROR = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\n{}"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 28\r\n\r\n" + b'{"accepted":1,"rejected":[]}'


async def _answer(kind: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        if kind == "silent":
            await asyncio.sleep(3600)
        if kind == "drip":
            for byte in ACCEPTED:  # reads and writes one byte each second
                await reader.readexactly(1)
                writer.write(bytes([byte]))
                await asyncio.sleep(1)
        while kind == "error":
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            writer.write(ERROR)
            await writer.drain()


async def _serve(kind: str) -> None:
    # A small buffer, so that a peer that does not read is felt at once.
    server = await asyncio.start_server(
        lambda reader, writer: _answer(kind, reader, writer), "127.0.0.1", 0, limit=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def broken(kind: str) -> Iterator[str]:
    """URL of a server that is ``silent``, ``drip`` (one byte a second), ``error`` (500) or ``dead``."""
    if kind == "dead":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        yield f"http://127.0.0.1:{port}"
        return
    command = [sys.executable, "-m", "benchmarks.live_path._sidecars", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(child.stdout.readline())}"
        finally:
            child.kill()


@contextlib.contextmanager
def intake(*, disk_full: bool = False) -> Iterator[tuple[str, str]]:
    """URL and key of a real intake, one whose disk is too full to take anything when asked for."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "outrider.toml"
        config.write_text(CONFIG.format(min_free_bytes=10**18 if disk_full else 0), encoding="utf-8")
        command = [sys.executable, "-m", "outrider.monitor.intake", "--config", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
            assert child.stderr is not None
            try:
                url = next(
                    line.partition("listening on ")[2].strip()
                    for line in child.stderr
                    if "listening on " in line
                )
                yield url, (Path(folder) / "outrider-data" / "key").read_text(encoding="utf-8").strip()
            finally:
                child.terminate()
                child.wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
