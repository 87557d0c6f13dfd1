"""Collection of one version's answer to one ask, batch by batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.dataops.model_kinds.runner import EncodedRows, Tensors

from .asks import AskAnswer, Name, Outputs, Poison, not_finite
from .poison import answered_around, checked, detail_of, first_reason, is_model, sources

Raw = Mapping[str, Any]
"""Answers to one piece: tensors on the CPU, or outputs of a Predictor."""


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    fed: EncodedRows | Batch
    """Tensors for a runner, sorted by length; a batch for a Predictor."""
    order: NDArray[np.intp]
    """Row of the ask of each fed row, shape (fed rows,); rows that could not be encoded are absent."""
    is_as_asked: bool = False
    """Whether these are all rows of the ask in their order."""

    def is_finite(self) -> NDArray[np.bool_]:
        known = np.ones(len(self.order), dtype=np.bool_)
        if isinstance(self.fed, EncodedRows):
            for tensor in self.fed.tensors.values():
                if tensor.is_floating_point():
                    known &= (
                        torch.isfinite(tensor).flatten(1).all(1).numpy()
                        if tensor.ndim > 1
                        else (torch.isfinite(tensor).numpy())
                    )
            return known
        for name in self.fed.names:
            if name.startswith("inputs."):
                known &= ~self.fed.is_null(name)
                values = self.fed.arrow(name)
                if str(values.type) in ("float", "double", "halffloat"):
                    known &= np.isfinite(values.fill_null(0).to_numpy(zero_copy_only=False))
        return known


NOTHING = Encoded(EncodedRows({}), np.zeros(0, dtype=np.intp))


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedRecords:
    at: NDArray[np.intp]
    """Positions among all encoded records, in order."""
    encoded: Encoded
    poison: tuple[Poison, ...]

    @classmethod
    def of(cls, encoded: Encoded, poison: Sequence[Poison], rows: NDArray[np.intp]) -> "RepeatedRecords":
        place = np.minimum(np.searchsorted(rows, encoded.order), len(rows) - 1)
        at = np.flatnonzero(rows[place] == encoded.order)
        fed = encoded.fed if len(at) == len(encoded.order) else encoded.fed.take(at)
        found = {int(row): number for number, row in enumerate(rows)}
        left_out = tuple(Poison(found[one.row], one.detail) for one in poison if one.row in found)
        return cls(at, Encoded(fed, place[at], encoded.is_as_asked), left_out)


Form = tuple[tuple[str, tuple[int, ...]], ...]


class OutputReader(Protocol):
    def join(self, parts: list[Raw], /) -> Raw: ...

    def take(self, answers: Raw, index: NDArray[np.intp], /) -> Raw: ...

    def decode(self, name: Name, answers: Raw, /) -> Outputs: ...


@dataclass(slots=True, eq=False)
class Collect:
    number: int
    name: Name
    version: str
    rows: int
    reader: OutputReader
    again: "Collect | None" = None
    """Second answer, made after this one and with the same end."""
    encoded: Encoded = NOTHING
    part: RepeatedRecords | None = None
    left: int = field(init=False)
    """Records that were neither answered nor given up."""
    poison: list[Poison] = field(default_factory=list)
    parts: list[tuple[int, int, Raw]] = field(default_factory=list)
    failure: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.rows

    @property
    def is_over(self) -> bool:
        return not self.left or bool(self.failure)

    def begin(self, encoded: Encoded, poison: Sequence[Poison], part: RepeatedRecords | None = None) -> None:
        self.encoded = encoded
        self.poison += poison
        self.left -= len(poison)
        if self.again is not None and part is not None:
            self.part = part
            self.again.begin(part.encoded, part.poison)

    def put(self, start: int, stop: int, answers: Raw) -> None:
        self.parts.append((start, stop, answers))
        self.left -= stop - start

    def raised(self, at: int, detail: str) -> None:
        """Record a lone raise of record ``at``; enough of them fail the model."""
        self.poison.append(Poison(int(self.encoded.order[at]), detail))
        self.left -= 1
        if not self.parts and is_model(len(self.poison), self.rows):
            self.failure = first_reason(self.poison)
        if self.again is not None and self.part is not None:
            for second in np.flatnonzero(self.part.at == at).tolist():
                self.again.raised(second, detail)
            if self.failure:
                self.again.give_up(self.failure)  # no more of it will be answered once

    def give_up(self, reason: str) -> None:
        self.failure = self.failure or reason
        if self.again is not None:
            self.again.give_up(reason)

    def answer(self) -> AskAnswer:
        """Answer at the end; errors in decoding are the version's failure."""
        failure = self.failure or ("" if self.parts else first_reason(self.poison))
        if not failure:
            try:
                return self._read()
            except Exception as error:  # noqa: BLE001 - a model may answer anything; that is its failure
                failure = detail_of(error)
        return AskAnswer(self.number, self.version, None, failure=failure)

    def _read(self) -> AskAnswer:
        raw = self._in_order()
        outputs, poison, failure = answered_around(
            lambda start, stop: self.reader.decode(self.name, _cut(raw, start, stop)), self.rows
        )
        if outputs is None:
            return AskAnswer(self.number, self.version, None, failure=failure)
        return self.answer_of(outputs, poison)

    def answer_of(self, outputs: Outputs, poison: Sequence[Poison] = ()) -> AskAnswer:
        """Answer, or a failure for outputs without any finite number though the inputs had some."""
        failure = self._not_finite(outputs)
        if failure:
            return AskAnswer(self.number, self.version, None, failure=failure)
        found = {record.row: record for record in [*poison, *self.poison]}
        poisoned = tuple(found[row] for row in sorted(found))
        return AskAnswer(
            self.number, self.version, outputs, poisoned, seconds=self.seconds, cut=self._cut_texts()
        )

    def _cut_texts(self) -> dict[str, NDArray[np.bool_]]:
        found = {}
        cut = self.encoded.fed.cut if isinstance(self.encoded.fed, EncodedRows) else {}
        for name, rows in cut.items():
            found[name] = np.zeros(self.rows, dtype=np.bool_)
            found[name][self.encoded.order] = rows
        return found

    def whole(self) -> Raw | None:
        if self.failure or not self.parts:
            return None
        try:
            return self._in_order()
        except Exception:  # noqa: BLE001 - answers that do not fit together; `answer` says so
            return None

    def _in_order(self) -> Raw:
        """Raw answers of all rows; rows without one repeat another's."""
        self.parts.sort(key=lambda part: part[0])
        raw = self.reader.join([part for _, _, part in self.parts])
        if not self.poison and self.encoded.is_as_asked:
            return raw
        source = np.zeros(self.rows, dtype=np.intp)
        ranges = [(start, stop) for start, stop, _ in self.parts]
        source[self.encoded.order] = sources(ranges, len(self.encoded.order))
        return self.reader.take(raw, source)

    def _not_finite(self, outputs: Outputs) -> str:
        name = not_finite(outputs)
        if not name:
            return ""
        given = int(self.encoded.is_finite().sum())
        return f"outputs.{name}: no finite number for {given} records of finite inputs" if given else ""


