"""Texts as rows of tokens, padded on the right."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch

from .runner import EncodedRows

LONGEST = 512
"""Tokens of a text if neither tokenizer nor model has a limit."""


def texts_of(batch: Batch, name: str) -> list[str]:
    column = f"inputs.{name}"
    if not batch.has(column):
        raise KeyError(f"no column {column!r}; there are {', '.join(batch.names)}")
    values = batch.column(column, null=None) if batch.is_null(column).all() else batch.column(column)
    for row, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(f"record {batch.keys[row]!r}: {column}: a text expected, got {value!r:.40}")
    return list(values)


def padded(rows: Sequence[Sequence[int]], lengths: NDArray[np.int64], value: int) -> torch.Tensor:
    width = max(1, int(lengths.max(initial=0)))
    table = np.full((len(rows), width), value, dtype=np.int64)
    table[np.arange(width) < lengths[:, None]] = np.fromiter(chain.from_iterable(rows), np.int64)
    return torch.from_numpy(table)


class TextEncoder:
    """Tokenizer with one input field, or two as a pair.

    Texts longer than ``max_tokens`` are cut at the end, for ``chat`` and generation at the beginning.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        inputs: Sequence[str],
        max_tokens: int,
        names: Sequence[str] = (),
        chat: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.inputs = tuple(inputs)
        self.max_tokens = max_tokens
        self.pad = tokenizer.pad_token_id or 0
        self._names = tuple(names)
        self._chat = chat
        self.digest = self._digest()

    def _digest(self) -> str:
        """Of all that encoding depends on, but truncation and padding, which calls set."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        inner = {"only": id(self.tokenizer)} if backend is None else json.loads(backend.to_str())
        inner |= {"truncation": None, "padding": None}
        sides = self.tokenizer.truncation_side, self.tokenizer.chat_template if self._chat else None
        own = self.inputs, self.max_tokens, self.pad, self._names, self._chat, sides
        return sha256(json.dumps([inner, own], sort_keys=True).encode()).hexdigest()

    def encode(self, batch: Batch, *, places: bool = False) -> EncodedRows:
        """``places`` adds ``starts``, ``ends`` and ``words``.

        ``words`` is the number, from 1, of the word that a token begins, else 0.
        """
        first = [self.prompt(text) for text in texts_of(batch, self.inputs[0])]
        second = [texts_of(batch, self.inputs[1])] if len(self.inputs) > 1 else []
        found = self.tokenizer(
            first,
            *second,
            truncation=True,
            max_length=self.max_tokens,
            add_special_tokens=not self._chat,
            return_attention_mask=False,
            return_offsets_mapping=places,
        )
        columns = {name: found[name] for name in ("input_ids", "token_type_ids") if name in found}
        if places:
            columns["starts"] = [[start for start, _ in row] for row in found["offset_mapping"]]
            columns["ends"] = [[end for _, end in row] for row in found["offset_mapping"]]
            columns["words"] = [_beginnings(found.word_ids(row)) for row in range(batch.rows)]
        return replace(self.rows(columns), cut=self._cut(found))

    def _cut(self, found: Any) -> dict[str, NDArray[np.bool_]]:
        """Texts that lost tokens; slow tokenizers do not tell."""
        if not found.encodings:
            return {}
        cut = [
            len(ids) >= self.max_tokens and bool(encoding.overflowing)
            for ids, encoding in zip(found["input_ids"], found.encodings, strict=True)
        ]
        return {self.inputs[0]: np.array(cut, dtype=np.bool_)}

    def rows(self, columns: Mapping[str, Sequence[Sequence[int]]]) -> EncodedRows:
        """Padded tensors by name, with lengths as in ``input_ids``."""
        lengths = np.array([len(row) for row in columns["input_ids"]], dtype=np.int64)
        padding = {"input_ids": self.pad}
        wanted = {name: value for name, value in columns.items() if self._takes(name)}
        tensors = {name: padded(value, lengths, padding.get(name, 0)) for name, value in wanted.items()}
        width = tensors["input_ids"].shape[1]
        tensors["attention_mask"] = torch.from_numpy((np.arange(width) < lengths[:, None]).astype(np.int64))
        return EncodedRows(tensors, lengths, {name: padding.get(name, 0) for name in tensors})

    def _takes(self, name: str) -> bool:
        return name != "token_type_ids" or name in self._names

    def prompt(self, text: str) -> str:
        if not self._chat:
            return text
        found: str = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        return found

    def answered(self, text: str, answer: str) -> str:
        """Continuation of a prompt by an answer and its end."""
        end: str = self.tokenizer.eos_token or ""
        if not self._chat:
            return answer + end
        talk = [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
        whole: str = self.tokenizer.apply_chat_template(talk, tokenize=False)
        prompt = self.prompt(text)
        if not whole.startswith(prompt):
            return answer + end
        text, mark, _ = whole[len(prompt) :].rpartition(end) if end else ("", "", "")
        return text + mark if mark else whole[len(prompt) :]


def _beginnings(words: Sequence[int | None]) -> list[int]:
    """Number of the word that each token begins, from 1, else 0."""
    before: int | None = None
    begun = []
    for word in words:
        begun.append(0 if word is None or word == before else word + 1)
        before = word
    return begun
