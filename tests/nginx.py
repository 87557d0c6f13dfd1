"""A real nginx for tests: on free ports of loopback, in a folder of its own, ended by handle."""

import contextlib
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from .requirements import require_program
from .soak import PATIENCE_S

INSTALL = "apt-get install -y nginx"
_HEAD = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
worker_processes 1;
{user}
events {{ worker_connections 256; }}
http {{
access_log off;
client_body_temp_path {folder}/body;
proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi;
scgi_temp_path {folder}/scgi;
{site}
}}
"""


def free_port() -> int:
    """A port of loopback that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def mirror_parts(printed: str) -> tuple[str, str, str]:
    """Parts of what the command prints for nginx: of ``http``, of the location copied, of its server."""
    ours = printed.partition("\n\n# Envoy")[0]
    upstream, mirror, location = re.split(r"\n(?=mirror|location)", ours)
    return upstream, mirror, location


@contextlib.contextmanager
def nginx(folder: Path, site: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run nginx with what a file of ``conf.d`` holds; its ports are those that the text names."""
    program = require_program("nginx", INSTALL)
    folder.mkdir()
    # As root its workers would be another user, who may not enter the folder of a test.
    user = "user root;" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(_HEAD.format(folder=folder, user=user, site=site), encoding="utf-8")
    with (folder / "stderr").open("wb") as log:
        process = subprocess.Popen([program, "-p", str(folder), "-c", str(config)], stderr=log)
    try:
        for port in map(int, re.findall(r"listen (?:127\.0\.0\.1:)?(\d+)", site)):
            _await(port, process, folder)
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _await(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    said = (folder / "stderr").read_text(encoding="utf-8")
    raise AssertionError(f"nginx does not listen on {port} (ended: {process.poll()})\n{said}")
