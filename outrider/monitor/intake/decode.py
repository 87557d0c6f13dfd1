"""From a request body to blocks for the journal.

Good records are kept, bad ones named with their reason.
"""

import difflib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import pyarrow as pa

from outrider.monitor.http.problem import ProblemError, problem

from .arrow_body import read_known_stream, read_stream
from .block_builder import MAX_CELLS, BlockBuilder
from .erased import ErasedNames, without_rows
from .fast_json import Shapes
from .framed_body import split_frames
from .payload_values import with_parts
from .pending_blocks import PendingBlock, PendingHalf
from .request_parts import HalfPart, RequestPart
from .schema_book import SchemaBook

RecordKind = Literal["records", "labels"]
Form = Literal["json", "lines", "arrow", "framed"]
ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


class RecordEnvelope(msgspec.Struct, forbid_unknown_fields=True):
    """Element of ``POST /v1/records``."""

    model: str | None = None
    id: ShortText | Int64 | None = None
    ts: Time | None = None
    version: ShortText | Int64 | None = None
    entity: ShortText | Int64 | None = None
    seq: Int64 | None = None
    weight: Annotated[float, msgspec.Meta(gt=0, le=1e12)] = 1.0
    partial: bool = False
    inputs: dict[str, Any] | None = None
    outputs: dict[str, Any] | None = None
    attrs: dict[str, Any] | None = None


class LabelEnvelope(msgspec.Struct, forbid_unknown_fields=True):
    """Element of ``POST /v1/labels``."""

    label: Annotated[dict[str, Any], msgspec.Meta(min_length=1)]
    id: ShortText | Int64 | None = None
    entity: ShortText | Int64 | None = None
    model: str | None = None
    ts: Time | None = None
    source: ShortText = "api"
    key: ShortText | None = None


Envelope: TypeAlias = RecordEnvelope | LabelEnvelope
_TYPES: dict[RecordKind, type[Envelope]] = {"records": RecordEnvelope, "labels": LabelEnvelope}
_HINTS = {
    ("records", "label"): "labels go to POST /v1/labels, as soon or as late as they are known",
    ("records", "received"): "the time of receipt is set by the intake; send ts",
}


@dataclass(frozen=True, slots=True)
class Rejection:
    """Rejection of one record, with its reason.

    Parameters
    ----------
    index
        Place in what was sent, from 0 (blank lines do not count).
    id
        Its id, if it had one that could be read.
    field
        Full column name; ``""`` when the record as a whole is meant.
    reason
        What was expected and what came.
    model
        Name of the model it is of, where that could be read.
    is_erased
        It was erased: its id is noted nowhere.
    """

    index: int
    id: str | None
    field: str
    reason: str
    model: str = ""
    is_erased: bool = False

    @property
    def kind(self) -> str:
        """Reason as in ``outrider_records_rejected_total``."""
        if self.is_erased:
            return "erased"
        if self.field == "model":
            return "unknown_model"
        return "schema" if self.field else "malformed"

    @property
    def noted_id(self) -> str | None:
        """Id for counts and logs."""
        return None if self.is_erased else self.id


@dataclass(slots=True)
class Decoded:
    """Contents of a body."""

    blocks: list[PendingBlock] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    halves: list[PendingHalf] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """Records in all blocks, and sides of records."""
        count = 0
        for block in self.blocks:
            count += block.rows
        for half in self.halves:
            count += half.block.rows
        return count


