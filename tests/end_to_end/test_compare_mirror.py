"""The whole way: nginx copies live requests, and candidates get a verdict that the whole stream confirms.

A classifier of intents, trained here on real queries, answers in OpenAI's form behind Debian's nginx. Its
candidates are the same model in eight bits, one with a planted fault, and its own answers under another
system prompt.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from outrider.commands.mirror_snippets import snippets
from tests.forked import forks
from tests.nginx import free_port, mirror_parts, nginx
from tests.requirements import require_data
from tests.soak import PATIENCE_S

INTENTS = 16
MARGIN = 0.02
PROMPT = "Name the intent of the query. Of anything about money say only: money."
Weights = np.ndarray[Any, np.dtype[np.float64]]
Say = Callable[[str, str], str]
"""Text of the system and of the user to the answer."""


class Classifier:
    """Intents by words and pairs of words; ``weights`` are what candidates change."""

    def __init__(self, texts: list[str], labels: list[str]) -> None:
        self._features = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
        model = LogisticRegression(max_iter=30, C=10.0).fit(self._features.fit_transform(texts), labels)
        self.classes: list[str] = model.classes_.tolist()
        self.weights: Weights = model.coef_
        self._bias: Weights = model.intercept_

    def scores(self, texts: list[str], weights: Weights) -> Weights:
        found: Weights = self._features.transform(texts) @ weights.T + self._bias
        return found

    def labels(self, texts: list[str], weights: Weights) -> list[str]:
        return [self.classes[at] for at in self.scores(texts, weights).argmax(axis=1)]


def in_eight_bits(weights: Weights) -> Weights:
    scale = np.abs(weights).max(axis=1, keepdims=True) / 127
    found: Weights = np.round(weights / scale) * scale
    return found


def under(prompt: str, label: str) -> str:
    about_money = label in ("transfer", "balance", "pay_bill", "bill_due", "bill_balance", "transactions")
    return "money" if "say only: money" in prompt and about_money else label


class Answering(ThreadingHTTPServer):
    """Server of one model in OpenAI's form."""

    daemon_threads = True

    def __init__(self, say: Say) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.say = say
        self.own_questions = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    """Answers one request, and the next of its connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: Answering

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.own_questions += "x-outrider-shadow" in self.headers
        said = {message["role"]: message["content"] for message in body["messages"]}
        text = self.server.say(said.get("system", ""), said["user"])
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        payload = json.dumps({"id": f"a{time.time_ns()}", "choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def answering(say: Say) -> Iterator[Answering]:
    server = Answering(say)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def queries() -> pd.DataFrame:
    rows = pd.read_parquet(require_data("clinc150") / "data_full.parquet")
    money = ["transfer", "balance", "pay_bill", "bill_due", "bill_balance", "transactions"]
    known = [label for label in rows["label"].unique() if label not in ("oos", *money)]
    return rows[rows["label"].isin([*money, *known[: INTENTS - len(money)]])].sample(frac=1.0, random_state=0)


@pytest.fixture(scope="module")
def classifier(queries: pd.DataFrame) -> Classifier:
    train = queries[queries["split"] == "train"]
    return Classifier(train["text"].tolist(), train["label"].tolist())


def gateway(snippet: str, production: Answering, port: int) -> str:
    """Site of nginx: production, and the copy as the command prints it."""
    upstream, mirror, copy = mirror_parts(snippet)
    return f"""{upstream}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            {mirror}
            proxy_pass http://127.0.0.1:{production.server_port};
        }}
        {copy}
    }}"""


def ask(client: httpx.Client, text: str) -> str:
    messages = [{"role": "system", "content": "Name the intent."}, {"role": "user", "content": text}]
    answer = client.post("/v1/chat/completions", json={"model": "intents", "messages": messages})
    said: str = answer.json()["choices"][0]["message"]["content"]
    return said


@pytest.mark.costly("a whole service runs, and is fed until it happens")
def test_live_requests_give_verdicts_that_the_whole_stream_confirms(
    tmp_path: Path, queries: pd.DataFrame, classifier: Classifier
) -> None:
    eight_bits, faulty = in_eight_bits(classifier.weights), classifier.weights.copy()
    faulty[[classifier.classes.index(name) for name in ("transfer", "pay_bill")]] = 0.0
    answered = {
        name: dict(zip(queries["text"], classifier.labels(queries["text"].tolist(), weights), strict=True))
        for name, weights in {"production": classifier.weights, "int8": eight_bits, "faulty": faulty}.items()
    }
    (tmp_path / "money.md").write_text(PROMPT, encoding="utf-8")
    truth = {name: {t: answered[name][t] for t in queries["text"]} for name in ("int8", "faulty")}
    truth["money.md"] = {text: under(PROMPT, label) for text, label in answered["production"].items()}
    port, listening = free_port(), free_port()
    with ExitStack() as stack:
        production = stack.enter_context(
            answering(lambda system, user: under(system, answered["production"][user]))
        )
        others = {
            name: stack.enter_context(answering(lambda _, user, name=name: answered[name][user]))  # type: ignore[misc]
            for name in ("int8", "faulty")
        }
        site = gateway(snippets(f"http://127.0.0.1:{listening}"), production, port)
        stack.enter_context(nginx(tmp_path / "nginx", site))
        named = {"money.md": "money.md"} | {name: server.url for name, server in others.items()}
        command = [
            sys.executable, "-m", "outrider", "compare", "--production", production.url, "--json",
            "--listen", str(listening), "--margin", str(MARGIN),
            *(word for text in named.values() for word in ("--candidate", text)),
        ]  # fmt: skip
        with forks("outrider.commands.compare"):
            comparing = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        stack.callback(comparing.kill)
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S))
        until = time.monotonic() + PATIENCE_S
        sent = 0
        while comparing.poll() is None and time.monotonic() < until:
            text = queries["text"].iloc[sent % len(queries)]
            assert ask(client, text) == answered["production"][text]
            sent += 1
            time.sleep(0.005)  # this process also answers the questions
        found: Mapping[str, Any] = json.loads(comparing.communicate(timeout=PATIENCE_S)[0])
    verdicts = {each["name"]: each["verdict"] for each in found["candidates"]}
    for name, text in named.items():
        differs = np.mean([truth[name][one] != answered["production"][one] for one in queries["text"]])
        label = text.removeprefix("http://") if text.startswith("http") else text
        assert (verdicts[label] in ("same", "close")) == (differs <= MARGIN), (name, differs, verdicts)
        assert (verdicts[label] == "different") == (differs > MARGIN), (name, differs, verdicts)
    assert set(verdicts.values()) == {"same", "different"}
    assert comparing.returncode == 1
    asked = found["production"]["asked"]
    assert production.own_questions >= asked
    assert found["records"]["unreadable"] == 0
