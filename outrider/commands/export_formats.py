"""Formats of ``outrider dataset export``. Each writer holds one record batch in memory."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from outrider.assertions.batch.columns import is_tensor, plain, to_tensor
from outrider.dataops.loaders.nested import nested_lists, nested_type
from outrider.errors import ConfigError

Rows: TypeAlias = Callable[[], Iterator[pa.RecordBatch]]
"""Rows of one part; each call starts a new iteration."""
SHARD_ROWS = 100_000
NAME_BYTES = 120
"""Maximum length of a file or folder name; a longer one is cut and ends in a digest."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows to export, and the name of their dataset part."""

    name: str
    schema: pa.Schema
    count: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class ExportColumns:
    """Columns that a format reads; None: the only column that fits."""

    image: str | None = None
    label: str | None = None
    prompt: str | None = None
    answer: str | None = None


@dataclass(slots=True)
class Written:
    """Rows written by part, rows left out by reason, and format facts."""

    rows: dict[str, int] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    facts: dict[str, Any] = field(default_factory=dict)


def write_parquet(parts: Sequence[Part], folder: Path, choice: ExportColumns) -> Written:  # noqa: ARG001 - one form
    """One Parquet file per part, with unchanged types."""
    written = Written()
    for part in parts:
        with pq.ParquetWriter(folder / f"{part.name}.parquet", part.schema, compression="zstd") as writer:
            for batch in part.rows():
                writer.write_batch(batch)
        written.rows[part.name] = part.count
    return written