class Decoder:
    """Turns bodies into blocks; safe to use from several threads.

    Parameters
    ----------
    book
        Columns of each model; grows as records bring new ones.
    erased
        Records and subjects of which nothing is taken any more.
    max_records, max_columns, max_depth, max_elements
        Bounds of ``[limits]``.
    max_bytes
        Bound of Arrow columns without their dictionaries: that of a body.
    """

    def __init__(
        self,
        book: SchemaBook,
        erased: ErasedNames | None = None,
        /,
        *,
        max_records: int = 100_000,
        max_columns: int = 512,
        max_depth: int = 16,
        max_elements: int = 100_000,
        max_bytes: int = 10_485_760,
    ) -> None:
        self._book = book
        self._erased = erased or ErasedNames()
        self._max_bytes = max_bytes
        self._builder = BlockBuilder(
            book, max_columns=max_columns, max_depth=max_depth, max_elements=max_elements
        )
        self._shapes = Shapes(RecordEnvelope, self._schema, book.inputs)
        self._max_records = max_records
        self._max_depth = max_depth

    @property
    def is_busy(self) -> bool:
        """True while another thread builds a block. Decoding now would wait for that thread."""
        return self._builder.is_busy

    def read_known(
        self, body: bytes, *, form: Form, model: str | None, received_us: int
    ) -> list[RequestPart] | None:
        """Parts of records that fit the known columns, or None.

        Of one model, without a change; None: see `read`.
        """
        if form == "arrow":
            return read_known_stream(
                body,
                schema=self._schema,
                max_records=self._max_records,
                default_model=model,
                received_us=received_us,
                needed=self._book.inputs,
            )
        if form == "framed":
            return None
        shape = self._shapes.of(body, model)
        if shape is None or (form == "lines" and body.count(b"\n") >= self._max_records):
            return None
        records = shape.decode(body, is_lines=form == "lines", default_model=model)
        if records is None or len(records) > self._max_records:
            return None
        if len(records) * len(shape.schema) > MAX_CELLS:
            return None
        block = PendingBlock("records", shape.model, shape.digest, records, shape, received_us)
        return [RequestPart(shape.model, range(len(records)), {}, known=block)]

    def read(
        self, body: bytes, *, kind: RecordKind, form: Form, model: str | None = None
    ) -> tuple[list[RequestPart], list[Rejection]]:
        """Columns of a body by model, and its unreadable records.

        Parameters
        ----------
        body
            Decompressed bytes.
        kind
            Whether they are records or labels.
        form
            JSON (an object or an array), JSON lines, an Arrow IPC stream, or JSON framed with parts.
        model
            Model of the records that do not name one.

        Raises
        ------
        ProblemError
            If the body as a whole cannot be read (400), or holds too many records (413).
        """
        rejected: list[Rejection] = []
        if form == "arrow":
            parts = read_stream(
                body,
                kind=kind,
                max_records=self._max_records,
                max_bytes=self._max_bytes,
                default_model=model,
            )
        elif form == "framed":
            parts = self._framed(body, kind, model, rejected)
        else:
            envelopes, indices = self._envelopes(body, kind, form, rejected)
            parts = _parts(kind, envelopes, indices, model)
        return parts, rejected

    def build(
        self,
        parts: Sequence[RequestPart],
        rejected: Sequence[Rejection],
        *,
        kind: RecordKind,
        received_us: int,
        halves: Sequence[HalfPart] = (),
    ) -> Decoded:
        """Build blocks of columns from any reader. Misfit rows join the rejected."""
        decoded = Decoded(rejected=list(rejected))
        for given in parts:
            part = self._without_erased(decoded, given)
            if not part.indices:
                continue
            if part.known is not None:  # nothing more of it can be refused
                decoded.blocks += self._builder.fitting(part.known)
            else:
                decoded.blocks += self._blocks(decoded, part, kind, received_us)
        for half in halves:
            part = self._without_erased(decoded, half.part)
            blocks = self._blocks(decoded, part, kind, received_us) if part.indices else []
            decoded.halves += [PendingHalf(half.key, half.side, block) for block in blocks]
        decoded.rejected.sort(key=lambda rejection: rejection.index)
        return decoded

    def _without_erased(self, decoded: Decoded, part: RequestPart) -> RequestPart:
        """Rows of a part that were not erased; the others are refused."""
        faults = self._erased.faults(part)
        if not faults:
            return part
        for row, (name, reason) in faults.items():
            id_ = part.id_of(row) if part.known is None else str(part.known.table.column("id")[row])
            decoded.rejected.append(
                Rejection(part.indices[row], id_, name, reason, part.model, is_erased=True)
            )
        stay = [row for row in range(len(part.indices)) if row not in faults]
        if part.known is None:
            return part.take(stay)
        indices = [part.indices[row] for row in stay]
        return RequestPart(part.model, indices, {}, known=without_rows(part.known, faults))

    def schema(self, model: str) -> tuple[pa.Schema, str]:
        """Schema of a model's records now, and its digest."""
        return self._builder.schema(model)

    def forget(self, kind: RecordKind, model: str, name: str) -> bool:
        """Drop a learned column; False where there was none.

        Its next value learns it anew.
        """
        return self._builder.forget(kind, model, name)

    def _schema(self, model: str) -> tuple[pa.Schema, str]:
        if model not in self._book.models:
            raise KeyError(model)
        return self._builder.schema(model)

    def _blocks(
        self, decoded: Decoded, part: RequestPart, kind: RecordKind, received_us: int
    ) -> list[PendingBlock]:
        if part.model not in self._book.models:
            reason = (
                _unknown("model", part.model, self._book.models)
                if part.model
                else (
                    "is missing: name it in every record, or once as ?model= in the URL (--model of a replay)"
                )
            )
            decoded.rejected += [
                Rejection(index, part.id_of(row), "model", reason, part.model)
                for row, index in enumerate(part.indices)
            ]
            return []
        blocks, bad = self._builder.build(part, kind=kind, received_us=received_us)
        decoded.rejected += [
            Rejection(part.indices[row], part.id_of(row), name, reason, part.model)
            for row, (name, reason) in bad.items()
        ]
        return blocks

    def _framed(
        self, body: bytes, kind: RecordKind, model: str | None, rejected: list[Rejection]
    ) -> list[RequestPart]:
        """Columns of a framed body: its records, with the bytes of the parts in their places."""
        framed, parts = split_frames(body)
        envelopes, indices = self._envelopes(framed, kind, "json", rejected)
        whole: list[Envelope] = []
        places: list[int] = []
        for envelope, index in zip(envelopes, indices, strict=True):
            try:
                for name in ("inputs", "outputs", "attrs"):
                    if fields := getattr(envelope, name, None):
                        setattr(envelope, name, _with_parts(name, fields, parts, self._max_depth))
            except FieldError as error:
                id_ = None if envelope.id is None else str(envelope.id)
                rejected.append(Rejection(index, id_, error.field, error.reason))
                continue
            whole.append(envelope)
            places.append(index)
        return _parts(kind, whole, places, model)

    def _envelopes(
        self, body: bytes, kind: RecordKind, form: Form, rejected: list[Rejection]
    ) -> tuple[list[Envelope], list[int]]:
        """Parsed records and their indices; those that do not parse are added to ``rejected``."""
        if form == "lines" and body.count(b"\n") >= self._max_records * 2:
            self._too_many(body.count(b"\n"))
        try:  # the fast path: everything is as it should be
            envelopes = _LINES[kind](body) if form == "lines" else _BODIES[kind](body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._one_by_one(body, kind, form, rejected)
        records: list[Envelope] = envelopes if isinstance(envelopes, list) else [envelopes]
        self._too_many(len(records))
        return records, list(range(len(records)))

    def _one_by_one(
        self, body: bytes, kind: RecordKind, form: Form, rejected: list[Rejection]
    ) -> tuple[list[Envelope], list[int]]:
        good: list[Envelope] = []
        indices: list[int] = []
        items = self._lines(body, rejected) if form == "lines" else enumerate(self._array(body))
        for index, item in items:
            try:
                good.append(_convert(item, kind))
                indices.append(index)
            except FieldError as error:
                id_ = item.get("id") if isinstance(item, dict) else None
                id_ = id_[:256] if isinstance(id_, str) else None
                rejected.append(Rejection(index, id_, error.field, error.reason))
        return good, indices

    def _array(self, body: bytes) -> list[Any]:
        parsed = parse_json(body, self._max_depth)
        records = parsed if isinstance(parsed, list) else [parsed]
        self._too_many(len(records))
        return records

    def _lines(self, body: bytes, rejected: list[Rejection]) -> list[tuple[int, Any]]:
        lines = [line for line in body.split(b"\n") if line.strip()]
        self._too_many(len(lines))
        items = []
        for index, line in enumerate(lines):
            try:
                items.append((index, parse_json(line, self._max_depth)))
            except ProblemError as error:
                rejected.append(Rejection(index, None, "", error.problem.detail))
        return items

    def _too_many(self, records: int) -> None:
        if records > self._max_records:
            raise ProblemError(
                problem(
                    413, f"{records} records, at most {self._max_records} in one request (limits.records)"
                )
            )


class FieldError(ValueError):
    """A field of one record does not fit."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


def parse_json(body: bytes, max_depth: int) -> Any:
    """Any JSON value.

    NaN and Infinity pass as floats, so that only their records are refused.

    A key that stands twice in one object counts with its last value, as in most JSON readers.

    Raises
    ------
    ProblemError
        400 with the byte position of the first fault.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        text = body.decode()
        return json.loads(text)
    except UnicodeDecodeError as error:
        raise ProblemError(
            problem(
                400, f"not UTF-8: byte 0x{body[error.start]:02x} at byte {error.start}", position=error.start
            )
        ) from None
    except json.JSONDecodeError as error:
        position = len(text[: error.pos].encode())
        hint = _LINES_HINT if error.msg == "Extra data" else ""
        raise ProblemError(
            problem(400, f"malformed JSON: {error.msg} at byte {position}{hint}", position=position)
        ) from None
    except RecursionError:
        raise ProblemError(
            problem(400, f"JSON nested deeper than {max_depth} levels (limits.depth)")
        ) from None
    except ValueError as error:  # integers of thousands of digits
        raise ProblemError(problem(400, f"malformed JSON: {error}")) from None


_LINES_HINT = "; JSON lines need the header content-type: application/x-ndjson (curl: and --data-binary)"
_BODIES: dict[RecordKind, Callable[[bytes], Any]] = {
    "records": msgspec.json.Decoder(list[RecordEnvelope] | RecordEnvelope).decode,
    "labels": msgspec.json.Decoder(list[LabelEnvelope] | LabelEnvelope).decode,
}
_LINES: dict[RecordKind, Callable[[bytes], Any]] = {
    "records": msgspec.json.Decoder(RecordEnvelope).decode_lines,
    "labels": msgspec.json.Decoder(LabelEnvelope).decode_lines,
}


def _with_parts(name: str, fields: dict[str, Any], parts: list[memoryview], depth: int) -> dict[str, Any]:
    try:
        return with_parts(fields, parts, depth)
    except ValueError as error:
        field, _, reason = str(error).partition(": ")
        raise FieldError(f"{name}.{field}"[:256], reason) from None


def _convert(item: Any, kind: RecordKind) -> Envelope:
    if not isinstance(item, dict):
        raise FieldError("", f"expected a JSON object, got {type(item).__name__}")
    type_ = _TYPES[kind]
    for name in item:
        if name not in type_.__struct_fields__:
            hint = _HINTS.get((kind, name))
            raise FieldError(name[:256], hint or _unknown("field", name, type_.__struct_fields__))
    try:
        return msgspec.convert(item, type_)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        found = re.match(r"`\$\.(\w+)", path)
        name = found[1] if found else ""
        came = f"; got {item[name]!r:.80}" if name in item else ""
        if not name and (missing := re.search(r"required field `(\w+)`", message)):
            name = missing[1]
        raise FieldError(name, message[:1].lower() + message[1:] + came) from None


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name[:256], known, n=1)
    suggestion = (
        f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known[:20])}" if known else ""
    )
    return f"unknown {what} {name[:256]!r}{suggestion}"


