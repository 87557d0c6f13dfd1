"""Order: of instructions in a prompt, and of examples in a conversation."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, input_column

from .columns import Messages, spoken

_ITEM = re.compile(r"^(\s*(?:[-*•]|\d+[.)])\s+)(.*)$")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


def reorder_instructions(name: str = "messages", *, role: str | None = "system") -> Perturbation:
    """Reorder the instructions of a prompt.

    Instructions are list items, else lines, else sentences. The first line or sentence keeps its place if at
    least two others follow; the numbers of a numbered list stay in order. A prompt with fewer than two
    instructions to reorder is not applicable.
    """

    def change(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:
        return np.array([_reordered(text, rng) for text in texts], dtype=object)

    return spoken(name, change, role=role, last=False)


def _reordered(text: str, rng: Rng) -> str:
    lines = text.split("\n")
    items = [at for at, line in enumerate(lines) if _ITEM.match(line)]
    if len(items) < 2:
        items = [at for at, line in enumerate(lines) if line.strip()]
        items = items[1:] if len(items) > 2 else items
    if len(items) < 2:
        sentences = _SENTENCE.split(text)
        kept = 1 if len(sentences) > 2 else 0
        order = _derangement(len(sentences) - kept, rng) + kept
        return " ".join([*sentences[:kept], *(sentences[at] for at in order)])
    texts = [_ITEM.sub(r"\2", lines[at]) for at in items]
    for at, source in zip(items, _derangement(len(items), rng), strict=True):
        lines[at] = _ITEM.sub(r"\1", lines[at]) + texts[source] if _ITEM.match(lines[at]) else texts[source]
    return "\n".join(lines)


def reorder_examples(name: str = "messages") -> Perturbation:
    """Reorder the question-and-answer examples before the user's last question.

    An example is a user message and the assistant's reply; messages before the first example (the system
    prompt) and after the last one keep their place. Conversations with fewer than two examples are not
    applicable.

    References
    ----------
    Lu et al., "Fantastically Ordered Prompts and Where to Find Them", ACL 2022.
    """

    def perturb(batch: Batch, rng: Rng) -> Batch:
        column = input_column(batch, name)
        if column.null_count == len(column):
            return batch
        messages = Messages.of(batch, name)
        order = np.arange(len(messages.roles))
        ends = np.cumsum(messages.lengths)
        for start, end in zip(ends - messages.lengths, ends, strict=True):
            examples = _examples(messages.roles[start : end - 1]) + start
            if len(examples) > 1:
                moved = examples[_derangement(len(examples), rng)]
                order[examples], order[examples + 1] = moved, moved + 1
        return batch.with_columns({f"inputs.{name}": messages.in_order(order)})

    return perturb


def _examples(roles: NDArray[Any]) -> NDArray[np.intp]:
    """Positions of user messages that an assistant message follows."""
    return np.flatnonzero((roles[:-1] == "user") & (roles[1:] == "assistant"))


def _derangement(size: int, rng: Rng) -> NDArray[np.intp]:
    """Random cyclic permutation of ``size`` items: none keeps its place unless there is only one."""
    order = rng.permutation(size)
    moved = np.empty(size, dtype=np.intp)
    moved[order] = np.roll(order, 1)
    return moved
