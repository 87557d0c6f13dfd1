"""Sentences of ``outrider compare`` on odd traffic, slices, caches, twins and prices."""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from outrider.cli import app
from outrider.errors import ConfigError
from tests.scripted_server import Answer, Asked, Reply, scripted_server


def completion(text: str, **headers: str) -> Reply:
    body = {
        "id": f"c{random.getrandbits(60)}",
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 4},
    }
    return Reply(json.dumps(body).encode(), headers=headers)


def question(asked: Asked) -> str:
    return str(json.loads(asked.body)["messages"][-1]["content"])


def well(asked: Asked) -> Reply:
    return completion(f"About {question(asked)} I know all there is.")


def cached(asked: Asked) -> Reply:
    return completion(f"About {question(asked)} I know all.", **{"x-cache": "HIT"})


def asks(number: int) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": f"thing {number}"}]}


def written(folder: Path, line: Callable[[int], Any], count: int = 60) -> Path:
    path = folder / "traffic.jsonl"
    path.write_text("".join(json.dumps(line(at)) + "\n" for at in range(count)), encoding="utf-8")
    return path


def compared(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)])


def between(production: Answer, candidate: Answer, *more: str | Path) -> Result:
    with scripted_server(production) as one, scripted_server(candidate) as two:
        return compared("--production", f"{one.url}/v1", "--candidate", f"{two.url}/v1", *more)


def cut(number: int) -> Mapping[str, Any]:
    return {"id": str(number), "request": json.dumps(asks(number))[:30], "path": "/v1/chat/completions"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (lambda at: asks(at) | {"store": True}, "60 requests are not asked: store: the server keeps"),
        (cut, "60 records cannot be read; the first is traffic.jsonl:1"),
    ],
)
def test_traffic_without_a_question_says_why(line: Callable[[int], Any], said: str, tmp_path: Path) -> None:
    found = between(well, well, "--from", written(tmp_path, line))
    assert found.exit_code == 5
    assert said in found.stdout


def test_traffic_without_answers_names_the_option_that_gets_them(tmp_path: Path) -> None:
    with scripted_server(well) as candidate:
        found = compared("--candidate", f"{candidate.url}/v1", "--from", written(tmp_path, asks))
        assert not [asked for asked in candidate.asked if asked.method == "POST"]
    assert found.exit_code == 5
    assert "60 records hold no answer of production: name --production to ask it" in found.stdout


def test_a_slice_that_is_nowhere_and_what_was_redacted_are_told(tmp_path: Path) -> None:
    traffic = written(tmp_path, lambda at: {"request": asks(at), "attrs": {"country": "IS", "email": "a@b"}})
    options = ["--slice", "attrs.county", "--drop", "attrs.email", "--hash", "inputs.request.user"]
    page, table = tmp_path / "report.html", tmp_path / "report.md"
    found = between(well, well, "--from", traffic, *options, "--html", page, "--md", table)
    assert "no record has it" in page.read_text(encoding="utf-8")
    assert "no record has it" in table.read_text(encoding="utf-8")
    assert "--slice attrs.county: no record has it; there is attrs.country" in found.stdout
    assert "dropped or redacted: attrs.email" in found.stdout
    assert "inputs.request.user did not occur: check its spelling" in found.stdout


