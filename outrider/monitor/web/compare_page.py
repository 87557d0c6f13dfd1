"""Page of a comparison: verdicts, bounds over time, examples side by side."""

import base64
import difflib
import hashlib
import math
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args
from urllib.parse import parse_qsl

from fastapi import Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse

from outrider.monitor.compare.labelled import Right
from outrider.monitor.compare.report import question_of, shuffled
from outrider.monitor.http.limits import BodyBounds, ClientGone, Receive, Scope, Send, read_body
from outrider.monitor.http.problem import ProblemError
from outrider.monitor.http.responses import send_problem

from .rendering import HERE, Pages

WIDTH, HEIGHT = 340.0, 90.0
MOST_WORDS = 400
"""Longer answers are cut before differences are looked for, which takes the square of their length."""
SCRIPT = (HERE / "static" / "compare.js").read_text(encoding="utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; "
    f"form-action 'self'; frame-ancestors 'none'; img-src data:; script-src 'sha256-{_DIGEST}'",
}
_FORM = BodyBounds(16_384, 100, "a label")
Piece = tuple[str, bool]
"""Text, and whether the other answer says something else there."""


@dataclass(frozen=True, slots=True)
class ExampleView:
    """Question with both answers, their differences marked."""

    id: str
    slice: str
    question: str
    production: tuple[Piece, ...]
    candidate: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class CandidateView:
    """Candidate with the data of its chart.

    Attributes
    ----------
    band, line
        Bounds and middle of the difference by records, as points of an SVG.
    top
        Share at the upper end of the chart.
    margin
        Height of the margin in the chart.
    """

    found: Mapping[str, Any]
    band: str
    line: str
    top: float
    margin: float
    examples: tuple[ExampleView, ...]
    labelled: int
    asked: "AskedPair | None"
    """The next pair to label, on a live page."""


@dataclass(frozen=True, slots=True)
class AskedPair:
    """Pair to label, its sides in an order that tells nothing.

    Attributes
    ----------
    a_is, b_is
        ``production`` and ``candidate``, in one order or the other.
    """

    id: str
    question: str
    a: tuple[Piece, ...]
    b: tuple[Piece, ...]
    a_is: str
    b_is: str


def compare_page(report: Mapping[str, Any]) -> str:
    """Self-contained page of a report."""
    return _page(report, here="")


class ComparePage:
    """ASGI application: the page of a running comparison, and its labels.

    The address holds a secret: whoever knows it sees the page and may label.

    Parameters
    ----------
    report
        Gives the report as of now.
    label
        Takes candidate, question and which side is right; False where there is no such pair.
    """

    def __init__(
        self, report: Callable[[], Mapping[str, Any]], label: Callable[[str, str, Right], bool]
    ) -> None:
        self.path = f"/compare/{secrets.token_urlsafe(16)}"
        self._report = report
        self._label = label

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for the page, or take a label."""
        method, path = scope["method"], scope["path"]
        if method == "GET" and path == self.path:
            page = await run_in_threadpool(lambda: _page(self._report(), here=self.path))
            await HTMLResponse(page, headers=_HEADERS)(scope, receive, send)
        elif method == "POST" and path == f"{self.path}/labels":
            try:
                body = await read_body(receive, dict(scope["headers"]), _FORM)
            except ClientGone:
                return
            except ProblemError as error:
                await send_problem(send, error.problem)
                return
            form = dict(parse_qsl(body.decode(errors="replace")))
            right = form.get("right")
            is_known = right in get_args(Right) and self._label(
                form.get("candidate", ""), form.get("id", ""), cast("Right", right)
            )
            await Response(status_code=204 if is_known else 422)(scope, receive, send)
        else:
            await Response("Not found", status_code=404)(scope, receive, send)


def _page(report: Mapping[str, Any], *, here: str) -> str:
    views = [_view(each, report["margin"], is_live=bool(here)) for each in report["candidates"]]
    script = SCRIPT if here else ""
    return Pages().standalone("compare.html", {"r": report, "views": views, "here": here, "script": script})


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


def _view(candidate: Mapping[str, Any], margin: float, *, is_live: bool) -> CandidateView:
    looks = candidate["history"]
    top = min(1.0, max([2.5 * margin, *[1.2 * look["high"] for look in looks[len(looks) // 3 :]]]))
    points = [(look, _x(at, looks)) for at, look in enumerate(looks)]
    high = [f"{x},{_y(look['high'], top)}" for look, x in points]
    low = [f"{x},{_y(look['low'], top)}" for look, x in reversed(points)]
    line = [f"{x},{_y(look['value'], top)}" for look, x in points]
    is_open = candidate["verdict"] not in ("same", "close")
    open_pairs = [each for each in candidate["to_label"] if each["right"] is None]
    return CandidateView(
        candidate,
        " ".join(high + low),
        " ".join(line),
        top,
        _y(margin, top),
        tuple(_examples(candidate["examples"])),
        len(candidate["to_label"]) - len(open_pairs),
        _asked(open_pairs[0]) if is_live and open_pairs and is_open else None,
    )


def _asked(pair: Mapping[str, Any]) -> AskedPair:
    """Pair with its sides in a shuffled order."""
    a_is, b_is = shuffled(pair["id"])
    return AskedPair(pair["id"], question_of(pair), *marked(pair[a_is], pair[b_is]), a_is, b_is)


def _x(at: int, looks: Sequence[Mapping[str, Any]]) -> float:
    """Place of a look: by the root of its records, so that the beginning is seen, too."""
    share = float(looks[at]["records"] / max(1, looks[-1]["records"]))
    return round(WIDTH * math.sqrt(share), 1)


def _y(share: float, top: float) -> float:
    return round(HEIGHT * (1.0 - min(share, top) / top), 1)


def _examples(examples: Sequence[Mapping[str, Any]]) -> Iterator[ExampleView]:
    for each in examples:
        sides = marked(each["production"], each["candidate"])
        yield ExampleView(each["id"], each["slice"], question_of(each), *sides)