def _parts(
    kind: RecordKind, envelopes: list[Envelope], indices: list[int], default_model: str | None
) -> list[RequestPart]:
    """Columns per model."""
    groups: dict[str, tuple[list[Any], list[int]]] = {}
    for envelope, index in zip(envelopes, indices, strict=True):
        group = groups.setdefault(envelope.model or default_model or "", ([], []))
        group[0].append(envelope)
        group[1].append(index)
    make = _record_part if kind == "records" else _label_part
    return [make(model, members, places) for model, (members, places) in groups.items()]


def _record_part(model: str, records: list[RecordEnvelope], indices: list[int]) -> RequestPart:
    system: dict[str, list[Any]] = {
        "id": _texts([record.id for record in records]),
        "ts": [record.ts for record in records],
        "version": _texts([record.version for record in records]),
        "entity": _texts([record.entity for record in records]),
        "seq": [record.seq for record in records],
        "weight": [record.weight for record in records],
        "partial": [record.partial for record in records],
    }
    fields = {
        "inputs": [record.inputs for record in records],
        "outputs": [record.outputs for record in records],
        "attrs": [record.attrs for record in records],
    }
    return RequestPart(model=model, indices=indices, system=system, fields=fields)


def _label_part(model: str, labels: list[LabelEnvelope], indices: list[int]) -> RequestPart:
    system: dict[str, list[Any]] = {
        "id": _texts([label.id for label in labels]),
        "ts": [label.ts for label in labels],
        "source": [label.source for label in labels],
        "key": [label.key for label in labels],
        "entity": _texts([label.entity for label in labels]),
    }
    return RequestPart(
        model=model, indices=indices, system=system, fields={"label": [x.label for x in labels]}
    )


def _texts(values: list[Any]) -> list[str | None]:
    return [str(value) if isinstance(value, int) else value for value in values]
