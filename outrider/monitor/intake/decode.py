"""From a request body to blocks for the journal; bad records are named with their reason."""

import json
import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
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
    blocks: list[PendingBlock] = field(default_factory=list)
    rejected: Rejections = field(default_factory=Rejections)
    halves: list[PendingHalf] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        count = 0
        for block in self.blocks:
            count += block.rows
        for half in self.halves:
            count += half.block.rows
        return count


class Decoder:
    """Turns bodies into blocks; safe to use from several threads."""

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
        """True while another thread builds a block, which decoding now would wait for."""
        return self._builder.is_busy

    def read_known(
        self, body: bytes, *, form: Form, model: str | None, received_us: int
    ) -> list[RequestPart] | None:
        """Parts of records of one model that fit the known columns; None: see `read`."""
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
        """Columns of a body by model, and its unreadable records; a ProblemError if none can be read."""
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
        """Build blocks; misfit rows join ``rejected``."""
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
        faults = self._erased.faults(part)
        if faults is None:
            return part
        _refuse(decoded.rejected, part, faults.groups, are_erased=True)
        stay = np.flatnonzero(~faults.is_bad).tolist()
        if part.known is None:
            return part.take(stay)
        indices = [part.indices[row] for row in stay]
        return RequestPart(part.model, indices, {}, known=without_rows(part.known, faults.rows.tolist()))

    def schema(self, model: str) -> tuple[pa.Schema, str]:
        return self._builder.schema(model)

    def forget(self, kind: RecordKind, model: str, name: str) -> bool:
        """Drop a learned column; its next value learns it again."""
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
        if form == "lines" and body.count(b"\n") >= self._max_records * 2:
            self._too_many(body.count(b"\n"))
        try:  # the fast path: everything is as it should be
            found = _read_whole(body, kind, form)
        except _UNREADABLE:
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
        """Records parsed one at a time, the slow parser taking what the fast one refuses."""
        raws: Sequence[bytes | msgspec.Raw]
        raws = list(filter(bytes.strip, body.split(b"\n"))) if form == "lines" else _elements(body)
        self._too_many(len(raws))
        if not raws:  # or the fast parser cannot tell the elements apart
            parsed = [] if form == "lines" else self._array(body)
            return _converted(parsed, list(range(len(parsed))), kind, rejected)
        decode = _ELEMENT[kind]
        items: list[Any] = []
        indices: list[int] = []
        odd: list[int] = []
        faults: list[str] = []
        slow: list[int] = []
        run = 0
        for at, raw in enumerate(raws):
            if run == _RUN:
                slow += range(at, len(raws))
                break
            try:
                items.append(decode(raw))
                indices.append(at)
                run = 0
            except _UNREADABLE as error:
                fault = str(error)
                if isinstance(error, msgspec.ValidationError) and not fault.startswith(_BEYOND_FLOATS):
                    odd.append(at)
                    faults.append(fault)
                else:
                    slow.append(at)
                    run += 1
        rejected.add_explained(
            odd, _fields_of(faults), lambda row: self._explained(raws[odd[row]], kind, rejected)
        )
        if not slow:
            return items, indices
        parsed, slow = self._slow_ones(raws, slow, body, form, rejected)
        more, slow = _converted(parsed, slow, kind, rejected)
        if not items:
            return more, slow
        whole = sorted(zip([*indices, *slow], [*items, *more], strict=True), key=itemgetter(0))
        return [item for _, item in whole], [index for index, _ in whole]

    def _slow_ones(
        self,
        raws: Sequence[bytes | msgspec.Raw],
        places: list[int],
        body: bytes,
        form: Form,
        rejected: Rejections,
    ) -> tuple[list[Any], list[int]]:
        """Values that the fast parser refuses, and their places; parsed at once if possible."""
        parsed = _at_once([raws[at] for at in places])
        if parsed is not None:
            return parsed, places
        if form != "lines":
            whole = self._array(body)  # or the place of the fault in all of it
            return [whole[at] for at in places], places
        bad = [at for at in places if _is_malformed(bytes(raws[at]))]
        rejected.add_explained(
            bad, [""] * len(bad), lambda row: self._explained(raws[bad[row]], "records", rejected)
        )
        places = sorted(set(places).difference(bad))
        parsed = _at_once([raws[at] for at in places])
        if parsed is not None:
            return parsed, places
        parsed, stay = [], []
        for at in places:
            try:
                parsed.append(_parse_slowly(bytes(raws[at]), self._max_depth))
                stay.append(at)
            except ProblemError as fault:
                rejected.add(at, "", fault.problem.detail)
        return parsed, stay

    def _explained(
        self, raw: bytes | msgspec.Raw, kind: RecordKind, rejected: Rejections
    ) -> tuple[str, str, str | None]:
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
    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


