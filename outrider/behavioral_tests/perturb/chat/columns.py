"""Conversations as columns.

A conversation is a list of messages with a role and a content, or a plain text (prompt).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import list_array
from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, input_column

FIELD = "content"
TextChange = Callable[[NDArray[Any], Rng], NDArray[Any]]
"""Function of (texts of shape (n,), rng) that returns the changed texts, shape (n,)."""


@dataclass(frozen=True, slots=True)
class Messages:
    """All messages of a column of conversations, concatenated.

    ``parent`` is the conversation of each message; ``roles`` and ``contents`` are texts or None; all have
    shape (messages,).
    """

    column: pa.ListArray
    elements: pa.StructArray
    lengths: NDArray[np.int64]
    parent: NDArray[np.intp]
    roles: NDArray[Any]
    contents: NDArray[Any]

    @classmethod
    def of(cls, batch: Batch, name: str) -> Self:
        """Messages of an input field."""
        column = input_column(batch, name)
        kind = column.type
        fields = {f.name: f.type for f in kind.value_type} if _is_conversation(kind) else {}
        if not all(field in fields and _is_text(fields[field]) for field in ("role", "content")):
            raise TypeError(
                f"inputs.{name}: lists of messages with the texts role and content expected, got {kind}"
            )
        elements = column.flatten()
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        lengths = lengths.astype(np.int64)
        roles, contents = (
            np.asarray(pc.struct_field(elements, field).to_numpy(zero_copy_only=False), dtype=object)
            for field in ("role", "content")
        )
        return cls(column, elements, lengths, np.repeat(np.arange(len(column)), lengths), roles, contents)

    def chosen(self, role: str | None, *, last: bool) -> NDArray[np.intp]:
        """Message numbers of a role, or only the ``last`` ones.

        Messages without content are left out; ``last`` is per conversation.
        """
        has_text = np.array([content is not None for content in self.contents], dtype=np.bool_)
        rows = np.flatnonzero(has_text if role is None else has_text & (self.roles == role))
        if last and len(rows):
            rows = rows[np.flatnonzero(np.diff(self.parent[rows], append=-1))]
        return rows

    def with_contents(self, contents: NDArray[Any]) -> pa.ListArray:
        """Conversation column with replaced contents."""
        fields = list(self.elements.type)
        parts = [
            pa.array(contents, field.type) if field.name == "content" else part
            for field, part in zip(fields, self.elements.flatten(), strict=True)
        ]
        return self._rebuilt(pa.StructArray.from_arrays(parts, fields=fields, mask=self.elements.is_null()))

    def in_order(self, order: NDArray[np.intp]) -> pa.ListArray:
        """Conversation column with reordered messages.

        ``order`` keeps each conversation's messages together.
        """
        return self._rebuilt(self.elements.take(pa.array(order)))

    def _rebuilt(self, elements: pa.StructArray) -> pa.ListArray:
        null = self.column.is_null().to_numpy(zero_copy_only=False)
        return list_array(elements, self.lengths, null).cast(self.column.type)


def spoken(name: str, change: TextChange, *, role: str | None = "user", last: bool = True) -> Perturbation:
    """Perturbation of text prompts, or of messages.

    Changes all messages of a role, or the last one of each conversation.
    """

    def perturb(batch: Batch, rng: Rng) -> Batch:
        column = input_column(batch, name)
        if column.null_count == len(column):
            return batch
        if _is_text(column.type):
            texts = batch.column(f"inputs.{name}").copy()
            rows = np.flatnonzero(~batch.is_null(f"inputs.{name}"))
            texts[rows] = change(texts[rows], rng)
            return batch.with_columns({f"inputs.{name}": pa.array(texts, column.type)})
        messages = Messages.of(batch, name)
        rows = messages.chosen(role, last=last)
        if len(rows) == 0:
            return batch
        contents = messages.contents.copy()
        contents[rows] = change(contents[rows], rng)
        return batch.with_columns({f"inputs.{name}": messages.with_contents(contents)})

    return perturb


def spoken_each(name: str, change: Callable[[str, float], str]) -> Perturbation:
    """Perturbation from a function of one text and a random number.

    Like :func:`spoken`; the number is in [0, 1).
    """

    def change_all(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:
        return np.array(list(map(change, texts, rng.random(len(texts)).tolist())), dtype=object)

    return spoken(name, change_all)


def _is_conversation(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_struct(kind.value_type))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def contents(
    perturbation: Perturbation, name: str = "messages", *, role: str | None = "user", last: bool = False
) -> Perturbation:
    """Change messages with a perturbation of the text field ``content``.

    Parameters
    ----------
    perturbation
        Perturbation of a text field called ``content``, such as those of
        :mod:`outrider.behavioral_tests.perturb.text`.
    name
        Input field: lists of messages with ``role`` and ``content``, or prompts that are plain texts.
    role
        Role whose messages are changed; None for all. ``role="system"`` adds noise to the system prompt.
    last
        Whether to change only the last of them in each conversation.

    Examples
    --------
    >>> import numpy as np
    >>> from outrider.behavioral_tests.perturb import text
    >>> shouted = contents(text.case(FIELD, to="upper"), role="system")
    >>> talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    >>> batch = Batch.from_records([{"inputs": {"messages": talk}}], model="m")
    >>> shouted(batch, np.random.default_rng(0)).to_records()[0]["inputs"]["messages"][0]["content"]
    'BE BRIEF.'
    """

    def change(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:
        batch = Batch.from_columns({f"inputs.{FIELD}": texts.tolist()}, model="messages")
        return perturbation(batch, rng).column(f"inputs.{FIELD}")

    return spoken(name, change, role=role, last=last)
