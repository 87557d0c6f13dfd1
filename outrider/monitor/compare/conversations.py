"""Conversations of chat requests, recognized by their first messages."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from outrider.monitor.intake.protocols.chat_columns import canonical, content_text

_ANSWERS, _SETTINGS = ("assistant", "model"), ("system", "developer")
_ADDED = b"\0"
_LENGTHS = 4096
"""Upper bound of the number of messages by which requests of a conversation are distinguished."""


class _Message(msgspec.Struct):
    role: Any = None
    content: Any = None


class _Chat(msgspec.Struct):
    messages: list[_Message] = []


_DECODE = msgspec.json.Decoder(_Chat).decode


class Conversations:
    """Names conversations: a request joins one whose user messages it extends, a repeated request
    opens a new one.

    Examples
    --------
    >>> def chat(*turns):
    ...     roles = "user", "assistant"
    ...     messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    ...     return msgspec.json.encode({"messages": messages})
    >>> known = Conversations()
    >>> [known.name(each) for each in (chat("Hi"), chat("Hi"), chat("Hi", "Yes?", "Bye"), chat("Where?"))]
    ['chat 0', 'chat 1', 'chat 0', 'chat 2']
    """

    def __init__(self) -> None:
        self._through: dict[int, int | list[int]] = {}
        """Conversation, or list of conversations in order of appearance, by digest of their first
        messages."""
        self._free: dict[tuple[int, int], int] = {}
        """Index in that list at which to start the search for a conversation without a request of
        this length, by (digest, length)."""
        self._taken: set[int] = set()
        """``_LENGTHS * conversation + length`` of each request so far."""
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
        """First conversation with this beginning that has no request of this length yet."""
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
    """Digest of the user messages before each answer and at the end, and the number of messages up to
    the last user message."""
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
    """Text of a message, or canonical JSON if it has non-text parts; ``cache_control`` marks on texts
    are ignored."""
    if isinstance(content, list) and not all(
        isinstance(p, dict) and p.get("type") == "text" for p in content
    ):
        return canonical(content)
    return content_text(content) or ""
