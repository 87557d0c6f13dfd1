"""Candidate cases from a language model: proposals for human review.

The hook is any function ``generate(prompt) -> texts``; :func:`chat_generator` makes one for an endpoint that
implements ``chat/completions``.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from outrider.errors import ServerError

from .asking.chat import MAX_ANSWER_BYTES, ask_chat
from .asking.server import ModelServer
from .suite_file import CaseSource, WrittenCase, WrittenTest

Item: TypeAlias = str | dict[str, Any] | list[Any]
Generate: TypeAlias = Callable[[str], Sequence[Item]]
"""Function from a prompt to proposed examples: texts or objects of input fields, for INV and DIR lists of the
original and its changed copies."""
ROUNDS = 3
SHOWN = 8
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")


@dataclass(frozen=True, slots=True)
class Generated:
    """Candidates as a test, with counts of the discarded answers."""

    test: WrittenTest
    repeated: int
    malformed: int


def candidates(
    like: WrittenTest,
    generate: Generate,
    *,
    count: int,
    prompt: str = "",
    model: str = "",
    at: str = "",
) -> Generated:
    """New, unreviewed cases like the cases of a test.

    ``generate`` is called once per distinct right answer of the test's cases, and up to twice more if it
    returns too few. A test without cases needs a ``prompt``.
    """
    if count < 1:
        raise ValueError(f"count must be >= 1, got {count}")
    if not like.cases and not prompt:
        raise ValueError(f"test {like.name!r} has no cases to show: say in a prompt what is wanted")
    groups = _by_label(like)
    known = {_digest(case.inputs) for case in like.cases}
    found: list[WrittenCase] = []
    repeated = malformed = 0
    for at_group, (label, examples) in enumerate(groups):
        wanted = (count - len(found)) // (len(groups) - at_group)
        kept: list[WrittenCase] = []
        for _ in range(ROUNDS):
            if len(kept) >= wanted:
                break
            asked = prompt_for(like, examples, label, wanted - len(kept), prompt)
            source = CaseSource(model=model, prompt=_digest(asked), at=at)
            for item in generate(asked):
                inputs = _inputs(item, like)
                if inputs is None:
                    malformed += 1
                elif (digest := _digest(inputs)) in known:
                    repeated += 1
                elif len(kept) < wanted:
                    known.add(digest)
                    kept.append(
                        WrittenCase(
                            id=f"c-{digest}", inputs=inputs, label=label, source=source, reviewed=False
                        )
                    )
        found += kept
    return Generated(replace(like, cases=found, labels=UNSET), repeated, malformed)


def prompt_for(
    like: WrittenTest, examples: Sequence[WrittenCase], label: Any | UnsetType, count: int, more: str = ""
) -> str:
    """Prompt for new cases: test, examples, and format of the answer."""
    lines = [
        "You write test cases for a machine-learning model.",
        f"Capability under test: {like.capability}. {like.description}".strip(),
    ]
    if like.kind == "MFT":
        lines += [] if label is UNSET else [f"The right answer to every case is: {json.dumps(label)}"]
        item = "strings" if _is_text(like) else f"objects with the fields {', '.join(_fields(like))}"
        form = f"a JSON array of {item}"
    else:
        change = "must not change" if like.kind == "INV" else "must change in the direction shown"
        lines.append(f"Each case is an input and changed copies of it, for which the answer {change}.")
        form = "a JSON array of arrays, each with the original first and its changed copies behind it"
    if examples:
        shown = [case.inputs[0] if like.kind == "MFT" else case.inputs for case in examples[:SHOWN]]
        lines.append(f"Cases that exist: {json.dumps(shown, ensure_ascii=False)}")
    lines += [more] if more else []
    lines.append(
        f"Write {count} new cases, each different from these and from each other. Answer with {form} only."
    )
    return "\n".join(lines)


def chat_generator(
    url: str, model: str, *, key_env: str | None = None, deadline_s: float = 120.0, temperature: float = 1.0
) -> Generate:
    """Generator that calls a ``chat/completions`` endpoint.

    Parameters
    ----------
    key_env
        Environment variable with the endpoint's key.

    Raises
    ------
    ValueError
        If ``url`` is not http or https.
    """
    server = ModelServer(url, deadline_s=deadline_s, key_env=key_env, max_bytes=MAX_ANSWER_BYTES)

    def generate(prompt: str) -> list[Item]:
        messages = [{"role": "user", "content": prompt}]
        reply = ask_chat(server, {"model": model, "messages": messages, "temperature": temperature})
        if reply.text is None:
            raise ServerError(f"{server.name} gave no cases: {reply.why}")
        return parse_items(reply.text)

    return generate


def parse_items(text: str) -> list[Item]:
    r"""Examples from an answer's first JSON array, else one per line.

    Examples
    --------
    >>> parse_items('Sure! ```json\n["The food was cold.", "Never again."]\n```')
    ['The food was cold.', 'Never again.']
    >>> parse_items("1. The food was cold.\n2. Never again.")
    ['The food was cold.', 'Never again.']
    """
    decoder, at = json.JSONDecoder(), text.find("[")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            value = None
        if isinstance(value, list) and value:
            return value
        at = text.find("[", at + 1)
    return [_BULLET.sub("", line).strip() for line in text.splitlines() if _BULLET.match(line)]


def _by_label(like: WrittenTest) -> list[tuple[Any | UnsetType, list[WrittenCase]]]:
    """Cases by right answer, in order of appearance; a single group if there are no answers."""
    if like.kind != "MFT" or not like.cases:
        return [(like.labels if like.kind == "MFT" else UNSET, like.cases)]
    groups: dict[str, tuple[Any | UnsetType, list[WrittenCase]]] = {}
    for case in like.cases:
        label = like.labels if case.label is UNSET else case.label
        key = "" if label is UNSET else json.dumps(label, sort_keys=True)
        groups.setdefault(key, (label, []))[1].append(case)
    return list(groups.values())


def _inputs(item: Item, like: WrittenTest) -> list[str | dict[str, Any]] | None:
    """Inputs of a proposed case; None if its form differs from the test's."""
    examples = [item] if like.kind == "MFT" else item
    if not isinstance(examples, list) or (like.kind != "MFT" and len(examples) < 2):
        return None
    found: list[str | dict[str, Any]] = []
    for example in examples:
        if isinstance(example, str) and example.strip() and _is_text(like):
            found.append(example.strip())
        elif isinstance(example, dict) and not _is_text(like) and set(example) == set(_fields(like)):
            found.append(example)
        else:
            return None
    return found


def _is_text(like: WrittenTest) -> bool:
    return all(isinstance(example, str) for case in like.cases for example in case.inputs)


def _fields(like: WrittenTest) -> Iterable[str]:
    return dict.fromkeys(
        name
        for case in like.cases
        for example in case.inputs
        for name in (["text"] if isinstance(example, str) else example)
    )


def _digest(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
