"""From a request body to blocks for the journal.

Good records are kept, bad ones named with their reason.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import pyarrow as pa

from outrider.dataops.state.stored_texts import may_have_nul
from outrider.monitor.http.problem import ProblemError, problem

from .arrow_body import read_known_stream, read_stream
from .block_builder import MAX_CELLS, BlockBuilder
from .erased import ErasedNames, without_rows
from .fast_json import Shapes
from .payload_values import split_frames, with_parts
from .pending_blocks import PendingBlock, PendingHalf
from .rejections import FaultyRows, Near, Rejections, close_names
from .request_parts import HalfPart, RequestPart
from .schema_book import SchemaBook

RecordKind = Literal["records", "labels"]
Form = Literal["json", "lines", "arrow", "framed"]
ShortText = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


class RecordEnvelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
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


class LabelEnvelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
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


@dataclass(slots=True)
class Decoded:
    """Contents of a body."""

    blocks: list[PendingBlock] = field(default_factory=list)
    rejected: Rejections = field(default_factory=Rejections)
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
    near
        Finds known names that are like a misspelt one.
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
        near: Near = close_names,
    ) -> None:
        self._near = near
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
                names_groups=self._book.names_groups,
            )
        if form == "framed":
            return None
        if may_have_nul(body):  # perhaps in an id: a database may be unable to store it
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
    ) -> tuple[list[RequestPart], Rejections]:
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
        rejected = Rejections(self._near)
        if form == "arrow":
            parts = read_stream(
                body,
                kind=kind,
                max_records=self._max_records,
                max_bytes=self._max_bytes,
                default_model=model,
                models=self._book.models,
                rejected=rejected,
            )
        elif form == "framed":
            parts = self._framed(body, kind, model, rejected)
        else:
            envelopes, indices = self._envelopes(body, kind, form, rejected)
            parts = self._parts(kind, envelopes, indices, model, rejected)
        return parts, rejected

    def build(
        self,
        parts: Sequence[RequestPart],
        rejected: Rejections | None = None,
        *,
        kind: RecordKind,
        received_us: int,
        halves: Sequence[HalfPart] = (),
    ) -> Decoded:
        """Build blocks of columns from any reader. Misfit rows join the rejected."""
        decoded = Decoded(rejected=Rejections(self._near) if rejected is None else rejected)
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
        return decoded

    def _without_erased(self, decoded: Decoded, part: RequestPart) -> RequestPart:
        """Rows of a part that were not erased; the others are refused."""
        faults = self._erased.faults(part)
        if not faults:
            return part
        _refuse(decoded.rejected, part, faults.groups, are_erased=True)
        stay = np.flatnonzero(~faults.is_bad).tolist()
        if part.known is None:
            return part.take(stay)
        indices = [part.indices[row] for row in stay]
        return RequestPart(part.model, indices, {}, known=without_rows(part.known, faults.rows.tolist()))

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
        blocks, faults = self._builder.build(part, kind=kind, received_us=received_us)
        _refuse(decoded.rejected, part, faults)
        return blocks

    def _framed(
        self, body: bytes, kind: RecordKind, model: str | None, rejected: Rejections
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
                rejected.add(index, error.field, error.reason, id_=id_)
                continue
            whole.append(envelope)
            places.append(index)
        return self._parts(kind, whole, places, model, rejected)

    def _envelopes(
        self, body: bytes, kind: RecordKind, form: Form, rejected: Rejections
    ) -> tuple[list[Envelope], list[int]]:
        """Parsed records and their indices; those that do not parse are added to ``rejected``."""
        if form == "lines" and body.count(b"\n") >= self._max_records * 2:
            self._too_many(body.count(b"\n"))
        try:  # the fast path: everything is as it should be
            found = _LINES[kind](body) if form == "lines" else _BODIES[kind](body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            items, indices = self._one_by_one(body, kind, form, rejected)
        else:
            items = found if isinstance(found, list) else [found]
            self._too_many(len(items))
            indices = list(range(len(items)))
        type_ = _TYPES[kind]
        if {type_}.issuperset(map(type, items)):
            return items, indices
        odd = [at for at, item in enumerate(items) if type(item) is not type_]
        rejected.add_rows(np.array(odd), "", lambda at: _no_object(items[at]), indices=indices, model="")
        stay = [at for at, item in enumerate(items) if type(item) is type_]
        return [items[at] for at in stay], [indices[at] for at in stay]

    def _one_by_one(
        self, body: bytes, kind: RecordKind, form: Form, rejected: Rejections
    ) -> tuple[list[Any], list[int]]:
        """Records, and what is no object; all behind one that the fast parser cannot read is read slowly."""
        raws: Sequence[bytes | msgspec.Raw]
        raws = [line for line in body.split(b"\n") if line.strip()] if form == "lines" else _elements(body)
        self._too_many(len(raws))
        decode = _ELEMENT[kind]
        items: list[Any] = []
        indices: list[int] = []
        rest = 0
        for raw in raws:
            try:
                items.append(decode(raw))
                indices.append(rest)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if not isinstance(error, msgspec.ValidationError) or str(error).startswith(_BEYOND_FLOATS):
                    break
                rejected.add_explained(rest, _field_of(error), partial(self._explained, raw, kind, rejected))
            rest += 1
        if raws and rest == len(raws):
            return items, indices
        parsed: list[Any] = []
        places: list[int] = []
        if form == "lines":
            for index, raw in enumerate(raws[rest:], rest):
                try:
                    parsed.append(_parse_slowly(bytes(raw), self._max_depth))
                    places.append(index)
                except ProblemError as fault:
                    rejected.add(index, "", fault.problem.detail)
        else:
            parsed = self._array(body)[rest:]
            places = list(range(rest, rest + len(parsed)))
        more, places = _converted(parsed, places, kind, rejected)
        return [*items, *more], [*indices, *places]

    def _explained(
        self, raw: bytes | msgspec.Raw, kind: RecordKind, rejected: Rejections
    ) -> tuple[str, str, str | None]:
        """Field, reason and id of a record that does not parse."""
        try:
            return _fault(parse_json(bytes(raw), self._max_depth), kind, rejected)
        except ProblemError as error:
            return "", error.problem.detail, None

    def _parts(
        self,
        kind: RecordKind,
        envelopes: list[Envelope],
        indices: list[int],
        default_model: str | None,
        rejected: Rejections,
    ) -> list[RequestPart]:
        """Columns per model; records of models that are not known are added to ``rejected``."""
        models = self._book.models
        makers: dict[RecordKind, Callable[[str, list[Any], list[int]], RequestPart]]
        makers = {"records": _record_part, "labels": _label_part}
        make = makers[kind]
        names = [envelope.model or default_model or "" for envelope in envelopes]
        found = dict.fromkeys(names)
        if len(found) == 1 and names[0] in models:
            return [make(names[0], envelopes, indices)]
        places: dict[str, list[int]] = {name: [] for name in found if name in models}
        unknown: list[int] = []
        for at, name in enumerate(names):
            places.get(name, unknown).append(at)
        rejected.add_unknown(
            [indices[at] for at in unknown],
            [names[at] for at in unknown],
            id_of=lambda row: _short_id(envelopes[unknown[row]].id),
            known=list(models),
        )
        return [
            make(model, [envelopes[at] for at in members], [indices[at] for at in members])
            for model, members in places.items()
        ]

    def _array(self, body: bytes) -> list[Any]:
        parsed = _parse_slowly(body, self._max_depth)
        records = parsed if isinstance(parsed, list) else [parsed]
        self._too_many(len(records))
        return records

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
        return _parse_slowly(body, max_depth)


def _parse_slowly(body: bytes, max_depth: int) -> Any:
    """As `parse_json`, for what the faster parser does not take."""
    try:
        text = body.decode()
        if text.startswith(("{", "[")):  # as `json.loads`, which costs a line as much again
            value, end = _READ(text)
            if end == len(text) or not text[end:].strip(" \t\r\n"):
                return value
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


_BEYOND_FLOATS = "Number out of range"
"""Of a number such as ``1e999``, which the slower parser reads as infinity."""
_READ = json.JSONDecoder().raw_decode
_RAWS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_Scalar: TypeAlias = str | int | float | bool | None
_Odd: TypeAlias = _Scalar | list[Any]
"""What is no object: taken for no error of the parser, which would cost more than a record does."""
_LISTS: dict[RecordKind, Any] = {"records": list[RecordEnvelope | _Odd], "labels": list[LabelEnvelope | _Odd]}
_ITEMS: dict[RecordKind, Any] = {kind: get_args(type_)[0] for kind, type_ in _LISTS.items()}
_ELEMENT: dict[RecordKind, Callable[[bytes | msgspec.Raw], Any]] = {
    kind: msgspec.json.Decoder(type_).decode for kind, type_ in _ITEMS.items()
}
_LINES_HINT = "; JSON lines need the header content-type: application/x-ndjson (curl: and --data-binary)"
_BODIES: dict[RecordKind, Callable[[bytes], Any]] = {
    "records": msgspec.json.Decoder(list[RecordEnvelope | _Odd] | RecordEnvelope | _Scalar).decode,
    "labels": msgspec.json.Decoder(list[LabelEnvelope | _Odd] | LabelEnvelope | _Scalar).decode,
}
_LINES: dict[RecordKind, Callable[[bytes], Any]] = {
    kind: msgspec.json.Decoder(type_).decode_lines for kind, type_ in _ITEMS.items()
}


def _with_parts(name: str, fields: dict[str, Any], parts: list[memoryview], depth: int) -> dict[str, Any]:
    try:
        return with_parts(fields, parts, depth)
    except ValueError as error:
        field, _, reason = str(error).partition(": ")
        raise FieldError(f"{name}.{field}"[:256], reason) from None


def _elements(body: bytes) -> list[msgspec.Raw]:
    """Elements of an array as they stand; none where the fast parser cannot tell them apart."""
    try:
        return _RAWS(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def _converted(
    items: list[Any], indices: list[int], kind: RecordKind, rejected: Rejections
) -> tuple[list[Any], list[int]]:
    """Records of parsed JSON, and what is no object; misfits are added to ``rejected``."""
    try:
        return msgspec.convert(items, _LISTS[kind]), indices
    except msgspec.ValidationError:
        pass
    fitting: list[Any] = []
    places: list[int] = []
    for index, item in zip(indices, items, strict=True):
        try:
            fitting.append(msgspec.convert(item, _ITEMS[kind]))
            places.append(index)
        except msgspec.ValidationError as error:
            rejected.add_explained(index, _field_of(error), partial(_fault, item, kind, rejected))
    return fitting, places


def _field_of(error: msgspec.ValidationError) -> str:
    """Field that a record was refused for, told by the message alone."""
    message = str(error)
    for start in ("Object contains unknown field `", "Object missing required field `"):
        if message.startswith(start):
            return message[len(start) : -1][:256]
    return message.rpartition(" - at `$.")[2][:-1] if message.endswith("`") else ""


def _fault(item: Any, kind: RecordKind, rejected: Rejections) -> tuple[str, str, str | None]:
    """Field, reason and id of a record that does not fit its envelope."""
    if not isinstance(item, dict):
        return "", _no_object(item), None
    type_ = _TYPES[kind]
    id_ = _short_id(item.get("id"))
    for name in item:
        if name not in type_.__struct_fields__:
            hint = _HINTS.get((kind, name))
            return name[:256], hint or rejected.suggest("field", name, type_.__struct_fields__), id_
    try:
        msgspec.convert(item, type_)
    except msgspec.ValidationError as error:
        name = _field_of(error)
        message = str(error).partition(" - at ")[0]
        came = f"; got {item[name]!r:.80}" if name in item else ""
        return name, message[:1].lower() + message[1:] + came, id_
    return "", "a field stands twice with values of different types", id_


def _no_object(item: Any) -> str:
    return f"expected a JSON object, got {type(item).__name__}"


def _short_id(id_: Any) -> str | None:
    return id_[:256] if isinstance(id_, str) else None


def _refuse(
    rejected: Rejections, part: RequestPart, faults: Iterable[FaultyRows], *, are_erased: bool = False
) -> None:
    """Add faulty rows of a part to the rejected."""
    for each in faults:
        rejected.add_rows(
            each.rows, each.field, each.reason, below=each.below, said_of=each.said_of,
            indices=part.indices, model=part.model, id_of=part.id_of, are_erased=are_erased,
        )  # fmt: skip


def _record_part(model: str, records: list[RecordEnvelope], indices: list[int]) -> RequestPart:
    names = ("id", "ts", "version", "entity", "seq", "weight", "partial")
    fields = {name: _members(name, records) for name in ("inputs", "outputs", "attrs")}
    return RequestPart(model, indices, {name: _members(name, records) for name in names}, fields)


def _label_part(model: str, labels: list[LabelEnvelope], indices: list[int]) -> RequestPart:
    names = ("id", "ts", "source", "key", "entity")
    fields = {"label": _members("label", labels)}
    return RequestPart(model, indices, {name: _members(name, labels) for name in names}, fields)


def _members(name: str, records: Sequence[Envelope]) -> list[Any]:
    """One member of every record; names that came as numbers are texts."""
    values = list(map(attrgetter(name), records))
    if name in ("id", "version", "entity") and int in set(map(type, values)):
        return [str(value) if type(value) is int else value for value in values]
    return values
