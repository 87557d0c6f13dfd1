"""Asks and answers as frames: JSON headers, raw buffers."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.assertions.batch.columns import from_values
from outrider.assertions.batch.schema import MODEL_KEY, ordered_table
from outrider.monitor.process.batch_frames import BatchReader, BatchWriter, Buffer

from .asks import Ask, AskAnswer, Outputs, Poison, Priority

Header = dict[str, Any]
RAW = "biuf"
"""Kinds of numpy types sent as they lie in memory; others travel as Arrow columns."""


class AnswerWriter:
    def __init__(self) -> None:
        self._write = BatchWriter().buffers

    def ask(self, ask: Ask) -> tuple[Header, list[Buffer]]:
        header = {
            "op": "ask", "number": ask.number, "model": ask.model, "versions": ask.versions,
            "priority": int(ask.priority), "again": ask.again,
        }  # fmt: skip
        return header, self._write(ask.batch)

    def answer(self, answer: AskAnswer) -> tuple[Header, list[Buffer]]:
        header: Header = {
            "op": "answer", "number": answer.number, "version": answer.version, "failure": answer.failure,
            "seconds": answer.seconds,
            "poison": [(poison.row, poison.detail) for poison in answer.poison],
            "cut": {name: (len(rows), np.flatnonzero(rows).tolist()) for name, rows in answer.cut.items()},
        }  # fmt: skip
        if answer.outputs is None:
            return header, []
        raw, columns = [], {}
        buffers: list[Buffer] = []
        for name, values in answer.outputs.items():
            if values.dtype.kind in RAW and values.size:
                raw.append((name, values.dtype.str, values.shape))
                buffers.append(np.ascontiguousarray(values).data.cast("B"))
            else:
                columns[f"outputs.{name}"] = from_values(values)
        header |= {"order": list(answer.outputs), "raw": raw}
        if columns:
            # No record travels, so none of what every batch of records has.
            buffers += self._write(Batch(ordered_table(columns, {MODEL_KEY: b""}), model=""))
        return header, buffers


class AnswerReader:
    def __init__(self) -> None:
        self._read = BatchReader().batch

    def ask(self, header: Header, buffers: list[memoryview]) -> Ask:
        return Ask(
            header["number"], header["model"], tuple(header["versions"]), self._read(*buffers),
            Priority(header["priority"]), tuple(header["again"]),
        )  # fmt: skip

    def answer(self, header: Header, buffers: list[memoryview]) -> AskAnswer:
        poison = tuple(Poison(row, detail) for row, detail in header["poison"])
        outputs = self._outputs(header, buffers) if "order" in header else None
        return AskAnswer(
            header["number"], header["version"], outputs, poison, header["failure"], header["seconds"],
            {name: _mask(rows, at) for name, (rows, at) in header["cut"].items()},
        )  # fmt: skip

    def _outputs(self, header: Header, buffers: list[memoryview]) -> Outputs:
        found: dict[str, NDArray[Any]] = {}
        for (name, kind, shape), buffer in zip(header["raw"], buffers, strict=False):
            found[name] = np.frombuffer(buffer, dtype=np.dtype(kind)).reshape(shape)
        rest = buffers[len(found) :]
        if rest:
            batch = self._read(rest[0], rest[1])
            for name in batch.names:
                if name.startswith("outputs."):
                    found[name.removeprefix("outputs.")] = _values(batch, name)
        return {name: found[name] for name in header["order"]}


def _mask(rows: int, at: list[int]) -> NDArray[np.bool_]:
    mask = np.zeros(rows, dtype=np.bool_)
    mask[at] = True
    return mask


def _values(batch: Batch, name: str) -> NDArray[Any]:
    """A column as a model may have answered it: numbers with nulls as objects."""
    column: pa.Array = batch.arrow(name)
    if column.null_count and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        values = np.empty(len(column), dtype=object)
        values[:] = column.to_pylist()
        return values
    return batch.column(name)
