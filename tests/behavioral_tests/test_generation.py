"""Candidates of a language model count for nothing until a person has said so."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests import load_suite
from outrider.behavioral_tests.generation import candidates, chat_generator, parse_items
from outrider.behavioral_tests.suite_file import WrittenCase, WrittenTest
from outrider.errors import ConfigError, NotFound, ServerError
from tests.chat_server import chat_server
from tests.commands.test_test_command import call

LIKE = WrittenTest(
    name="short",
    kind="MFT",
    capability="vocabulary",
    description="plain words",
    cases=[
        WrittenCase(id="0", inputs=["good"], label="positive"),
        WrittenCase(id="1", inputs=["bad"], label="negative"),
    ],
)
SUITE = {
    "outrider_suite": 1,
    "name": "mood",
    "tests": [
        {"name": "short", "kind": "MFT", "cases": [{"id": "0", "inputs": ["good"], "label": "positive"}]},
        {"name": "pair", "kind": "INV", "cases": [{"id": "0", "inputs": ["good", "Good"]}]},
    ],
}


def positive(batch: Batch) -> dict[str, NDArray[Any]]:
    return {"label": np.full(batch.rows, "positive", dtype=object)}


def test_cases_come_per_right_answer_and_none_is_reviewed() -> None:
    asked: list[str] = []

    def generate(prompt: str) -> list[Any]:
        asked.append(prompt)
        said = "lovely" if '"positive"' in prompt else "awful"
        return ["good", said, said, f" so {said} ", 3, ["x"], f"{said}!"]

    found = candidates(LIKE, generate, count=4, prompt="About food.", model="m", at="now")
    cases = found.test.cases
    assert [(case.inputs[0], case.label) for case in cases] == [
        ("lovely", "positive"),
        ("so lovely", "positive"),
        ("awful", "negative"),
        ("so awful", "negative"),
    ]
    assert not any(case.reviewed for case in cases)
    assert {case.source.model for case in cases if case.source} == {"m"}
    assert len({case.source.prompt for case in cases if case.source}) == 2
    assert (found.repeated, found.malformed) == (4, 4)
    assert len(asked) == 2
    assert all("About food." in prompt and "Write 2 new cases" in prompt for prompt in asked)


def test_an_answer_that_never_suffices_ends() -> None:
    asked = []

    def generate(prompt: str) -> list[Any]:
        asked.append(prompt)
        return ["one", "one"]

    found = candidates(LIKE, generate, count=10)
    assert len(found.test.cases) == 1
    assert len(asked) == 6


def test_pairs_and_fields_keep_their_form() -> None:
    pair = WrittenTest(name="p", kind="INV", cases=[WrittenCase(id="0", inputs=[{"q": "a"}, {"q": "b"}])])
    answers: list[Any] = [[{"q": "x"}, {"q": "y"}], [{"q": "x"}], {"q": "x"}, [{"z": 1}, {"z": 2}]]
    found = candidates(pair, lambda prompt: answers, count=3)
    assert [case.inputs for case in found.test.cases] == [[{"q": "x"}, {"q": "y"}]]
    with pytest.raises(ValueError, match="say in a prompt what is wanted"):
        candidates(WrittenTest(name="n", kind="MFT", cases=[]), lambda prompt: [], count=1)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ('["a", "b"]', ["a", "b"]),
        ('Think [hard]. ```json\n["a"]\n```', ["a"]),
        ("- a\n- b\nthat is all", ["a", "b"]),
        ("I cannot do that.", []),
        ("[" * 5000, []),
    ],
)
def test_answers_of_many_forms_are_read(text: str, items: list[str]) -> None:
    assert parse_items(text) == items


def test_an_endpoint_is_asked_with_its_key_and_its_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY_OF_THIS_TEST", "k")
    with chat_server(lambda prompt: '["a", "b"]') as server:
        assert chat_generator(server.url, "m", key_env="A_KEY_OF_THIS_TEST")("?") == ["a", "b"]
        assert server.keys == ["Bearer k"]
        assert server.bodies[0]["model"] == "m"
    with chat_server(lambda prompt: "503 busy") as server, pytest.raises(ServerError, match="503"):
        chat_generator(server.url, "m")("?")
    with chat_server(lambda prompt: "302 there") as server:
        with pytest.raises(ServerError, match="302"):
            chat_generator(server.url, "m", key_env="A_KEY_OF_THIS_TEST")("?")
        assert len(server.keys) == 1
    with pytest.raises(ServerError, match="gave no cases"):
        chat_generator("http://127.0.0.1:9/v1", "m")("?")
    with pytest.raises(ValueError, match="http"):
        chat_generator("file:///etc/passwd", "m")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mood.suite.json").write_text(json.dumps(SUITE))
    return tmp_path


def say(prompt: str) -> str:
    if "changed copies" in prompt:
        return json.dumps([["fine", "FINE"]])
    return json.dumps(["lovely", "good", "great \x1b[31m"])


def told(*arguments: str) -> Any:
    code, text = call("test", *arguments, "--json")
    assert code == 0
    return json.loads(text)


def test_candidates_wait_for_a_person(project: Path) -> None:
    file = "new.suite.json"
    with chat_server(say) as server:
        asked = [
            "generate",
            "--endpoint",
            server.url,
            "--model",
            "m",
            "--like",
            "mood.suite.json",
            "-o",
            file,
        ]
        assert told(*asked, "-n", "2") == {"file": file, "candidates": 3, "repeated": 3, "malformed": 0}
        assert told(*asked, "-n", "2")["candidates"] == 0
    suite = load_suite(file)
    assert (suite.candidates, suite.tests) == (3, ())
    assert suite.run(positive) == ()

    listed = told("review", file)["candidates"]
    assert [(each["test"], each["inputs"]) for each in listed] == [
        ("short", ["lovely"]),
        ("short", ["great \x1b[31m"]),
        ("pair", ["fine", "FINE"]),
    ]
    code, _ = call("test", "review", file, "--accept-all")
    assert code == 2
    assert load_suite(file).candidates == 3
    with pytest.raises(ConfigError, match="'nope' names 0 candidates"):
        call("test", "review", file, "--accept", "nope")

    first, second, third = (each["id"] for each in listed)
    assert call("test", "review", file, "--label", f"{second}=")[0] == 2
    done = told("review", file, "--accept", first, "--label", f"{second}=negative", "--source", "ann")
    assert (done["accepted"], done["rejected"], done["awaiting"]) == (2, 0, 1)
    (test,) = load_suite(file).tests
    assert test.run(positive).failures == 1
    kept = json.loads((project / file).read_text())["tests"][0]["cases"]
    assert [(case["label"], case["source"]["by"], "reviewed" in case) for case in kept] == [
        ("positive", "ann", False),
        ("negative", "ann", False),
    ]
    assert told("review", file, "--reject", f"pair::{third}")["awaiting"] == 0
    assert [test["name"] for test in json.loads((project / file).read_text())["tests"]] == ["short"]


def test_a_prompt_alone_makes_a_test_with_one_right_answer(project: Path) -> None:
    with chat_server(say) as server:
        asked = ["generate", "--endpoint", server.url, "--model", "m", "--prompt", "Praise of hotels."]
        assert call("test", *asked, "-o", "p.suite.json")[0] == 2  # which answer is right?
        assert told(*asked, "--label", "positive", "-o", "p.suite.json")["candidates"] == 3
        assert "Praise of hotels." in server.prompts[0]
    assert told("review", "p.suite.json", "--accept-all", "--yes-i-read-them")["accepted"] == 3
    assert load_suite("p.suite.json").run(positive)[0].passed


def test_a_person_is_asked_one_after_another(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with chat_server(say) as server:
        asked = ["generate", "--endpoint", server.url, "--model", "m", "--like", "mood.suite.json::short"]
        told(*asked, "-o", "c.suite.json")
    answers = iter(["l", "", "q", "l", "negative", "r"])
    monkeypatch.setattr("builtins.input", lambda: next(answers))
    code, text = call("test", "review", "c.suite.json")
    assert (code, "0 accepted, 0 rejected, 2 candidates await review" in text) == (0, True)
    code, text = call("test", "review", "c.suite.json")
    assert code == 0
    assert "1 accepted, 1 rejected, 0 candidates await review" in text
    (case,) = json.loads(Path("c.suite.json").read_text())["tests"][0]["cases"]
    assert case["label"] == "negative"


def test_a_review_of_what_does_not_wait_is_refused(project: Path) -> None:
    from outrider.behavioral_tests.suite_file import read_written
    from outrider.behavioral_tests.suite_file.reviewing import ReviewDecision, decide

    with pytest.raises(NotFound, match="no candidate '0' in test 'short' awaits review"):
        decide(
            read_written(project / "mood.suite.json"),
            {("short", "0"): ReviewDecision(accept=True)},
            by="x",
            at="",
        )