def answers_of(collects: Sequence[Collect]) -> list[AskAnswer]:
    """Answers of finished collections, by version, joined where that works."""
    found: list[AskAnswer] = []
    groups: dict[tuple[Name, Form], list[tuple[Collect, Raw]]] = {}
    for collect in collects:
        raw = collect.whole()
        if raw is None:
            found.append(collect.answer())
        else:
            groups.setdefault((collect.name, _form_of(raw)), []).append((collect, raw))
    for group in groups.values():
        found += _read_together(group) or [collect.answer() for collect, _ in group]
    return found


def _read_together(group: Sequence[tuple[Collect, Raw]]) -> list[AskAnswer]:
    """Answers of one version decoded at once; none where that raises or there is one."""
    if len(group) < 2:
        return []
    reader, name = group[0][0].reader, group[0][0].name
    rows = sum(collect.rows for collect, _ in group)
    try:
        outputs = checked(reader.decode(name, reader.join([raw for _, raw in group])), rows)
    except Exception:  # noqa: BLE001 - each is read by itself then, and says what is wrong with it
        return []
    found, at = [], 0
    for collect, _ in group:
        found.append(collect.answer_of(_cut(outputs, at, at + collect.rows)))
        at += collect.rows
    return found


def _form_of(raw: Raw) -> Form:
    return tuple((name, tuple(values.shape[1:])) for name, values in raw.items())


def _cut(raw: Raw, start: int, stop: int) -> Raw:
    return {name: values[start:stop] for name, values in raw.items()}


def cat(parts: list[Tensors]) -> Tensors:
    """Concatenate tensors, shorter second dimensions padded right with zeros; ValueError where names
    differ."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if any(part.keys() != first.keys() for part in parts):
        raise ValueError("the model answers with other tensors from batch to batch")
    return {name: _cat([part[name] for part in parts]) for name in first}


def _cat(tensors: list[torch.Tensor]) -> torch.Tensor:
    if tensors[0].ndim < 2 or len({tensor.shape[1] for tensor in tensors}) == 1:
        return torch.cat(tensors)
    width = max(tensor.shape[1] for tensor in tensors)
    whole = tensors[0].new_zeros((sum(len(t) for t in tensors), width, *tensors[0].shape[2:]))
    at = 0
    for tensor in tensors:
        whole[at : at + len(tensor), : tensor.shape[1]] = tensor
        at += len(tensor)
    return whole
