"""Arrow IPC streams from strangers: whole, bounded, and checked before any value is touched."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outrider.assertions.batch import SYSTEM
from outrider.data_files import NOT_UTF8, readable_column
from outrider.dataops.journal.journal import Kind
from outrider.dataops.payloads.columns import MEDIA_TYPE, from_arrow
from outrider.monitor.http.problem import ProblemError, problem

from .arrow_messages import bad, check_decoded, check_messages, check_schema
from .block_builder import MAX_CELLS
from .fast_arrow import known_columns
from .pending_blocks import PendingBlock
from .rejections import Rejections, RowFaults, Rows, close_names
from .request_parts import RequestPart, short_id
from .system_columns import LABEL_SYSTEM

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_PARTS: dict[Kind, tuple[str, ...]] = {"records": ("inputs", "outputs", "attrs"), "labels": ("label",)}


def read_stream(
    body: bytes,
    *,
    kind: Kind,
    max_records: int,
    max_bytes: int,
    default_model: str | None,
    models: Collection[str],
    rejected: Rejections,
) -> list[RequestPart]:
    """Parts by model and batch; compressed buffers are refused, since they escape the limits on size."""
    if not body.endswith(_END):
        raise bad("the stream is truncated: its end-of-stream marker is missing")
    check_messages(body)
    parts: list[RequestPart] = []
    rows = decoded = 0
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            check_schema(reader.schema)
            _check_names(reader.schema, kind)
            for field in reader.schema:
                _check_fields(field.name, field.type)
            metadata = reader.schema.metadata or {}
            model = default_model or metadata.get(b"outrider.model", b"").decode("utf-8", "replace")
            for batch in reader:
                rows += batch.num_rows
                if rows > max_records:
                    raise ProblemError(
                        problem(413, f"more than {max_records} rows in one request (limits.records)")
                    )
                first = rows - batch.num_rows
                batch, places = _with_texts(batch, first, model, rejected)
                decoded = check_decoded(batch, decoded, max_bytes, "limits.body_bytes")
                parts += _parts(batch, places, kind, model, models, rejected)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise bad(f"not a readable Arrow IPC stream: {str(error).splitlines()[0]}") from None
    return parts


def read_known_stream(
    body: bytes,
    *,
    schema: Callable[[str], tuple[pa.Schema, str]],
    max_records: int,
    default_model: str | None,
    received_us: int,
    needed: Callable[[str], tuple[str, ...]] = lambda _: (),
    names_groups: Callable[[str, str], bool] = lambda *_: False,
) -> list[RequestPart] | None:
    """Parts of a stream whose columns all fit the schema; None: `read_stream` has to look at it."""
    if not body.endswith(_END):
        return None
    check_messages(body)
    parts: list[RequestPart] = []
    rows = 0
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            named = (reader.schema.metadata or {}).get(b"outrider.model", b"").decode("utf-8", "replace")
            model = default_model or named
            known, digest = schema(model)
            if reader.schema.get_field_index("model") >= 0:
                return None
            for batch in reader:
                if not batch.num_rows:
                    continue
                batch.validate(full=True)
                table = known_columns(
                    batch,
                    known,
                    received_us,
                    needed=needed(model),
                    names_groups=partial(names_groups, model),
                )
                if table is None or rows + batch.num_rows > max_records:
                    return None
                if batch.num_rows * len(known) > MAX_CELLS:
                    return None
                indices = range(rows, rows + batch.num_rows)
                rows += batch.num_rows
                block = PendingBlock("records", model, digest, table)
                parts.append(RequestPart(model, indices, {}, known=block))
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return None
    return parts or None


def _with_texts(
    batch: pa.RecordBatch, first: int, model: str, rejected: Rejections
) -> tuple[pa.RecordBatch, Rows]:
    """Validated batch without the rows whose texts are not UTF-8, and the places of its rows."""
    places = np.arange(first, first + batch.num_rows)
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        pass
    else:
        return batch, places
    faults = RowFaults(batch.num_rows)
    for at, field in enumerate(batch.schema):
        column, bad = readable_column(batch.column(at))
        faults.add(bad, field.name[:256], NOT_UTF8)
        batch = batch.set_column(at, field, column)
    batch.validate(full=True)
    ids = batch.column("id") if "id" in batch.schema.names else None
    for each in faults.groups:
        rejected.add_rows(
            each.rows, each.field, each.reason, indices=places.tolist(), model=model,
            id_of=lambda row: None if ids is None else short_id(ids[row]),
        )  # fmt: skip
    stay = np.flatnonzero(~faults.is_bad)
    return batch.take(pa.array(stay)), places[stay]


def _parts(
    batch: pa.RecordBatch, places: Rows, kind: Kind, model: str, models: Collection[str], rejected: Rejections
) -> Iterator[RequestPart]:
    """One part per known model; any number of names costs no more than a sort."""
    if batch.num_rows == 0:
        return
    at = batch.schema.get_field_index("model")
    names = pa.repeat(model, batch.num_rows) if at < 0 else batch.column(at).cast(pa.string())
    coded = pc.fill_null(names, model).dictionary_encode()
    found: list[str] = coded.dictionary.to_pylist()
    codes = coded.indices.to_numpy()
    is_known = np.fromiter((name in models for name in found), np.bool_, len(found))
    unknown = np.flatnonzero(~is_known[codes])
    if len(unknown):
        ids = batch.column("id") if "id" in batch.schema.names else None
        rejected.add_unknown(
            places[unknown].tolist(),
            [found[code] for code in codes[unknown].tolist()],
            id_of=lambda row: None if ids is None else short_id(ids[int(unknown[row])]),
            known=list(models),
        )
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(found) + 1))
    for code in np.flatnonzero(is_known).tolist():
        rows = order[bounds[code] : bounds[code + 1]]
        chosen = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
        yield _part(chosen, places[rows].tolist(), kind, found[code])


def _part(batch: pa.RecordBatch, indices: list[int], kind: Kind, model: str) -> RequestPart:
    known = LABEL_SYSTEM if kind == "labels" else SYSTEM
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns.pop("model", None)
    for name in columns.keys() - known.keys():
        columns[name] = _opened(columns[name], batch.schema.field(name))
    return RequestPart(
        model=model,
        indices=indices,
        system={name: values for name, values in columns.items() if name in known},
        columns={name: values for name, values in columns.items() if name not in known},
    )


def _opened(array: pa.Array, field: pa.Field) -> pa.Array:
    """Column of payloads where bytes or references came."""
    media_type = (field.metadata or {}).get(MEDIA_TYPE)
    try:
        found = from_arrow(array, None if media_type is None else media_type.decode("utf-8", "replace"))
    except pa.ArrowException as error:
        raise bad(f"column {field.name!r}: payloads cannot be read: {error}") from None
    return array if found is None else found


def _check_names(schema: pa.Schema, kind: Kind) -> None:
    known = [*(LABEL_SYSTEM if kind == "labels" else SYSTEM), "model"]
    parts = _PARTS[kind]
    times = Counter(schema.names)
    for name, count in times.items():
        part, dot, rest = name.partition(".")
        if count > 1:
            raise bad(f"column {name[:256]!r} stands twice")
        if name in known or (part in parts and dot and rest):
            continue
        near = close_names(part if dot else name, parts if dot else known)
        suggestion = f"{near[0]}.{rest}" if near and dot else near[0] if near else ""
        hint = f"; did you mean {suggestion[:256]!r}?" if suggestion else ""
        choices = ", ".join([*known, *(f"{p}.*" for p in parts)])
        raise bad(f"column {name[:256]!r} is none of {choices}{hint}")
    if not any(name.partition(".")[0] in parts for name in times):
        raise bad(f"the stream has no column {' or '.join(p + '.*' for p in parts)}")


def _check_fields(name: str, kind: pa.DataType) -> None:
    """Refuse what Python could not read later: nested fields that share a name."""
    names = [kind.field(index).name for index in range(kind.num_fields)]
    if pa.types.is_struct(kind) and len(set(names)) < len(names):
        raise bad(f"an element of column {name[:256]!r} has two fields of one name")
    for index in range(kind.num_fields):
        _check_fields(name, kind.field(index).type)
