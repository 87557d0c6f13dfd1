"""Seconds from the start of ``outrider compare`` to *same*.

A classifier of intents answers in OpenAI's form; the candidate is its twin with weights of eight bits. Each
is a process of its own, as the command is; its start-up counts. The questions are real queries in a file.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.compare._intents import intents, queries, request_of
from benchmarks.figure import Figure

ROUNDS = 3
MOST_S = 300.0
DATA = "clinc150, first 16 intents, margin 2 %, both servers on the same machine; by the clock"


def main() -> None:
    """Print the time to the verdict, and the records that it took."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "prompts.jsonl").write_bytes(b"\n".join(map(request_of, queries()["text"])))
        ports = [stack.enter_context(intents(bits)) for bits in (32, 8)]
        rounds = [compare(folder, *ports) for _ in range(ROUNDS)]
    verdicts = {found["candidates"][0]["verdict"] for _, found in rounds}
    if verdicts != {"same"}:
        raise SystemExit(f"same expected, got {verdicts}")
    seconds = statistics.median(took for took, _ in rounds)
    Figure(
        "compare.time_to_same", seconds, "s", f"{MOST_S:g} s", MOST_S / seconds, 1.0, ROUNDS,
        min(took for took, _ in rounds), max(took for took, _ in rounds), data=DATA,
    ).show()  # fmt: skip
    records = statistics.median(found["candidates"][0]["records"] for _, found in rounds)
    Figure("compare.time_to_same.records", records, "records", "", 0.0, n=ROUNDS, data=DATA).show()


def compare(folder: Path, production: int, candidate: int) -> tuple[float, dict[str, Any]]:
    """Seconds and report of one comparison."""
    one, two = (f"http://127.0.0.1:{port}/v1" for port in (production, candidate))
    command = [sys.executable, "-m", "outrider", "compare", "--production", one, "--candidate", two, "--json"]
    command += ["--from", "prompts.jsonl"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=False)
    return time.monotonic() - began, json.loads(done.stdout)


if __name__ == "__main__":
    main()
