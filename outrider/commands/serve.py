"""``outrider serve``: runs the service until Ctrl-C or SIGTERM."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from outrider.errors import ConfigError


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
    from outrider.monitor.config import find_config, load_settings
    from outrider.monitor.supervisor import AlreadyRunning, Supervisor

    path = find_config(config).resolve()
    settings = load_settings(path)
    if not settings.models:
        raise ConfigError(f"{path}: models: at least one [models.NAME] section expected, got none")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    supervisor = Supervisor(
        config=path,
        folder=settings.data_folder,
        host=host or settings.server.host,
        port=settings.server.port if port is None else port,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        supervisor.run(stop, ready=lambda url: _announce(url, settings.data_folder))
    except (AlreadyRunning, RuntimeError) as error:
        typer.echo(f"outrider: {error}", err=True)
        raise typer.Exit(3) from error
    except OSError as error:
        typer.echo(
            f"outrider: cannot listen on {supervisor.host}:{supervisor.port}: {error}; try --port 0", err=True
        )
        raise typer.Exit(3) from error


def _announce(url: str, folder: Path) -> None:
    from outrider.monitor.auth import Keyring, load_or_create_key

    link = Keyring(load_or_create_key(folder / "key")).make_link_token()
    sys.stderr.write(
        f"\n  Outrider is up.\n"
        f"  page     {url}/login?token={link}   (this link works once)\n"
        f"  records  POST {url}/v1/records   key in {os.path.relpath(folder / 'key')}\n\n"
    )
    sys.stderr.flush()
