"""Report of a comparison with the data of its charts and pairs."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from outrider.monitor.compare.pair_texts import question_of, shuffled
from outrider.monitor.web.bounds_chart import BoundsChart, bounds_chart

MOST_WORDS = 400
"""Longer answers are cut before they are compared, which takes the square of their length."""
MOST_LINES = 400
PromptLine = tuple[Literal["same", "gone", "new"], str]
"""Line of both prompts, of production's alone, or of the candidate's alone."""
Piece = tuple[str, bool]
"""Text, and whether the other answer differs there."""


@dataclass(frozen=True, slots=True)
class ExampleView:
    id: str
    slice: str
    question: str
    production: tuple[Piece, ...]
    candidate: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class AskedPair:
    """Pair to label, in an order that does not tell which side ``a_is`` and ``b_is`` are."""

    id: str
    question: str
    a: tuple[Piece, ...]
    b: tuple[Piece, ...]
    a_is: str
    b_is: str


@dataclass(frozen=True, slots=True)
class CandidateView:
    """Candidate with its chart, its examples and, where labels are taken, the next pair to label."""

    found: Mapping[str, Any]
    chart: BoundsChart | None
    examples: tuple[ExampleView, ...]
    labelled: int
    asked: AskedPair | None
    prompt: tuple[PromptLine, ...] = ()
    """Lines of both prompts, where the candidate has its own."""


def views_of(report: Mapping[str, Any], *, takes_labels: bool) -> list[CandidateView]:
    own = report["production"].get("prompt", "")
    return [_view(each, report["margin"], takes_labels, own) for each in report["candidates"]]


def prompt_lines(one: str, other: str) -> tuple[PromptLine, ...]:
    r"""Lines of two prompts, with their differences.

    Examples
    --------
    >>> prompt_lines("Be kind.\nBe brief.", "Be kind.")
    (('same', 'Be kind.'), ('gone', 'Be brief.'))
    """
    first, second = (text.splitlines()[:MOST_LINES] for text in (one, other))
    found: list[PromptLine] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind == "equal":
            found += [("same", line) for line in first[a:b]]
        else:
            found += [("gone", line) for line in first[a:b]] + [("new", line) for line in second[c:d]]
    return tuple(found)


def marked(one: str, other: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Pieces of two texts, word by word, with their differences.

    Examples
    --------
    >>> marked("to Rome", "to Paris")
    ((('to ', False), ('Rome', True)), (('to ', False), ('Paris', True)))
    """
    first, second = (re.findall(r"\S+\s*|\s+", text)[:MOST_WORDS] for text in (one, other))
    matcher = difflib.SequenceMatcher(
        None, [w.strip() for w in first], [w.strip() for w in second], autojunk=False
    )
    sides: tuple[list[Piece], list[Piece]] = ([], [])
    for kind, a, b, c, d in matcher.get_opcodes():
        for side, words in ((sides[0], first[a:b]), (sides[1], second[c:d])):
            if words:
                side.append(("".join(words), kind != "equal"))
    return tuple(sides[0]), tuple(sides[1])


def _view(
    candidate: Mapping[str, Any], margin: float, takes_labels: bool, production_prompt: str
) -> CandidateView:
    is_open = candidate["verdict"] not in ("same", "close")
    open_pairs = [each for each in candidate["to_label"] if each["right"] is None]
    return CandidateView(
        candidate,
        bounds_chart(candidate["history"], margin),
        tuple(_examples(candidate["examples"])),
        len(candidate["to_label"]) - len(open_pairs),
        _asked(open_pairs[0]) if takes_labels and open_pairs and is_open else None,
        prompt_lines(production_prompt, candidate["prompt"]) if "prompt" in candidate else (),
    )


def _asked(pair: Mapping[str, Any]) -> AskedPair:
    a_is, b_is = shuffled(pair["id"])
    return AskedPair(pair["id"], question_of(pair), *marked(pair[a_is], pair[b_is]), a_is, b_is)


def _examples(examples: Sequence[Mapping[str, Any]]) -> Iterator[ExampleView]:
    for each in examples:
        sides = marked(each["production"], each["candidate"])
        yield ExampleView(each["id"], each["slice"], question_of(each), *sides)
