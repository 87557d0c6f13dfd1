"""Chats without an entity, and sorted files: verdicts hold as for independent records in any order."""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions import Batch
from outrider.monitor.compare.answers import Answers
from outrider.monitor.compare.conversations import Conversations
from outrider.monitor.compare.drawn_order import DrawnTraffic
from outrider.monitor.compare.followed import FollowedTraffic, mirrored_line
from outrider.monitor.compare.plan import ComparePlan, Until
from outrider.monitor.compare.run import ComparisonRun, drive
from outrider.monitor.compare.traffic import Traffic
from tests.soak import rounds


class Talks:
    """System that answers a talk wrongly in every turn, or in none, and some questions by chance.

    Parameters
    ----------
    wrong
        Talks that it answers wrongly, by number.
    """

    def __init__(self, name: str, *, wrong: Sequence[int] = (), noise: float = 0.0, seed: int = 0) -> None:
        self.name, self._wrong, self._noise = name, {*wrong}, noise
        self._random = np.random.default_rng(seed)
        self.retries = 0
        self.borrowed: Counter[str] = Counter()
        self.asked: list[tuple[int, int]] = []
        """Talk and number of messages of each question."""

    def ask(self, questions: Batch, /) -> Answers:
        said = []
        for body in questions.arrow("inputs.request").to_pylist():
            messages = json.loads(body)["messages"]
            talk = int(messages[-1]["content"].partition("talk ")[2].split()[0])
            self.asked.append((talk, len(messages)))
            is_chance = self._random.random() < self._noise
            said.append(f"class {self._random.integers(7) if is_chance else 8 + (talk in self._wrong)}")
        outputs = {"id": questions.keys, "outputs.label": said}
        return Answers.recorded(Batch.from_columns(outputs, model="m", rows=questions.rows))

    def close(self) -> None:
        """Nothing is held."""


def talk(number: int, turns: int, greeting: str = "") -> Iterator[dict[str, Any]]:
    """Requests of one conversation: each begins with the messages of those before."""
    said: list[dict[str, str]] = []
    for turn in range(turns):
        text = greeting if greeting and not turn else f"talk {number} turn {turn}"
        said.append({"role": "user", "content": text})
        system = {"role": "system", "content": f"It is {turn}:00."}
        yield {"model": "m", "messages": [system, *said]}
        said.append({"role": "assistant", "content": "I see."})


def write(path: Path, lengths: Sequence[int]) -> Path:
    lines = (json.dumps(each) + "\n" for at, turns in enumerate(lengths) for each in talk(at, turns))
    path.write_text("".join(lines), encoding="utf-8")
    return path


def word(path: Path, seed: int, wrong: Sequence[int], noise: float) -> str:
    """Verdict on a candidate that answers some talks wrongly, margin 2 %."""
    run = ComparisonRun(
        Talks("production", noise=noise, seed=3 * seed),
        [Talks("candidate", wrong=wrong, noise=noise, seed=3 * seed + 1)],
        ComparePlan(seed=seed),
    )
    drive(run, DrawnTraffic(Traffic([path]), seed), Until(), stop=threading.Event(), tell=lambda _: None)
    run.close()
    return run.results[0].conclusion.word


@pytest.mark.parametrize("kind", ["one question", "one greeting", "examples before"])
def test_traffic_that_begins_alike_still_ends(kind: str, tmp_path: Path) -> None:
    greeting = {"one greeting": "Hi, talk 0 too", "examples before": ""}.get(kind, "")
    lines = []
    for at in range(1500):
        requests = [*talk(at if kind != "one question" else 0, 2 if greeting else 1, greeting)]
        if kind == "examples before":
            example = [{"role": "user", "content": "talk 0 ?"}, {"role": "assistant", "content": "I see."}]
            requests = [each | {"messages": [*example, *each["messages"][1:]]} for each in requests]
        lines += [json.dumps(each) + "\n" for each in requests]
    (tmp_path / "a.jsonl").write_text("".join(lines), encoding="utf-8")
    assert word(tmp_path / "a.jsonl", 1, [], 0.0) == "same"
    drawn = DrawnTraffic(Traffic([tmp_path / "a.jsonl"]))
    assert sum(batch.rows for batch in drawn) == 1500


def lengths_of(seed: int, talks: int = 1500) -> list[int]:
    """Turns of each talk: most are short, some have thirty."""
    found: list[int] = np.clip(np.random.default_rng([seed, 9]).geometric(0.25, talks), 1, 30).tolist()
    return found


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("where", ["anywhere", "long", "first"])
def test_a_candidate_within_the_margin_is_not_called_different(
    noise: float, where: str, tmp_path: Path
) -> None:
    runs = rounds(200, part=200)
    found = Counter(simulated(tmp_path, seed, 0.01, where, noise) for seed in range(runs))
    assert found["different"] <= 0.01 * runs
    assert found["worse"] + found["better"] == 0


@pytest.mark.costly("counts verdicts on simulated traffic, whose size is the claim")
@pytest.mark.parametrize("where", ["anywhere", "long", "last"])
def test_a_candidate_beyond_the_margin_is_not_called_same(where: str, tmp_path: Path) -> None:
    runs = rounds(200, part=200)
    found = Counter(simulated(tmp_path, seed, 0.04, where, 0.0) for seed in range(runs))
    assert found["same"] + found["close"] <= 0.01 * runs