def write_hf(parts: Sequence[Part], folder: Path, choice: ExportColumns) -> Written:  # noqa: ARG001 - one form
    """Parquet shards for ``datasets.load_dataset``; tensors become nested lists."""
    written = Written()
    (folder / "data").mkdir()
    for part in parts:
        schema = pa.schema([pa.field(f.name, nested_type(f.type)) for f in part.schema])
        shards = max(1, -(-part.count // SHARD_ROWS))
        batches = part.rows()
        kept: pa.RecordBatch | None = None
        for shard in range(shards):
            room = SHARD_ROWS
            name = f"{part.name}-{shard:05d}-of-{shards:05d}.parquet"
            with pq.ParquetWriter(folder / "data" / name, schema, compression="zstd") as writer:
                while room and (batch := kept if kept is not None else next(batches, None)) is not None:
                    kept = batch.slice(room) if batch.num_rows > room else None
                    batch = batch.slice(0, room)
                    columns = [nested_lists(batch.column(f.name)) for f in schema]
                    writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
                    room -= batch.num_rows
        written.rows[part.name] = part.count
    return written


def write_images(parts: Sequence[Part], folder: Path, choice: ExportColumns) -> Written:
    """``PART/CLASS/ID.png``, with one intensity scale for all pictures."""
    from outrider.monitor.web.images import is_image, to_png

    schema = parts[0].schema
    tensors = [f.name for f in schema if is_tensor(f.type) and is_image(tuple(f.type.shape))]
    image = _column(
        schema, choice.image, [n for n in tensors if n.startswith("inputs.")], "--image", "inputs", "image"
    )
    if image not in tensors:
        raise ConfigError(
            f"--image {image}: a tensor (H, W), (C, H, W) or (H, W, C) expected, it is no image"
        )
    label = _label(schema, choice)
    low, high = _range(parts, image)
    names: dict[str, str] = {}
    written = Written(facts={"image": image, "label": label, "black": low, "white": high, "classes": names})
    for part in parts:
        written.rows[part.name] = 0
        for batch in part.rows():
            classes = plain(batch.column(label), label)
            absent = batch.column(image).is_null().to_pylist()
            pixels = to_tensor(batch.column(image), image, 0)
            for row, key in enumerate(batch.column("id").to_pylist()):
                if classes[row] is None or absent[row]:
                    written.left_out[f"no {label if classes[row] is None else image}"] += 1
                    continue
                name = safe_name(str(classes[row]))
                names[name] = classes[row]
                place = folder / part.name / name
                place.mkdir(parents=True, exist_ok=True)
                (place / f"{safe_name(key)}.png").write_bytes(to_png(pixels[row], scale=(low, high)))
                written.rows[part.name] += 1
    return written


def write_chat(parts: Sequence[Part], folder: Path, choice: ExportColumns) -> Written:
    """One ``{"messages": [...]}`` per line: the question and the labelled answer."""
    schema = parts[0].schema
    prompt, label = _prompt(schema, choice), _label(schema, choice)
    written = Written(facts={"prompt": prompt, "label": label})

    def lines(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        for asked, right in _columns(batch, prompt, label):
            if asked is None or right is None:
                written.left_out[f"no {prompt if asked is None else label}"] += 1
                continue
            yield {"messages": [*_messages(asked), *_reply(right)]}

    return _write_lines(parts, folder, lines, written)


def write_preferences(parts: Sequence[Part], folder: Path, choice: ExportColumns) -> Written:
    """One ``{"prompt", "chosen", "rejected"}`` per line, if a label corrects an answer.

    Conversations become message lists.
    """
    schema = parts[0].schema
    prompt, label = _prompt(schema, choice), _label(schema, choice)
    outputs = [name for name in schema.names if name.startswith("outputs.")]
    same = f"outputs.{label.removeprefix('label.')}"
    texts = [name for name in outputs if _is_text(schema.field(name).type)]
    likely = [same] if same in outputs else texts
    answer = _column(schema, choice.answer, likely, "--answer", "outputs", "model's answer")
    written = Written(facts={"prompt": prompt, "label": label, "answer": answer})

    def lines(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        for asked, right, answered in _columns(batch, prompt, label, answer):
            missing = [
                n for n, value in ((prompt, asked), (label, right), (answer, answered)) if value is None
            ]
            if missing:
                written.left_out[f"no {missing[0]}"] += 1
            elif _reply(right) == _reply(answered):
                written.left_out["the label is the model's answer"] += 1
            elif isinstance(_parsed(asked), list):
                yield {"prompt": _messages(asked), "chosen": _reply(right), "rejected": _reply(answered)}
            else:
                yield {"prompt": _text(asked), "chosen": _text(right), "rejected": _text(answered)}

    return _write_lines(parts, folder, lines, written)


def safe_name(text: str) -> str:
    """Escape a text to a file name; different texts get different names.

    Examples
    --------
    >>> safe_name("cat"), safe_name("a b.c"), safe_name("../x"), safe_name("..")
    ('cat', 'a b.c', '%2E.%2Fx', '%2E%2E')
    >>> safe_name(""), len(safe_name("é" * 100))
    ('%', 120)
    """
    inner = quote(text[1:-1], safe=" ")
    ends = [_escaped(text[:1]), _escaped(text[-1:]) if len(text) > 1 else ""]
    name = inner.join(ends) or "%"
    if len(name) <= NAME_BYTES:
        return name
    digest = blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{name[: NAME_BYTES - len(digest) - 1]}%{digest}"


def _escaped(end: str) -> str:
    """Escape a first or last character that is unsafe there: a dot hides the file, some systems drop a
    space."""
    return f"%{ord(end):02X}" if end in (".", " ") else quote(end, safe="")


def _range(parts: Sequence[Part], image: str) -> tuple[float, float]:
    """Pixel values for black and white: one of the usual ranges that fits all pictures, else their range."""
    low, high = np.inf, -np.inf
    for part in parts:
        for batch in part.rows():
            values = to_tensor(batch.column(image), image, 0)
            known = values[np.isfinite(values)] if values.dtype.kind == "f" else values
            if known.size:
                low, high = min(low, float(known.min())), max(high, float(known.max()))
    for top in (1.0, 255.0):
        if low >= 0 and high <= top and (top == 1.0 or high > 16):
            return 0.0, top
    return (low, high) if low < high else (0.0, 1.0)


def _write_lines(
    parts: Sequence[Part],
    folder: Path,
    lines: Callable[[pa.RecordBatch], Iterator[dict[str, Any]]],
    written: Written,
) -> Written:
    for part in parts:
        written.rows[part.name] = 0
        with (folder / f"{part.name}.jsonl").open("w", encoding="utf-8") as file:
            for batch in part.rows():
                for line in lines(batch):
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
                    written.rows[part.name] += 1
    return written


def _columns(batch: pa.RecordBatch, *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(plain(batch.column(name), name) for name in names), strict=True)


def _prompt(schema: pa.Schema, choice: ExportColumns) -> str:
    inputs = [name for name in schema.names if name.startswith("inputs.")]
    usual = [name for name in ("inputs.messages", "inputs.prompt") if name in inputs][:1]
    texts = [name for name in inputs if _is_text(schema.field(name).type)]
    return _column(schema, choice.prompt, usual or texts, "--prompt", "inputs", "text input")


def _label(schema: pa.Schema, choice: ExportColumns) -> str:
    labels = [name for name in schema.names if name.startswith("label.")]
    return _column(schema, choice.label, labels, "--label", "label", "label")


def _column(
    schema: pa.Schema, chosen: str | None, fitting: Sequence[str], option: str, part: str, noun: str
) -> str:
    """The chosen column, or the only one that fits."""
    if chosen is not None:
        for name in (chosen, f"{part}.{chosen}"):
            if name in schema.names:
                return name
        there = ", ".join(schema.names)
        raise ConfigError(f"{option} {chosen}: a column of the version expected, there are {there}")
    if len(fitting) != 1:
        there = ", ".join(fitting) or f"none among {', '.join(schema.names)}"
        raise ConfigError(f"{option}: which column is the {noun}? Candidates: {there}")
    return fitting[0]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or "content: string" in str(kind))


def _parsed(value: Any) -> Any:
    """Lists parsed from conversations that are stored as JSON text; other values unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            found = json.loads(value)
        except ValueError:
            return value
        return found if _is_conversation(found) else value
    return value


def _is_conversation(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(m, dict) and "role" in m for m in value)


def _messages(asked: Any) -> list[dict[str, Any]]:
    asked = _parsed(asked)
    if not _is_conversation(asked):
        return [{"role": "user", "content": _text(asked)}]
    return [{name: value for name, value in message.items() if value is not None} for message in asked]


def _reply(answer: Any) -> list[dict[str, Any]]:
    answer = _parsed(answer)
    return (
        _messages(answer) if _is_conversation(answer) else [{"role": "assistant", "content": _text(answer)}]
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


FORMATS: Mapping[str, Callable[[Sequence[Part], Path, ExportColumns], Written]] = {
    "parquet": write_parquet,
    "hf": write_hf,
    "images": write_images,
    "chat": write_chat,
    "preferences": write_preferences,
}
