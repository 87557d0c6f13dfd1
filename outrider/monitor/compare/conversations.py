"""Conversation of a chat, known by its first messages."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from outrider.monitor.intake.protocols.chat_columns import canonical, content_text

_ANSWERS, _SETTINGS = ("assistant", "model"), ("system", "developer")
_ADDED = b"\0"
_LENGTHS = 4096
"""Lengths that are told apart."""


class _Message(msgspec.Struct):
    role: Any = None
    content: Any = None


class _Chat(msgspec.Struct):
    messages: list[_Message] = []


_DECODE = msgspec.json.Decoder(_Chat).decode


class Conversations:
    """Conversations of chats that do not name them.

    A later request of a conversation begins with what was asked earlier. So a chat belongs to the one with
    which it shares the longest beginning, unless that has a request of this length already: then to the next
    one that begins so, or to a new one. Thus a question that is asked again, and questions behind the same
    examples, are conversations of their own. Where several begin alike, it does not matter whose the first
    request is: the question is the same.

    Beginnings are digests of what was asked: system prompts that tell the time, and answers that later
    requests shorten, make no difference. A history that is cut off at its beginning is not known again.

    Examples
    --------
    >>> def chat(*said):
    ...     turns = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]
    ...     return msgspec.json.encode({"messages": turns})
    >>> known = Conversations()
    >>> [known.name(each) for each in (chat("Hi"), chat("Hi"), chat("Hi", "Yes?", "Bye"), chat("Where?"))]
    ['chat 0', 'chat 1', 'chat 0', 'chat 2']
    """

    def __init__(self) -> None:
        self._through: dict[int, int | list[int]] = {}
        """Conversation by beginning, or all of them in order of appearance."""
        self._free: dict[tuple[int, int], int] = {}
        """By beginning and length: place of the first of them that may lack a request of this length."""
        self._taken: set[int] = set()
        """Conversations with the lengths of their requests, as one number."""
        self._count = 0

    def name(self, body: bytes | str) -> str | None:
        try:
            messages = _DECODE(body).messages
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        beginnings, length = _beginnings(messages)
        if not beginnings:
            return None
        shared, found = next(
            (
                (at, one)
                for at in reversed(range(len(beginnings)))
                if (one := self._of(beginnings[at], length))
            ),
            (-1, None),
        )
        if found is None:
            found = self._count = self._count + 1
        for each in beginnings[shared + 1 :]:
            self._note(each, found)
        self._taken.add(_LENGTHS * found + length)
        return f"chat {found - 1}"

    def _note(self, beginning: int, conversation: int) -> None:
        there = self._through.setdefault(beginning, conversation)
        if isinstance(there, list):
            there.append(conversation)
        elif there != conversation:
            self._through[beginning] = [there, conversation]

    def _of(self, beginning: int, length: int) -> int | None:
        """First conversation with this beginning that has no request of this length."""
        there = self._through.get(beginning)
        if there is None:
            return None
        there = there if isinstance(there, list) else [there]
        at = self._free.get((beginning, length), 0)
        while at < len(there) and _LENGTHS * there[at] + length in self._taken:
            at += 1
        if at and len(there) > 1:
            self._free[beginning, length] = at
        return there[at] if at < len(there) else None


def _beginnings(messages: Sequence[_Message]) -> tuple[list[int], int]:
    """Digests of what was asked up to each answer, and number of messages without settings."""
    found: list[int] = []
    digest, is_open, length, asked = hashlib.blake2b(digest_size=8), False, 0, 0
    for each in messages:
        if each.role in _SETTINGS:
            continue
        length += 1
        if each.role not in _ANSWERS:
            digest.update(_text(each.content).encode("utf-8", "replace") + _ADDED)
            is_open, asked = True, length
        elif is_open:
            found.append(int.from_bytes(digest.digest()))
            is_open = False
    if is_open:
        found.append(int.from_bytes(digest.digest()))
    return found, min(asked, _LENGTHS - 1)


def _text(content: Any) -> str:
    """Text of a message; all of it where it has other parts, of which marks of a cache may come and go."""
    if isinstance(content, list) and not all(
        isinstance(p, dict) and p.get("type") == "text" for p in content
    ):
        return canonical(content)
    return content_text(content) or ""
