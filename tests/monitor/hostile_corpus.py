"""Assertions that do harm: the body of each, the reason that must stand beside its name, what it says.

Without a reason the function does its work and gets its verdict; what it changed on the way no other sees.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hostile:
    body: str
    reason: str | None = None
    told: str = ""


CORPUS = {
    "raises": Hostile("raise RuntimeError('on purpose')", "raised", "on purpose"),
    "raises_nothing_known": Hostile("raise type('Odd', (BaseException,), {})()", "died", "exit code 1"),
    "leaves": Hostile("sys.exit(3)", "raised", "SystemExit"),
    "loops": Hostile("while True: pass", "deadline", "no verdict within"),
    "sleeps": Hostile("time.sleep(60)", "deadline", "no verdict within"),
    "stops_itself": Hostile("os.kill(os.getpid(), signal.SIGSTOP)", "deadline", "no verdict within"),
    "ends": Hostile("os._exit(7)", "died", "exit code 7"),
    "kills": Hostile("os.kill(os.getpid(), signal.SIGKILL)", "died", "signal 9"),
    "aborts": Hostile("os.abort()", "died", "signal 6"),
    "segfaults": Hostile("ctypes.string_at(0)", "died", "signal 11"),
    "recurses": Hostile("return recurses_without_end(batch)", "raised", "RecursionError"),
    "takes_4_gb": Hostile("return bytearray(4 << 30)", "out_of_memory", "host.memory_bytes"),
    "takes_4_gb_in_pieces": Hostile(
        "return [np.empty(8_000_000) for _ in range(64)]", "out_of_memory", "host.memory_bytes"
    ),
    "closes_all_files": Hostile("os.closerange(0, 4096)", "died", "host process ended"),
    "not_a_number": Hostile("return np.full(batch.rows, np.nan)", "wrong_shape", "nan"),
    "negative": Hostile("return np.full(batch.rows, -1.0)", "wrong_shape", "-1.0"),
    "infinite": Hostile("return np.full(batch.rows, np.inf)", "wrong_shape", "inf"),
    "too_short": Hostile("return [True]", "wrong_shape", "got shape (1,)"),
    "too_long": Hostile("return [True] * (batch.rows + 1)", "wrong_shape", "got shape"),
    "texts": Hostile("return ['yes'] * batch.rows", "wrong_shape", "must return"),
    "nothing": Hostile("return None", "wrong_shape", "must return"),
    "rows_that_are_not_there": Hostile(
        "return Findings(np.array([10_000]), np.array([1.0]))", "wrong_shape", "must return"
    ),
    "writes_into_arrays": Hostile("batch.column('inputs.x')[:] = 9", "raised", "read-only"),
    "writes_into_buffers": Hostile(
        "np.frombuffer(batch.to_arrow().column('inputs.x').buffers()[1], dtype=np.uint8)[:] = 0",
        "raised",
        "read-only",
    ),
    "replaces_numpy": Hostile(
        "np.zeros = np.ones; return np.ones(batch.rows)", "raised", "cannot be replaced"
    ),
    "deletes_from_numpy": Hostile("del np.zeros", "raised", "cannot be deleted"),
    "replaces_pandas": Hostile("import pandas; pandas.DataFrame = None", "raised", "cannot be replaced"),
    "writes_to_a_closed_file": Hostile("os.close(1); os.write(1, b'x')", "raised", "Bad file descriptor"),
    # ---- these do as they like, and get their verdict ----
    "writes_into_frames": Hostile("frame = batch.inputs; frame['x'] = 9.0; return [False] * batch.rows"),
    "poisons_the_cache": Hostile(
        "batch._cache['inputs.x'] = np.ones(batch.rows); batch._answers.clear(); return [False] * batch.rows"
    ),
    "replaces_a_method": Hostile(
        "Batch.column = lambda self, name, null=...: np.ones(self.rows); return [False] * batch.rows"
    ),
    "prints": Hostile("print('x' * 10_000_000); os.write(2, b'x' * 10_000_000); return [False] * batch.rows"),
    "takes_the_streams": Hostile("sys.stdout = sys.stderr = None; os.close(2); return [False] * batch.rows"),
    "moves": Hostile("os.chdir('/'); return [False] * batch.rows"),
    "changes_the_environment": Hostile("os.environ.clear(); return [False] * batch.rows"),
    "changes_the_path": Hostile("sys.path.clear(); return [False] * batch.rows"),
    "takes_signals": Hostile(
        "[signal.signal(n, lambda *_: os._exit(9)) for n in (signal.SIGALRM, signal.SIGUSR1)]; "
        "return [False] * batch.rows"
    ),
    "sets_an_alarm": Hostile("signal.setitimer(signal.ITIMER_REAL, 0.05); return [False] * batch.rows"),
    "starts_threads": Hostile(
        "[threading.Thread(target=time.sleep, args=(60,), daemon=True).start() for _ in range(3)]; "
        "return [False] * batch.rows"
    ),
    "hoards_memory": Hostile("HOARD.append(np.empty(110_000_000)); return [False] * batch.rows"),
    "leaves_a_bomb": Hostile("threading.Timer(0.05, os._exit, (9,)).start(); return [False] * batch.rows"),
    "starts_children": Hostile(
        "[subprocess.Popen(['sleep', '60']) for _ in range(3)]; return [False] * batch.rows"
    ),
    "warns": Hostile("warnings.simplefilter('error'); return [False] * batch.rows"),
}

FILE = '''"""Written by a test."""

import ctypes, os, signal, subprocess, sys, threading, time, warnings

import numpy as np

from outrider.assertions import Batch, Findings, assertion


HOARD = []


def recurses_without_end(batch):
    return recurses_without_end(batch)
'''


def hostile_file() -> str:
    """All of them in one file, each between others."""
    return FILE + "".join(
        f"\n\n@assertion\ndef {name}(batch):\n    {one.body}\n" for name, one in CORPUS.items()
    )


WITNESSES = '''"""Written by a test: what these see of the process must be what it was."""

import os, signal, sys

import numpy as np

from outrider.assertions import assertion

FOLDER, HOME, PATH = os.getcwd(), os.environ.get("PATH"), list(sys.path)


@assertion
def sees_x(batch):
    return np.zeros(batch.rows) + batch.column("inputs.x")


@assertion
def sees_frame(batch):
    return batch.inputs["x"] > 0.5


@assertion
def sees_process(batch):
    os.fstat(1), os.fstat(2), sys.stdout.write("x")
    same = (os.getcwd(), os.environ.get("PATH"), list(sys.path)) == (FOLDER, HOME, PATH)
    plain = signal.getsignal(signal.SIGUSR1) == signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    return [not (same and plain)] * batch.rows
'''