def parse_json(body: bytes, max_depth: int) -> Any:
    """Any JSON value; NaN and Infinity pass as floats, so that only their records are refused."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _parse_slowly(body, max_depth)


def _parse_slowly(body: bytes, max_depth: int) -> Any:
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


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_BEYOND_FLOATS = "Number out of range"
"""Error of a number such as ``1e999``, which the slow parser reads as infinity."""
_RUN = 16
"""After so many failures in a row the fast parser is not tried on the other records."""
_READ = json.JSONDecoder().raw_decode
_RAWS = msgspec.json.Decoder(list[msgspec.Raw]).decode
_ANY = msgspec.json.Decoder().decode
_Scalar: TypeAlias = str | int | float | bool | None
_Odd: TypeAlias = _Scalar | list[Any]
"""Elements that are no object, without the parser's error, which would cost more than a record."""
_LISTS: dict[RecordKind, Any] = {"records": list[RecordEnvelope | _Odd], "labels": list[LabelEnvelope | _Odd]}
_ITEMS: dict[RecordKind, Any] = {kind: get_args(type_)[0] for kind, type_ in _LISTS.items()}
_BODIES: dict[RecordKind, Any] = {
    "records": list[RecordEnvelope | _Odd] | RecordEnvelope | _Scalar,
    "labels": list[LabelEnvelope | _Odd] | LabelEnvelope | _Scalar,
}
_ELEMENT: dict[RecordKind, Callable[[bytes | msgspec.Raw], Any]] = {
    kind: msgspec.json.Decoder(type_).decode for kind, type_ in _ITEMS.items()
}
_LINES_HINT = "; JSON lines need the header content-type: application/x-ndjson (curl: and --data-binary)"


_WHOLE: dict[tuple[Form, RecordKind], Callable[[bytes], Any]] = {
    ("json", kind): msgspec.json.Decoder(type_).decode for kind, type_ in _BODIES.items()
} | {("lines", kind): msgspec.json.Decoder(type_).decode_lines for kind, type_ in _ITEMS.items()}
_ODD_FLOATS = {b"NaN": b"9e99991", b"Infinity": b"9e99992"}
"""Not JSON, and the numbers that the fast parser takes in their place."""
_PASSING = {rb"\ud": rb"\u0", rb"\uD": rb"\u0", b"-Infinity": b"[]", b"Infinity": b"[]", b"NaN": b"[]"}
_MEANT = {"9e99991": math.nan, "9e99992": math.inf, "-9e99992": -math.inf}


def _read_whole(body: bytes, kind: RecordKind, form: Form) -> Any:
    try:
        return _WHOLE[form, kind](body)
    except msgspec.DecodeError:
        odd = sum(map(body.count, _ODD_FLOATS))
        if not odd or b"9e9999" in body:
            raise
        for word, number in _ODD_FLOATS.items():
            body = body.replace(word, number)
        floats = _Floats()
        if form == "lines":
            found = msgspec.json.Decoder(_ITEMS[kind], float_hook=floats).decode_lines(body)
        else:
            found = msgspec.json.Decoder(_BODIES[kind], float_hook=floats).decode(body)
        if floats.odd < odd:  # one is part of a text
            raise
        return found


