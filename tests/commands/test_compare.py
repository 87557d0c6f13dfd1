"""``outrider compare`` as its page shows it, on the examples."""

import json
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.dataops.comparisons import Comparisons
from tests.chat_server import chat_server
from tests.forked import forks
from tests.soak import PATIENCE_S

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
OF_THE_MODELS = ("sklearn.datasets", "sklearn.ensemble", "sklearn.linear_model", "sklearn.pipeline")
"""What the models of the examples import."""


def commands(folder: str) -> list[list[str]]:
    """Commands that the page shows for an example."""
    block = PAGE.partition("## Try it")[2].partition(f"$ cd examples/{folder}\n")[2].partition("```")[0]
    return [line.removeprefix("$ ").split() for line in block.splitlines() if line.startswith("$ ")]


def copied(folder: str, tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / folder, tmp_path / folder)
    python(["record.py"], tmp_path / folder)
    return tmp_path / folder


def python(arguments: Sequence[str], folder: Path) -> None:
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, timeout=PATIENCE_S)


def outrider(arguments: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    with forks("outrider.commands.compare", *OF_THE_MODELS):
        return subprocess.run(
            [sys.executable, "-m", "outrider", *arguments],
            cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip


def compare(arguments: Sequence[str], folder: Path) -> tuple[int, dict[str, Any]]:
    done = outrider([*arguments, "--json"], folder)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@contextmanager
def served(command: Sequence[str], folder: Path, port: int) -> Iterator[None]:
    server = subprocess.Popen([sys.executable, command[1], str(port)], cwd=folder)
    try:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)
        yield
    finally:
        server.kill()
        server.wait()


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["verdict"] for each in found["candidates"]}


