"""Classifier of intents in OpenAI's form: ``python -m benchmarks.compare._intents PORT BITS``.

Trained here on the training part of clinc150; with 8 bits its weights are rounded to eight.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
import uvicorn
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.data import data_folder
from tests.nginx import free_port

INTENTS = 16
READY_S = 120.0


def queries() -> pd.DataFrame:
    """Real queries of the first intents, in one random order."""
    rows = pd.read_parquet(data_folder("clinc150") / "data_full.parquet")
    known = [label for label in rows["label"].unique() if label != "oos"][:INTENTS]
    return rows[rows["label"].isin(known)].sample(frac=1.0, random_state=0)


def request_of(text: str) -> bytes:
    """Question about one query, as a client puts it."""
    messages = [{"role": "system", "content": "Name the intent."}, {"role": "user", "content": text}]
    return json.dumps({"model": "intents", "messages": messages}).encode()


@contextlib.contextmanager
def intents(bits: int) -> Iterator[int]:
    """Run the server in a process of its own until the end; its port."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.compare._intents", str(port), str(bits)])
    try:
        await_port(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(READY_S)


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until something listens.

    Raises
    ------
    TimeoutError
        If nothing does.
    """
    import socket

    until = time.monotonic() + READY_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens at {port} (ended: {process.poll()})")


def main(port: int, bits: int) -> None:
    """Train and serve."""
    train = queries().query("split == 'train'")
    features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    model = LogisticRegression(max_iter=30, C=10.0).fit(features.fit_transform(train["text"]), train["label"])
    if bits == 8:
        scale = np.abs(model.coef_).max(axis=1, keepdims=True) / 127
        model.coef_ = np.round(model.coef_ / scale) * scale

    async def answer(request: Request) -> JSONResponse:
        messages = (await request.json())["messages"]
        text = model.predict(features.transform([messages[-1]["content"]]))[0]
        message = {"role": "assistant", "content": str(text)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"id": f"a{time.time_ns()}", "object": "chat.completion", "choices": [choice]})

    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    uvicorn.run(app, port=port, log_level="error")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
