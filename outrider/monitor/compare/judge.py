"""LLM judge of pairs of differing answers, corrected by human labels."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.comparison.judged import JudgedPairs
from outrider.behavioral_tests.asking.chat import judging_messages

from .answers import Asker
from .questions import MODEL, REQUEST

LABEL_SHARE = 0.25
"""Probability that a judged pair is selected for a human label."""
_PROMPT = """\
Two assistants answered the same question. Which answer is better, answer_1 or answer_2?
Say only 1, 2 or tie.
"""
_CHOICE = re.compile(r"\W*(?:answer[ _]?)?(1|2|tie)\W*", re.IGNORECASE)
_VALUES = {"1": 1.0, "2": -1.0, "tie": 0.0}


class PairJudge:
    """LLM judge that compares each pair of answers in both orders; ``budget`` is the maximum number of
    pairs."""

    def __init__(self, asker: Asker, *, budget: int) -> None:
        self._asker = asker
        self._left = budget
        self._known: dict[str, float] = {}

    def preferences(self, pairs: Sequence[dict[str, Any]]) -> list[float | None]:
        """Preference per pair, from -1 (production) to 1 (candidate), mean of both orders; None
        beyond the budget or if unreadable."""
        keys = [_digest(pair) for pair in pairs]
        new = [at for at, key in enumerate(keys) if key not in self._known][: self._left]
        if new:
            self._left -= len(new)
            values = self._ask([pairs[at] for at in new])
            self._known |= {
                keys[at]: value for at, value in zip(new, values, strict=True) if value is not None
            }
        return [self._known.get(key) for key in keys]

    def close(self) -> None:
        self._asker.close()

    def _ask(self, pairs: Sequence[dict[str, Any]]) -> list[float | None]:
        orders = (("candidate", "production"), ("production", "candidate"))
        bodies = [_body(pair, *order) for order in orders for pair in pairs]
        columns = {"id": [str(at) for at in range(len(bodies))], REQUEST: pa.array(bodies, pa.string())}
        answers = self._asker.ask(Batch.from_columns(columns, model=MODEL, rows=len(bodies)))
        texts = answers.outputs.arrow("outputs.text").to_pylist() if answers.is_answered.any() else []
        values = [_value(text) for text in texts] or [None] * len(bodies)
        first, second = values[: len(pairs)], values[len(pairs) :]
        return [
            None if one is None or two is None else (one - two) / 2
            for one, two in zip(first, second, strict=True)
        ]


def is_drawn(question: str, seed: int) -> bool:
    """True if a hash of its id selects a judged pair for a human label."""
    digest = hashlib.blake2b(f"{seed}:{question}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < LABEL_SHARE * 2**64


def judged_pairs(judged: Mapping[str, float], labels: Mapping[str, float], seed: int) -> JudgedPairs:
    """Judgements up to the first selected pair without a label, since later ones would rest on the
    judge alone."""
    names = [*takewhile(lambda name: name in labels or not is_drawn(name, seed), judged)]
    values = np.array([judged[name] for name in names])
    known: NDArray[np.float64] = np.array(
        [labels[name] if is_drawn(name, seed) else np.nan for name in names], dtype=np.float64
    )
    return JudgedPairs.of(values, known, np.full(len(names), LABEL_SHARE))


def _body(pair: dict[str, Any], one: str, two: str) -> str:
    values = {"question": _question(pair), "answer_1": pair[one], "answer_2": pair[two]}
    messages = judging_messages(_PROMPT, values)
    return json.dumps({"messages": messages, "temperature": 0, "max_tokens": 8})


def _question(pair: dict[str, Any]) -> str:
    inputs = pair["inputs"]
    try:
        body = json.loads(inputs[REQUEST.removeprefix("inputs.")])
        return json.dumps(body.get("messages") or body.get("prompt"), ensure_ascii=False)
    except (KeyError, TypeError, ValueError, AttributeError):
        return json.dumps(inputs, ensure_ascii=False, default=str)


def _value(text: str | None) -> float | None:
    found = _CHOICE.fullmatch(text or "")
    return None if found is None else _VALUES[found[1].lower()]


def _digest(pair: dict[str, Any]) -> str:
    text = json.dumps([_question(pair), pair["production"], pair["candidate"]])
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
