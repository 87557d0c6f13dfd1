"""``outrider reload``: apply a changed configuration, as SIGHUP does."""

import json as json_format
import os
import signal
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from outrider.errors import ConfigError, ServerError

from .output import Config, Json, tell

POLL_S = 0.1


def reload(
    timeout_s: Annotated[
        float, typer.Option(help="How long to wait for the check and the new versions.")
    ] = 130.0,
    config: Config = None,
    json: Json = False,
) -> None:
    """Check outrider.toml and its files, and apply both.

    Ends when the new versions answer; exit code 3 when they are refused.
    """
    from outrider.monitor.settings.config import accepted_settings, find_config
    from outrider.monitor.settings.reload import read_serving, read_state

    folder = accepted_settings(find_config(config)).data_folder
    before = read_state(folder)
    try:
        os.kill(_pid(folder / "run" / "server.json"), signal.SIGHUP)
    except ProcessLookupError:
        raise ServerError(f"no service runs on {folder}; start `outrider serve`") from None
    deadline = time.monotonic() + timeout_s
    while (state := read_state(folder)) == before:
        if time.monotonic() > deadline:
            raise ServerError(f"the service has not answered within {timeout_s:g} s; look into its log")
        time.sleep(POLL_S)
    if state.problem:
        raise ConfigError(f"refused, the last good configuration stays:\n{state.problem}")
    at = datetime.fromtimestamp(state.loaded_s, UTC).isoformat(timespec="seconds")
    while (found := read_serving(folder)).loaded_s < state.loaded_s:
        if time.monotonic() > deadline:
            raise ServerError(
                f"applied at {at}, but no answer of new versions within {timeout_s:g} s; look into its log"
            )
        time.sleep(POLL_S)
    if found.failures:
        whys = "\n".join(f"{version}: {why}" for version, why in found.failures.items())
        raise ServerError(f"applied at {at}, but not every version can be loaded:\n{whys}")
    answering = ", ".join(map(found.named, found.versions))
    tell(
        {"loaded": at, "versions": dict(found.versions), "challengers": dict(found.challengers)},
        f"applied at {at}; answering: {answering}",
        json=json,
    )


def _pid(path: Any) -> int:
    try:
        return int(json_format.loads(path.read_text(encoding="utf-8"))["pid"])
    except (OSError, ValueError, KeyError):
        raise ServerError(f"no service runs on {path.parent.parent}; start `outrider serve`") from None
