"""A training run that is killed: writes the ids of each batch, and the state with how much of them counts.

``python -m tests.dataops.loaders.stream_run ARROW FOLDER RANKS KILLS SEED``: every rank is a process of its
own that runs three epochs. After some batches all are killed (SIGKILL) and begun again from their states.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from outrider.dataops.loaders.mapped_rows import MappedRows

EPOCHS, BATCH_ROWS, SEED = 3, 7, 11


def stream_of(arrow: Path, rank: int, ranks: int):  # type: ignore[no-untyped-def]  # torch, once it is wanted
    rows = MappedRows("d@1", "digest", arrow)
    return rows.to_stream(batch_rows=BATCH_ROWS, seed=SEED, rank=rank, ranks=ranks)


def train(arrow: Path, folder: Path, rank: int, ranks: int) -> None:
    """Go on from the last state; what was written behind it is cut off."""
    stream = stream_of(arrow, rank, ranks)
    ids, state = folder / f"ids-{rank}", folder / f"state-{rank}.json"
    written = 0
    if state.exists():
        kept = json.loads(state.read_text())
        stream.load_state_dict(kept["stream"])
        written = kept["written"]
    with ids.open("ab") as file:
        file.truncate(written)
        while stream.state_dict()["epoch"] < EPOCHS:
            for batch in stream.loader(num_workers=1 if rank == 0 and ranks == 1 else 0):
                file.write(" ".join(batch["id"]).encode() + b"\n")
                file.flush()
                beside = state.with_suffix(".new")
                beside.write_text(json.dumps({"stream": stream.state_dict(), "written": file.tell()}))
                os.replace(beside, state)
                time.sleep(0.001)


def lines(folder: Path, ranks: int) -> int:
    files = [folder / f"ids-{rank}" for rank in range(ranks)]
    return sum(file.read_bytes().count(b"\n") for file in files if file.exists())


def main() -> None:
    import torch  # before the forks: each would take seconds for it

    torch.set_num_threads(1)
    arrow, folder = (Path(text) for text in sys.argv[1:3])
    ranks, kills, seed = (int(text) for text in sys.argv[3:])
    rng = random.Random(seed)
    whole = sum(EPOCHS * len(stream_of(arrow, rank, ranks)) for rank in range(ranks))
    left = sorted(rng.sample(range(1, whole), kills))
    killed = 0
    while True:
        children = []
        for rank in range(ranks):
            if not (child := os.fork()):
                os.setpgid(0, 0)
                train(arrow, folder, rank, ranks)
                os._exit(0)
            children.append(child)
        while left and lines(folder, ranks) < left[0]:
            time.sleep(0.0005)
        if not left:
            assert [os.waitpid(child, 0)[1] for child in children] == [0] * ranks
            break
        for child in children:
            try:
                os.killpg(child, signal.SIGKILL)
            except ProcessLookupError:
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        left.pop(0)
        killed += 1
    sys.stdout.write(f"{killed}\n")


if __name__ == "__main__":
    main()
