"""Helper processes for long reads, apart from intake's process."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence

from .child import CONTROL_FD, die_with_parent

NICENESS = 10


class HelperError(Exception): ...


def ask_helper(module: str, arguments: Sequence[str], *, limit_s: float) -> str:
    """Run ``python -m MODULE ARGUMENTS --parent PID``; returns its output, or raises HelperError with
    its last line of standard error."""
    command = [sys.executable, "-m", module, *arguments, "--parent", str(os.getpid())]
    inherited = [int(os.environ[CONTROL_FD])] if CONTROL_FD in os.environ else []
    try:
        done = subprocess.run(
            command,
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HelperError(f"not done after {limit_s:g} s") from error
    except OSError as error:
        raise HelperError(f"the process did not start: {error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise HelperError(lines[-1][:500] if lines else f"the process ended with status {done.returncode}")
    return done.stdout


def begin_helping(parent: int) -> None:
    die_with_parent(parent=parent)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
