"""Another process on the same device, which answers requests of its own and times them.

It says ``ready``, then measures itself for as many seconds as each line that it reads says.
"""

import argparse
import json
import sys
import time

import numpy as np
import torch

from ._models import TextModel, token_rows
from ._scale import SCALES

EVERY_S = 0.01
ROWS = 8


def main() -> None:
    """Answer a request every hundredth of a second, as a service does that is not captured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=tuple(SCALES), required=True)
    kind = parser.parse_args().device
    scale = SCALES[kind]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if kind == "cuda" else torch.float32
    module = TextModel(scale).to(kind, dtype).eval()
    ids = token_rows(scale, ROWS).tensors["ids"]

    def answer() -> float:
        began = time.perf_counter()
        with torch.inference_mode():
            module(ids.to(kind)).float().cpu()
        return time.perf_counter() - began

    for _ in range(20):
        answer()
    print("ready", flush=True)
    for line in sys.stdin:
        until, due, took = time.perf_counter() + float(line), time.perf_counter(), []
        while time.perf_counter() < until:
            took.append(answer())
            due = max(due + EVERY_S, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
        p50, p99 = np.percentile(took, [50, 99])
        print(json.dumps({"p50_s": p50, "p99_s": p99, "requests": len(took)}), flush=True)


if __name__ == "__main__":
    main()
