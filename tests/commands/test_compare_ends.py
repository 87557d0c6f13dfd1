"""How ``outrider compare`` ends: stopped, killed, with candidates that never answer; what stays behind."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.errors import ServerError
from tests.forked import forks
from tests.scripted_server import Answer, Asked, Reply, ScriptedServer, scripted_server
from tests.soak import PATIENCE_S

PUBLIC = Path(__file__).parents[1] / "data_files" / "public_cases"
LONG_S = "10000"
"""A deadline that no test waits for."""


def said(text: str) -> Reply:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return Reply(json.dumps({"choices": [choice]}).encode())


def well(asked: Asked) -> Reply:
    return said(f"About {json.loads(asked.body)['messages'][-1]['content']} I know all.")


def asked_of(production: ScriptedServer, *candidates: ScriptedServer) -> list[str]:
    named = [word for each in candidates for word in ("--candidate", f"{each.url}/v1")]
    return ["--production", f"{production.url}/v1", *named]


def prompts(folder: Path, count: int = 200) -> list[str]:
    path = folder / "prompts.jsonl"
    lines = [
        {"model": "m", "messages": [{"role": "user", "content": f"thing {number}"}]}
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return ["--from", str(path)]


def started(arguments: Sequence[str], folder: Path) -> "subprocess.Popen[str]":
    with forks("outrider.commands.compare"):
        return subprocess.Popen(
            [sys.executable, "-m", "outrider", "compare", *arguments, "--json"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


def until(happens: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.05)


def verdicts(found: Any) -> list[str]:
    return [each["verdict"] for each in found["candidates"]]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: Reply(b"oops", 500), "status 500"),
        (lambda _: Reply(b'{"answer":"yes"}'), "choices with a message or a text expected, got answer"),
        (lambda _: Reply(b'{"choices": []}', cut=3), "no answer: peer closed connection"),
    ],
)
def test_a_candidate_that_never_answers_is_the_verdict_and_others_get_theirs(
    answer: Answer, reason: str, tmp_path: Path
) -> None:
    with (
        scripted_server(well) as production,
        scripted_server(answer) as dead,
        scripted_server(well) as good,
    ):
        done = CliRunner().invoke(
            app,
            ["compare", *asked_of(production, dead, good), *prompts(tmp_path), "--until", "150", "--json"],
        )
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert verdicts(found) == ["worse", "undecided"]
    assert f"; most often: {reason}" in found["candidates"][0]["sentence"].replace(dead.url[7:] + ": ", "")
    assert found["records"]["asked"] == 150
    assert len(dead.asked) < 150 <= len(good.asked)


def test_nothing_but_a_dead_candidate_is_worse_not_incomparable(tmp_path: Path) -> None:
    with scripted_server(well) as production, scripted_server(lambda _: Reply(b"", 503)) as dead:
        done = CliRunner().invoke(
            app,
            ["compare", *asked_of(production, dead), *prompts(tmp_path), "--until", "10000"],
        )
    assert done.exit_code == 1
    assert "is worse: no answer" in done.stdout
    assert len(production.asked) < 200


@pytest.mark.parametrize(("status", "count"), [(401, 200), (403, 5), (404, 200)])
def test_candidate_that_refuses_all_by_one_status_of_address_or_key_ends_with_4_and_what_to_do(
    tmp_path: Path, status: int, count: int
) -> None:
    with scripted_server(well) as production, scripted_server(lambda _: Reply(b"{}", status)) as dead:
        done = CliRunner().invoke(
            app, ["compare", *asked_of(production, dead), *prompts(tmp_path, count), "--until", "10000"]
        )
    assert isinstance(done.exception, ServerError)
    asked = min(count, 32)
    said = (
        rf"^[\w.:]+/v1 refused all {asked} questions: status {status}: .*; check its address, model and key"
    )
    assert re.search(said, str(done.exception)), str(done.exception)
    assert len(production.asked) <= 2 * asked


def test_candidate_that_refuses_all_is_undecided_and_others_get_their_verdicts(tmp_path: Path) -> None:
    with (
        scripted_server(well) as production,
        scripted_server(lambda _: Reply(b"{}", 404)) as dead,
        scripted_server(lambda _: said("No.")) as other,
    ):
        arguments = [*asked_of(production, dead, other), *prompts(tmp_path), "--until", "decided", "--json"]
        done = CliRunner().invoke(app, ["compare", *arguments])
    found = json.loads(done.stdout)
    assert (done.exit_code, verdicts(found)) == (1, ["undecided", "different"])
    assert re.search(r"refused all \d\d questions: status 404", found["candidates"][0]["sentence"])


@pytest.mark.parametrize("first", [200, 401])
def test_candidate_that_refuses_later_or_by_several_statuses_is_worse(tmp_path: Path, first: int) -> None:
    def refused(asked: Asked) -> Reply:
        number = int(json.loads(asked.body)["messages"][-1]["content"].split()[-1]) if asked.body else 1
        if number % 8:
            return Reply(b"{}", 404)
        return well(asked) if first == 200 else Reply(b"{}", first)

    with scripted_server(well) as production, scripted_server(refused) as frail:
        done = CliRunner().invoke(
            app, ["compare", *asked_of(production, frail), *prompts(tmp_path), "--until", "10000"]
        )
    assert done.exit_code == 1
    assert "is worse: no answer" in done.stdout


@pytest.mark.parametrize("count", [5, 20])
def test_production_that_answers_none_of_few_questions_ends_with_4_and_the_reason(
    tmp_path: Path, count: int
) -> None:
    """The requests of a public case name no model, which production needs and the candidate is given."""

    def by_model(asked: Asked) -> Reply:
        return well(asked) if asked.body else Reply(b"{}", status=404)  # what models there are

    chats = (PUBLIC / "chats_without_model.jsonl").read_text().splitlines()[:count]
    (tmp_path / "chats.jsonl").write_text("\n".join(chats))
    with scripted_server(by_model) as server:
        found = CliRunner().invoke(
            app,
            ["compare", *asked_of(server, server), "--candidate-model", "m",
             "--from", str(tmp_path / "chats.jsonl")],
        )  # fmt: skip
    assert isinstance(found.exception, ServerError)
    assert "better" not in found.output
    words = rf"answered none of {count} questions.*the request names no model"
    assert re.search(words, str(found.exception)), str(found.exception)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_keeps_the_report_though_a_candidate_hangs(
    sent: signal.Signals, tmp_path: Path
) -> None:
    hang = threading.Event()
    count = [0]

    def answers_at_first(asked: Asked) -> Reply:
        count[0] += 1
        return well(asked) if count[0] <= 20 else Reply(wait=hang)

    with scripted_server(well) as production, scripted_server(answers_at_first) as candidate:
        process = started(
            [*asked_of(production, candidate), *prompts(tmp_path), "--twice", "0", "--deadline", LONG_S],
            tmp_path,
        )
        until(lambda: count[0] > 20)
        process.send_signal(sent)
        out, err = process.communicate(timeout=PATIENCE_S)
        hang.set()
    found = json.loads(out)
    assert process.returncode == 6, err
    assert found["ended"] == "stopped"
    assert found["notes"][0] == "the comparison was stopped: this is a partial report, of 16 records"
    assert found["records"]["asked"] == found["candidates"][0]["records"] == 16


def test_sentences_are_printed_before_the_page_waits_and_sigterm_keeps_the_report(tmp_path: Path) -> None:
    with scripted_server(well) as production, scripted_server(well) as candidate:
        asked = [*asked_of(production, candidate), *prompts(tmp_path), "--until", "20", "--page"]
        process = started([*asked, "--md", "report.md"], tmp_path)
        assert process.stderr is not None
        said: list[str] = []
        while "Labels are taken on the page" not in (said or [""])[-1]:
            said.append(process.stderr.readline())
            assert said[-1], said
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
    [found] = json.loads(out)["candidates"]
    assert f"{found['sentence']}.\n" in said
    assert process.returncode == 6
    assert found["sentence"].split(":")[0] in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_report_and_page_name_date_addresses_models_and_the_change_of_the_prompt(tmp_path: Path) -> None:
    def named(asked: Asked) -> Reply:
        message = {"role": "assistant", "content": "yes"}
        body = {"model": "m-2026-11", "choices": [{"message": message, "finish_reason": "stop"}]}
        return Reply(json.dumps(body).encode())

    messages = [{"role": "system", "content": "Be kind.\nBe brief."}, {"role": "user", "content": "Well?"}]
    (tmp_path / "asked.jsonl").write_text(json.dumps({"model": "m", "messages": messages}), encoding="utf-8")
    prompt = tmp_path / "prompt.md"
    prompt.write_text("Be kind.\nBe thorough.", encoding="utf-8")
    with scripted_server(named) as production:
        arguments = ["--production", f"{production.url}/v1", "--candidate", str(prompt), "--json"]
        page = tmp_path / "page.html"
        files = ["--from", str(tmp_path / "asked.jsonl"), "--html", str(page)]
        done = CliRunner().invoke(app, ["compare", *arguments, *files])
    found = json.loads(done.stdout)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", found["began"])
    assert found["production"]["address"] == f"{production.url}/v1"
    assert found["production"]["models"] == found["candidates"][0]["models"] == ["m-2026-11"]
    shown = page.read_text(encoding="utf-8")
    for text in ("<del>- Be brief.</del>", "<ins>+ Be thorough.</ins>", found["began"][:10], "m-2026-11"):
        assert text in shown


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    hang = threading.Event()
    with scripted_server(well) as production, scripted_server(lambda _: Reply(wait=hang)) as candidate:
        process = started(
            [*asked_of(production, candidate), *prompts(tmp_path), "--deadline", LONG_S], tmp_path
        )
        until(lambda: candidate.asked)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # two signals at once are one
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
        hang.set()
    assert (process.returncode, out) in ((130, ""), (5, out))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_comparison_leaves_no_process_of_a_model_behind(
    sent: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, pathlib, time\n\n\ndef answer(record):\n"
        "    pathlib.Path(str(os.getpid()) + '.pid').touch()\n    time.sleep(10000)\n\n\nother = answer\n",
        encoding="utf-8",
    )
    rows = "".join(json.dumps({"id": str(x), "inputs": {"x": x}}) + "\n" for x in range(100))
    (tmp_path / "rows.jsonl").write_text(rows, encoding="utf-8")
    both = ["--production", "slow.py:answer", "--candidate", "slow.py:other"]
    process = started([*both, "--from", "rows.jsonl", "--deadline", LONG_S], tmp_path)
    until(lambda: len([*tmp_path.glob("*.pid")]) == 2)
    process.send_signal(sent)
    process.communicate(timeout=PATIENCE_S)
    for model in tmp_path.glob("*.pid"):
        until(lambda pid=int(model.stem): is_gone(pid))  # type: ignore[misc]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return True
    return state == "Z"