def kept_model(folder: Path) -> dict[str, Any]:
    """Model of a kept project, which ``check-config`` takes, and whose pairs wait for labels."""
    done = outrider(["check-config", "--config", "outrider.toml"], folder)
    assert done.returncode == 0, done.stderr
    pairs = [json.loads(line) for line in (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {pair["right"] for pair in pairs} == {None}
    assert {pair["A_is"] for pair in pairs} == {"production", "candidate"}
    assert all(pair["question"] and pair["A"] != pair["B"] for pair in pairs)
    found: dict[str, Any] = tomllib.loads((folder / "outrider.toml").read_text(encoding="utf-8"))
    return found["models"]["compared"]  # type: ignore[no-any-return]  # TOML


@pytest.mark.costly("a command of the page is run on its example, until it decides")
def test_models_of_this_machine_are_compared(tmp_path: Path) -> None:
    record, asked = commands("compare_models")
    assert record == ["python", "record.py"]
    folder = copied("compare_models", tmp_path)
    code, found = compare([*asked[1:], "--keep", "kept"], folder)
    [shown] = Comparisons(folder / "kept" / "outrider-data").newest(10)
    assert {**shown.report} == found
    assert verdicts(found) == {"models.py:twin": "same", "models.py:linear": "different"}
    assert code == 1
    assert {each["name"] for each in found["candidates"][1]["slices"]} == {"clinic=north", "clinic=south"}
    model = kept_model(folder / "kept")
    assert model["predictor"] == "../models.py:production"
    assert [one["predictor"] for one in model["challengers"].values()] == [
        "../models.py:twin", "../models.py:linear"
    ]  # fmt: skip
    erased_from(folder / "kept", found["candidates"][1]["to_label"])


def erased_from(kept: Path, pairs: Sequence[dict[str, Any]]) -> None:
    """A record goes from all that was kept of the comparison; the other pairs stay."""
    one = pairs[0]["id"]
    holds = f'"id": "{one}"'
    assert holds in (kept / "report.json").read_text()
    assert holds in (kept / "pairs.jsonl").read_text()

    def erase(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "outrider", "dataset", "erase", *words, "--yes", "--json"],
            cwd=kept, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    assert erase("--record", "of-nobody").returncode == 1
    assert (kept / "report.md").exists()
    done = erase("--record", one)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"]["compared_pairs"] >= 2
    for path in kept.rglob("*.json*"):
        assert f'"{one}"' not in path.read_text(), path
    assert not (kept / "report.md").exists()
    assert not (kept / "report.html").exists()
    left = json.loads((kept / "report.json").read_text())["candidates"][1]["to_label"]
    assert [pair["id"] for pair in left] == [pair["id"] for pair in pairs if pair["id"] != one]
    lines = (kept / "pairs.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [pair["id"] for pair in left]
    [shown] = Comparisons(kept / "outrider-data").newest(10)
    assert len(shown.report["candidates"][1]["to_label"]) == len(left)


@pytest.mark.costly("a command of the page is run on its example, until it decides")
def test_prompts_are_compared_through_a_gateway(tmp_path: Path) -> None:
    _, serve, asked = commands("compare_prompts")
    folder = copied("compare_prompts", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert serve[:2] == ["python", "server.py"]
    with served(serve, folder, port):
        words = [word.replace(serve[2], str(port)) for word in asked[1:]]
        code, found = compare([*words, "--keep", "kept"], folder)
    assert verdicts(found) == {"shorter.md": "same", "careless.md": "different"}
    assert code == 1
    assert found["production"]["latency_s"]["p50"] > 0
    assert "Which is right" not in (folder / "report.html").read_text(encoding="utf-8")
    model = kept_model(folder / "kept")
    assert model["endpoint"] == f"http://127.0.0.1:{port}/v1/chat/completions"
    assert model["intake"]["request_models"] == ["router"]
    prompt = (folder / "shorter.md").read_text(encoding="utf-8").strip()
    assert model["challengers"]["shorter"]["options"] == {"model": "router", "system": prompt}


def test_the_readme_opens_with_the_commands_of_the_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("```")[0]
    shown = [line.partition("#")[0].split() for line in readme.splitlines() if line.startswith("    ")]
    record, serve, asked = commands("compare_prompts")
    assert shown == [["cd", "examples/compare_prompts", "&&", *record], serve, [*asked[:-2], "--page"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--candidate", "a.md"], "one of --from, --listen and --model expected"),
        (["--candidate", "a.md", "--listen", "0"], "--listen needs --production"),
        (["--candidate", "a.md", "--from", "x.jsonl", "--until", "soon"], "--until: decided"),
        (["--candidate", "a.md", "--from", "x.jsonl", "--price", "1"], "--price: production=0.5/1.5"),
    ],
)
def test_wrong_options_are_named(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["compare", *arguments])
    assert found.exit_code == 2
    assert said in " ".join(found.output.replace("│", " ").split())


def test_a_judge_behind_an_address_says_its_preference_and_decides_nothing(tmp_path: Path) -> None:
    texts = [f"question {number}" for number in range(200)]
    lines = [{"model": "m", "messages": [{"role": "user", "content": text}]} for text in texts]
    (tmp_path / "traffic.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    def prefers_the_longer(prompt: str) -> str:
        values = json.loads(prompt)
        return "1" if len(values["answer_1"]) > len(values["answer_2"]) else "2"

    with (
        chat_server(lambda _: "yes") as production,
        chat_server(lambda _: "yes, of course it is") as candidate,
        chat_server(prefers_the_longer) as judge,
    ):
        asked = [
            "compare", "--production", production.url, "--candidate", candidate.url,
            "--from", "traffic.jsonl",
            "--judge", judge.url, "--judge-model", "j", "--judge-budget", "10",
        ]  # fmt: skip
        code, found = compare(asked, tmp_path)
    [told] = found["candidates"]
    assert (code, told["verdict"]) == (1, "different")
    assert told["judge"]["labels"] == 0
    assert len(judge.prompts) == 20  # each pair in both orders
    assert {body["model"] for body in judge.bodies} == {"j"}
    assert told["judge"]["records"] > 0