def simulated(folder: Path, seed: int, share: float, where: str, noise: float) -> str:
    """Verdict where a share of the talks is answered wrongly: drawn ones, the longest, or a file's part."""
    lengths = lengths_of(seed)
    count = round(share * len(lengths))
    order = {
        "anywhere": np.random.default_rng([seed, 8]).permutation(len(lengths)),
        "long": np.argsort(lengths, kind="stable")[::-1],
        "first": np.arange(len(lengths)),
        "last": np.arange(len(lengths))[::-1],
    }[where]
    return word(write(folder / f"{seed}.jsonl", lengths), seed, order[:count].tolist(), noise)


def names(*chats: Sequence[dict[str, str]]) -> list[str | None]:
    known = Conversations()
    return [known.name(json.dumps({"messages": chat})) for chat in chats]


def chat(*said: str, system: str = "") -> list[dict[str, str]]:
    turns = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]
    return ([{"role": "system", "content": system}] if system else []) + turns


@given(st.data())
def test_turns_of_one_conversation_are_one_in_any_order(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    asked = [
        (at, request["messages"]) for at, turns in enumerate(lengths) for request in talk(at, turns)
    ]  # fmt: skip
    order = data.draw(st.permutations(asked))
    found = names(*(messages for _, messages in order))
    assert len({*zip((at for at, _ in order), found, strict=True)}) == len(lengths) == len({*found})


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_conversations_that_greet_alike_stay_whole_behind_the_greeting(
    lengths: list[int], random: Any
) -> None:
    turns = [list(talk(at, count, "hi")) for at, count in enumerate(lengths)]
    asked = [(at, at_turn, r["messages"]) for at, each in enumerate(turns) for at_turn, r in enumerate(each)]
    random.shuffle(asked)
    asked.sort(key=lambda each: each[1])  # turns come in their order, conversations in any
    found = names(*(messages for _, _, messages in asked))
    of_talk = [(at, name) for (at, turn, _), name in zip(asked, found, strict=True) if turn]
    assert len({*of_talk}) == len({at for at, _ in of_talk}) == len({name for _, name in of_talk})
    assert len({*found}) == len(lengths)


def test_a_question_asked_again_and_questions_behind_examples_stand_alone() -> None:
    examples = ("2 + 2?", "4", "3 + 3?", "6")
    assert names(*[chat("hi")] * 3) == ["chat 0", "chat 1", "chat 2"]
    assert len({*names(*(chat(*examples, f"{at} + 1?") for at in range(50)))}) == 50
    behind = [chat(*examples, "5 + 1?"), chat(*examples, "7 + 1?"), chat(*examples, "5 + 1?", "6", "Sure?")]
    assert names(*behind) == ["chat 0", "chat 1", "chat 0"]


def test_what_changes_between_turns_takes_no_conversation_apart() -> None:
    found = names(
        chat("Hi, it is me", system="It is 10:00."),
        chat("Hi, it is me", "Hello. Let me think at length.", "Where? PASSAGE", system="It is 10:01."),
        chat("Hi, it is me", "Hello.", "Where?", "There.", "Thanks", system="It is 10:02."),
    )
    assert found == ["chat 0"] * 3
    cached = {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}
    parts: list[Any] = [[{"role": "user", "content": [cached]}], chat("Hi", "Yes?", "Bye")]
    assert names(*parts) == ["chat 0", "chat 0"]


@pytest.mark.parametrize("body", ["{}", "[]", "no", '{"prompt": "x"}', '{"messages": [{"role": "system"}]}'])
def test_what_is_no_chat_has_no_conversation(body: str) -> None:
    assert Conversations().name(body) is None


def test_an_explicit_entity_is_kept_and_others_are_found(tmp_path: Path) -> None:
    one, two = list(talk(1, 2))
    lines = [
        {"request": one, "entity": "mine"},
        {"request": two, "entity": "mine"},
        one,
        two,
        next(talk(2, 1)),
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    found = [name for batch in Traffic([tmp_path / "a.jsonl"]) for name in batch.arrow("entity").to_pylist()]
    assert found == ["mine", "mine", "chat 0", "chat 0", "chat 1"]
    dropped = Traffic([tmp_path / "a.jsonl"], drop=["entity"])
    told = [name for batch in dropped for name in batch.arrow("entity").to_pylist()]
    assert len({*told}) == 3


def test_live_copies_records_and_captures_are_known_by_their_beginnings(tmp_path: Path) -> None:
    requests = [each["messages"] for each in talk(1, 3)] + [each["messages"] for each in talk(2, 1)]
    copies = [
        mirrored_line("/v1/chat/completions", {}, json.dumps({"model": "m", "messages": each}).encode())
        for each in requests
    ]
    journal = pa.table(
        {"id": ["1", "2", "3", "4"], "inputs.messages": [json.dumps(each) for each in requests]}
    )
    pq.write_table(journal, tmp_path / "a.parquet")
    sources: list[Traffic] = [
        FollowedTraffic([[each] for each in copies], "mirror"),
        FollowedTraffic([journal.slice(0, 2), None, journal.slice(2)], "model"),
        Traffic([tmp_path / "a.parquet"]),
    ]
    for source in sources:
        found = [name for batch in source if batch.rows for name in batch.arrow("entity").to_pylist()]
        assert found == ["chat 0"] * 3 + ["chat 1"]
