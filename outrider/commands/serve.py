"""``outrider serve``: run the service until Ctrl-C or SIGTERM."""

import logging
import os
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.errors import ConfigError

from .expectation_checks import problems_elsewhere

if TYPE_CHECKING:
    from outrider.monitor.settings.config import Settings

log = logging.getLogger("outrider.supervisor")


def serve(
    config: Annotated[
        Path | None, typer.Option(help="Configuration file.", show_default="outrider.toml")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to bind, instead of server.host.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port, instead of server.port; 0 picks a free one.")
    ] = None,
) -> None:
    """Run the service: intake, worker, assertion host, trainer and the web page."""
    from outrider.monitor.process.folder_lock import AlreadyRunning
    from outrider.monitor.process.logs import set_up
    from outrider.monitor.process.supervisor import Supervisor
    from outrider.monitor.settings.config import find_config, load_settings
    from outrider.monitor.settings.webhook_secrets import secret_problems

    if host is not None:  # for every process, which thereby knows whether strangers come
        os.environ["OUTRIDER_SERVER__HOST"] = host
    path = find_config(config).resolve()
    settings = load_settings(path)
    if not settings.models:
        raise ConfigError(f"{path}: models: at least one [models.NAME] section expected, got none")
    wrong = problems_elsewhere(path, settings)
    if problems := [f"{path}: {problem}" for problem in (*secret_problems(settings), *wrong)]:
        raise ConfigError("\n".join(problems))
    set_up("supervisor", settings.server.log_format)
    supervisor = Supervisor(
        config=path,
        folder=settings.data_folder,
        host=settings.server.host,
        port=settings.server.port if port is None else port,
        check=[sys.executable, "-m", "outrider", "check-config", "--config", str(path), "--no-run", "--json"],
        refuse=lambda copy: cannot_change(settings, load_settings(path, copy=copy)),
    )
    if (warning := without_tls(settings)) is not None:
        log.warning("%s", warning)
    stop, reload = threading.Event(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    signal.signal(signal.SIGHUP, lambda *_: stop.set() if has_terminal and _hung_up() else reload.set())
    try:
        supervisor.run(stop, reload=reload, ready=lambda url: _announce(url, settings))
    except (AlreadyRunning, RuntimeError) as error:
        typer.echo(f"outrider: {error}", err=True)
        raise typer.Exit(3) from error
    except OSError as error:
        typer.echo(
            f"outrider: cannot listen on {supervisor.host}:{supervisor.port}: {error}; try --port 0", err=True
        )
        raise typer.Exit(3) from error


def cannot_change(now: "Settings", wanted: "Settings") -> str | None:
    """Reason why new settings need a restart; None if none is needed."""
    fixed = {
        "server.host": (now.server.host, wanted.server.host),
        "server.port": (now.server.port, wanted.server.port),
        "storage.folder": (now.data_folder, wanted.data_folder),
    }
    for key, (before, after) in fixed.items():
        if before != after:
            return f"{key} cannot change while the service runs ({before} -> {after}): stop and restart it"
    if not wanted.models:
        return "models: at least one [models.NAME] section expected, got none"
    return None


def without_tls(settings: "Settings") -> str | None:
    """Warning if the service is reachable from outside without TLS, else None."""
    from outrider.monitor.http.hosts import is_loopback

    server = settings.server
    if is_loopback(server.host) or server.trusted_proxies:
        return None
    return (
        f"listening on {server.host or 'all addresses'} without TLS: keys and records can be read on the way;"
        " put a proxy with TLS in front and name it in server.trusted_proxies (docs/access.md)"
    )


def _hung_up() -> bool:
    """True if the terminal is gone: SIGHUP then means exit, not reload."""
    try:
        os.tcgetpgrp(0)
    except OSError:
        return True
    return False


def _announce(url: str, settings: "Settings") -> None:
    from outrider.dataops.access.store import AccessStore, digest_of
    from outrider.monitor.http.keyring import load_or_create_key

    folder = settings.data_folder
    store = AccessStore(folder / "state.db")
    made = store.make_link(digest_of(load_or_create_key(folder / "key")), now_us=time.time_ns() // 1000)
    store.close()
    page = f"{url}/login?token={made[0]}" if made else f"{url}/login"
    until = datetime.fromtimestamp(made[1] / 1e6, UTC).isoformat(timespec="seconds") if made else None
    if settings.server.log_format == "json":
        log.info("outrider is up", extra={"url": url, "page": page, "until": until})
        return
    key = folder / "key.ingest"
    shown = key.relative_to(Path.cwd()) if key.is_relative_to(Path.cwd()) else key
    how = f"this link works once, until {until[11:16]} UTC" if until else "paste a key there"
    sys.stderr.write(
        f"\n  Outrider is up.\n"
        f"  records  POST {url}/v1/records   key in {shown}\n"
        f"  page     {how}; `outrider login` prints another:\n"
        f"{page}\n\n"  # on a line of its own, unbroken: a terminal of 80 columns holds it
    )
    sys.stderr.flush()