class _Floats:
    """Numbers of a body as floats; counts those that stand for NaN and infinity."""

    def __init__(self) -> None:
        self.odd = 0

    def __call__(self, number: str) -> float:
        meant = _MEANT.get(number)
        if meant is None:
            return float(number)
        self.odd += 1
        return meant


def _at_once(raws: Sequence[bytes | msgspec.Raw]) -> list[Any] | None:
    """Values parsed slowly as one array, with an unguessable mark between them; None if one is malformed."""
    mark = secrets.token_hex(8)
    try:
        parsed = json.loads((b"[" + f',"{mark}",'.encode().join(raws) + b"]").decode())
    except (ValueError, RecursionError):
        return None
    is_apart = len(parsed) == 2 * len(raws) - 1 and parsed[1::2] == [mark] * (len(raws) - 1)
    return parsed[::2] if is_apart else None


def _is_malformed(raw: bytes) -> bool:
    """True for malformed JSON; NaN, infinity and unpaired surrogates pass."""
    for word, other in _PASSING.items():
        raw = raw.replace(word, other)
    try:
        _ANY(raw)
    except (msgspec.ValidationError, RecursionError):  # numbers and depths that the slow parser may take
        return False
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def _with_parts(name: str, fields: dict[str, Any], parts: list[memoryview], depth: int) -> dict[str, Any]:
    try:
        return with_parts(fields, parts, depth)
    except ValueError as error:
        field, _, reason = str(error).partition(": ")
        raise FieldError(f"{name}.{field}"[:256], reason) from None


def _elements(body: bytes) -> list[msgspec.Raw]:
    """Raw elements of an array; none if the fast parser cannot tell them apart."""
    try:
        return _RAWS(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


def _converted(
    items: list[Any], indices: list[int], kind: RecordKind, rejected: Rejections
) -> tuple[list[Any], list[int]]:
    try:
        return msgspec.convert(items, _LISTS[kind]), indices
    except msgspec.ValidationError:
        pass
    fitting: list[Any] = []
    places: list[int] = []
    odd: list[int] = []
    faults: list[str] = []
    for at, item in enumerate(items):
        try:
            fitting.append(msgspec.convert(item, _ITEMS[kind]))
            places.append(indices[at])
        except msgspec.ValidationError as error:
            odd.append(at)
            faults.append(str(error))
    rejected.add_explained(
        [indices[at] for at in odd], _fields_of(faults), lambda row: _fault(items[odd[row]], kind, rejected)
    )
    return fitting, places


def _fields_of(faults: list[str]) -> list[str]:
    """Fields of validation errors, found in their messages."""
    fields = {fault: _field_of(fault) for fault in set(faults)}
    return [fields[fault] for fault in faults]


def _field_of(fault: str) -> str:
    for start in ("Object contains unknown field `", "Object missing required field `"):
        if fault.startswith(start):
            return fault[len(start) : -1][:256]
    return fault.rpartition(" - at `$.")[2][:-1] if fault.endswith("`") else ""


def _fault(item: Any, kind: RecordKind, rejected: Rejections) -> tuple[str, str, str | None]:
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
        name = _field_of(str(error))
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
    for each in faults:
        rejected.add_rows(
            each.rows, each.field, each.reason, below=each.below, said_of=each.said_of,
            indices=part.indices, model=part.model, id_of=part.id_of, are_erased=are_erased,
        )  # fmt: skip


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
    return RequestPart(model, indices, system, fields)


def _label_part(model: str, labels: list[LabelEnvelope], indices: list[int]) -> RequestPart:
    system: dict[str, list[Any]] = {
        "id": _texts([label.id for label in labels]),
        "ts": [label.ts for label in labels],
        "source": [label.source for label in labels],
        "key": [label.key for label in labels],
        "entity": _texts([label.entity for label in labels]),
    }
    return RequestPart(model, indices, system, {"label": [label.label for label in labels]})


def _texts(values: list[Any]) -> list[Any]:
    """Names that came as numbers, as texts."""
    if int in set(map(type, values)):
        return [str(value) if type(value) is int else value for value in values]
    return values
