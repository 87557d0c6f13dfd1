"""What a mirrored V2 request costs on one core, against a server that decodes and stores nothing.

``python -m benchmarks.live_path.v2``: binary tensors of float32 through the real intake, journal and all, and
through an application on the same server (uvloop, httptools) that reads the same bodies and answers. Both are
driven in turn by the same client on the other core. Ratios are of processor time per request.
"""

import json

import numpy as np

from benchmarks.figure import Figure

from ._load import Rate, floor, intake, median

ROUNDS = 5
SECONDS = 1.0
PATH = "/v2/models/churn/infer"


def request(rows: int, width: int) -> tuple[bytes, dict[str, str]]:
    """Body as tritonclient makes it, and its headers as a proxy sends them on."""
    values = np.random.default_rng(1).random((rows, width), dtype=np.float32)
    tensor = {"name": "x", "shape": [rows, width], "datatype": "FP32"}
    head = json.dumps(
        {
            "inputs": [tensor | {"parameters": {"binary_data_size": values.nbytes}}],
            "parameters": {"binary_data_output": True},
        },
        separators=(",", ":"),
    ).encode()
    headers = {
        "Host": "models.internal-shadow",
        "X-Request-Id": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "Inference-Header-Content-Length": str(len(head)),
    }
    return head + values.tobytes(), headers


def compare(rows: int, width: int, connections: int, target: float | None) -> None:
    """Measure one size in turn, and print."""
    body, headers = request(rows, width)
    ours: list[Rate] = []
    theirs: list[Rate] = []
    with intake() as server, floor() as other:
        for _ in range(ROUNDS):
            for where, rates in ((other, theirs), (server, ours)):
                rates.append(
                    where.load(
                        body,
                        kind="application/octet-stream",
                        seconds=SECONDS,
                        path=PATH,
                        more=headers,
                        connections=connections,
                    )
                )
    mine, least = median(ours), median(theirs)
    name, against = f"v2_binary_{rows}x{width}_on_{connections}", "no-decode uvloop floor"
    Figure(
        f"{name}_cpu", mine.cpu_s * 1e6, "µs CPU/request", against, least.cpu_s / mine.cpu_s, target
    ).show()
    Figure(f"{name}_wall", mine.wall_s * 1e6, "µs/request", against, least.wall_s / mine.wall_s).show()


def main() -> None:
    """Measure and print."""
    # As many requests under way as a proxy in front of a busy model has.
    compare(64, 40, 64, 0.4)
    compare(1024, 40, 64, 0.4)
    compare(64, 40, 16, None)
    compare(1, 40, 64, None)


if __name__ == "__main__":
    main()
