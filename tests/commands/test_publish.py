"""Outcomes arrive in a service under the version that was tested."""

import dataclasses
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from outrider.behavioral_tests import MFT, Example, Outcome, load_suite
from outrider.commands import publish as publishing
from outrider.commands.publish import publish
from outrider.errors import ConfigError
from outrider.monitor.views.suites.published import OUTCOME_BYTES, read_outcomes

CONFIG = '[models.mood]\npredictor = "model.py:predict"\nversion = "12"\n'


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What a service got, which checks as the real one does."""
    found: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            models = {"models": [{"model": "mood"}]} if self.path == "/v1/models" else {"version": "9"}
            self._answer(200, json.dumps(models).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            read_outcomes(body)
            found.append((self.path, json.loads(body)))
            self._answer(201, b"{}")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OUTRIDER_URL", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("OUTRIDER_KEY", "key")
    yield found
    server.shutdown()
    server.server_close()


def outcome(name: str = "test_x") -> Outcome:
    test = MFT(name=name, cases=["a", "b"], labels=["a", "b"], capability="c", suite="s")
    return test.run(
        lambda batch: {"label": np.array(["a"] * batch.rows, dtype=object), "score": np.full(2, np.nan)}
    )


@pytest.mark.parametrize(
    ("reference", "target", "where"),
    [
        (".", None, "mood@12"),
        (".#mood", None, "mood@12"),
        (".#mood@4", None, "mood@4"),
        (".#mood@champion", None, "mood@9"),
        (".", "13", "mood@13"),
        ("model.py:predict", "13", "mood@13"),
        ("model.py:predict", "other@pr-7", "other@pr-7"),
    ],
)
def test_the_version_that_was_tested_is_known(
    received: list[Any], tmp_path: Path, reference: str, target: str | None, where: str
) -> None:
    (tmp_path / "outrider.toml").write_text(CONFIG)
    assert publish([outcome()], reference, target=target, source="cli", folder=tmp_path) == where
    ((path, body),) = received
    model, _, version = where.partition("@")
    assert path == f"/v1/suites/{model}/outcomes"
    assert (body["version"], body["source"]) == (version, "cli")
    assert body["outcomes"][0]["failures"] == 1


def test_without_a_version_nothing_is_sent(received: list[Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not say which version was tested"):
        publish([outcome()], "model.py:predict", source="cli", folder=tmp_path)
    assert received == []


def test_large_outcomes_lose_examples_and_many_go_in_several_requests(
    received: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(publishing, "REQUEST_BYTES", 400_000)
    heavy = tuple(Example(str(n), 1.0, {"text": "t" * 60_000}, {}) for n in range(10))
    large = [dataclasses.replace(outcome(f"test_{n}"), examples=heavy, error="") for n in range(3)]
    publish(large, "m.py:f", target="mood@1", source="pytest", folder=tmp_path)
    assert [len(body["outcomes"]) for _, body in received] == [1, 1, 1]
    assert [len(body["outcomes"][0]["examples"]) for _, body in received] == [4, 4, 4]
    assert publishing.OUTCOME_BYTES < OUTCOME_BYTES


SUITE = """
from outrider.behavioral_tests import MFT
test_marks = MFT(cases=["a", "b"], labels=["a", "b"], capability="marks")
"""
MODEL = """
import numpy as np
def predict(batch):
    return {"label": np.array(["a"] * batch.rows, dtype=object)}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "outrider.toml").write_text(CONFIG)
    (tmp_path / "test_mood.py").write_text(SUITE)
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_outrider_test_publishes(received: list[Any], project: Path) -> None:
    from outrider.cli import app

    done = CliRunner().invoke(app, ["test", "test_mood.py", "--publish"])
    assert done.exit_code == 1
    assert "published as mood@12" in done.stderr
    CliRunner().invoke(
        app, ["test", "test_mood.py", "--model", "model.py:predict", "--publish", "--version", "pr-1"]
    )
    assert [body["version"] for _, body in received] == ["12", "pr-1"]
    assert [body["outcomes"][0]["suite"] for _, body in received] == ["test_mood"] * 2


def test_pytest_publishes_under_the_same_revision(received: list[Any], project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "outrider.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "test_mood.py"]
    command += ["--outrider-model", "model.py:predict", "--outrider-publish", "mood@pr-7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "published as mood@pr-7" in done.stdout, done.stdout + done.stderr
    ((_, body),) = received
    (test,) = load_suite(project / "test_mood.py").tests
    assert (body["source"], body["outcomes"][0]["revision"]) == ("pytest", test.revision)


def test_a_service_that_does_not_answer_fails_no_test(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_URL", "http://127.0.0.1:9")
    (project / "test_mood.py").write_text(SUITE.replace('labels=["a", "b"]', 'labels=["a", "a"]'))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "outrider.pytest_plugin"]
    command += ["-p", "no:cacheprovider", "test_mood.py"]
    command += ["--outrider-model", "model.py:predict", "--outrider-publish", "mood@7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "not published: http://127.0.0.1:9 (OUTRIDER_URL) does not answer" in done.stdout


def test_outcomes_without_a_version_are_refused_before_the_model_is_asked(
    received: list[Any], project: Path
) -> None:
    asked = project / "asked"
    (project / "other.py").write_text(
        "import pathlib\n\n\ndef predict(batch):\n    pathlib.Path('asked').write_text('x')\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "outrider", "test", "--publish", "--model", "other.py:predict"]
    run = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert run.returncode == 3, run.stderr
    assert "does not say which version was tested" in run.stderr
    assert not asked.exists()
    assert received == []