def test_a_target_that_production_does_not_answer_is_refused(tmp_path: Path) -> None:
    found = between(well, well, "--from", written(tmp_path, asks), "--target", "nope")
    assert isinstance(found.exception, ConfigError)
    assert str(found.exception).startswith("--target nope: no such output; production answers")


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_a_cache_that_answers_for_both_proves_nothing(tmp_path: Path) -> None:
    traffic = written(tmp_path, asks, 400)
    by_header = between(cached, cached, "--from", traffic, "--margin", "0.2")
    answers: dict[str, Reply] = {}

    def silently(asked: Asked) -> Reply:
        return answers.setdefault(question(asked), well(asked))

    by_bytes = between(silently, silently, "--from", traffic, "--margin", "0.2")
    for found in (by_header, by_bytes):
        assert found.exit_code == 6
        assert "undecided: a cache seems to answer for both; have it pass by requests" in found.stdout


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
def test_candidates_that_are_one_are_told(tmp_path: Path) -> None:
    traffic = written(tmp_path, asks)
    with scripted_server(well) as production, scripted_server(well) as one, scripted_server(well) as other:
        first = ["--production", f"{production.url}/v1", "--from", str(traffic)]
        twice = compared(*first, "--candidate", f"{one.url}/v1", "--candidate", f"{one.url}/v1/")
        path = f"{one.url}/v1/chat/completions"
        named = compared(*first, "--candidate", path, "--candidate", f"{path}?a=1", "--json")
        alike = compared(*first, "--candidate", f"{one.url}/v1", "--candidate", f"{other.url}/v1")
        own = compared(*first, "--candidate", f"{production.url}/v1")
    assert twice.exit_code == 2
    names = [each["name"] for each in json.loads(named.stdout)["candidates"]]
    assert names == [path[7:], f"{path[7:]} (2)"]
    assert "gave equal answers to all 60 questions: are they one?" in alike.stdout
    assert "A candidate is production itself" in own.stderr


def test_records_questions_and_cost_are_told_first(tmp_path: Path) -> None:
    traffic = written(tmp_path, asks)
    found = between(well, well, "--from", traffic, "--price", "production=1/2", "--json")
    assert "An equal candidate is proven by about" in found.stderr
    assert "That costs about: production" in found.stderr
    plan = json.loads(found.stdout)["plan"]
    quiet, noisy = plan["expected"]
    assert quiet["records"] < quiet["production"] == quiet["candidate"] < noisy["candidate"]
    assert plan["cost"]["production"][0] == pytest.approx(quiet["production"] * (10 * 1 + 4 * 2) / 1e6)
    wrong = between(well, well, "--from", traffic, "--price", "nobody=1/2")
    assert wrong.exit_code == 2


def test_retries_are_counted_and_the_rate_is_kept(tmp_path: Path) -> None:
    seen: set[str] = set()

    def busy(asked: Asked) -> Reply:
        if question(asked) in seen:
            return well(asked)
        seen.add(question(asked))
        return Reply(b"", 429, {"retry-after": "0"})

    with scripted_server(busy) as production, scripted_server(well) as candidate:
        both = ["--production", f"{production.url}/v1", "--candidate", f"{candidate.url}/v1"]
        found = compared(*both, "--from", written(tmp_path, asks, 20), "--rate", "20", "--json")
        times = sorted(asked.at for asked in production.asked)
    report = json.loads(found.stdout)
    assert report["production"]["retries"] == 20
    assert any("asked for patience 20 times" in note for note in report["notes"])
    assert len(times) >= 40
    assert (times[-1] - times[0]) >= 0.9 * (len(times) - 1) / 20


def test_of_a_conversation_that_has_no_entity_one_record_is_asked(tmp_path: Path) -> None:
    def turn(at: int) -> dict[str, Any]:
        earlier = [{"role": "user", "content": f"Hi {at // 3}"}, {"role": "assistant", "content": "Hello."}]
        later = [*earlier, *asks(at)["messages"]]
        return {"model": "m", "messages": (earlier[:1], later, [*later, earlier[1], earlier[0]])[at % 3]}

    path = written(tmp_path, turn)
    first, second, other = (
        between(well, well, "--from", path, "--json", "--seed", seed) for seed in ("0", "0", "1")
    )
    found = json.loads(first.stdout)
    assert (found["records"]["asked"], found["records"]["further turns"]) == (20, 40)
    assert found["candidates"][0]["records"] == 20
    assert "40 records are not asked: of each conversation one counts, which is drawn" in found["notes"]
    assert (found["plan"]["seed"], json.loads(other.stdout)["plan"]["seed"]) == (0, 1)
    assert json.loads(second.stdout)["records"] == found["records"]
