"""One line per perturbation: how it is made and on which batch it is tried. A new one is a new line."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from outrider.assertions import Batch
from outrider.assertions.batch.columns import is_tensor
from outrider.behavioral_tests import perturb
from outrider.behavioral_tests.perturb import Perturbation

text, image, table, series, chat = (
    perturb.text,
    perturb.image,
    perturb.tabular,
    perturb.series,
    perturb.chat,
)


@dataclass(frozen=True)
class Case:
    """``covers`` is the function it tries; ``makes_nulls`` for those whose work that is."""

    covers: Callable[..., Perturbation]
    make: Callable[[], Perturbation]
    batch: Callable[[], Batch]
    makes_nulls: bool = False


TEXTS = [
    "I love the film, and it's a great movie.",
    "We weren't happy with the staff. I don't like 15 bags.",
    "Mary Smith and John flew from Boston to France because of the 240 people.",
    "It is not bad",
    "What is the best way to get a refund?",
    "x",
    "",
    " \n",
    None,
    "\u00e9\U0001f44d\U0001f3fd\u65e5\u672c\u8a9e \u0639\u0631\u0628\u064a",
    "WE LOVED A LOT OF IT",
]
TALK = [
    {"role": "system", "content": "You help people. Be brief. Never lie. Use English."},
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Why {x}?"},
]


def texts() -> Batch:
    """Texts of many kinds, an empty one and a null."""
    return Batch.from_columns(
        {
            "entity": ["a"] * len(TEXTS),
            "inputs.text": pa.array(TEXTS, pa.string()),
            "inputs.other": np.arange(len(TEXTS)),
            "label.label": np.arange(len(TEXTS)),
        },
        model="m",
    )


def talks() -> Batch:
    """Conversations with and without system prompt, examples and content, an empty one and a null."""
    tool: list[dict[str, str | None]] = [
        {"role": "assistant", "content": None},
        {"role": "system", "content": "1. a\n2. b"},
    ]
    found = [TALK, TALK[1:2], [], None, tool, TALK[:1]]
    records = [{"inputs": {"messages": talk, "prompt": "Do this. Then that."}} for talk in found]
    return Batch.from_records(records, model="m")


def images(*shape: int, dtype: Any = np.float32) -> Batch:
    """Random images, the last flat, with a null among them."""
    pixels = np.random.default_rng(0).random((7, *shape))
    pixels[-1] = 0.0
    levels = (pixels * 255 if np.dtype(dtype).kind == "u" else pixels).astype(dtype)
    batch = Batch.from_columns({"inputs.image": levels, "inputs.other": np.arange(7)}, model="m")
    null = np.arange(7) == 3
    storage = pa.array([None if absent else v.ravel() for v, absent in zip(levels, null, strict=True)])
    kind = batch.arrow("inputs.image").type
    return batch.with_columns(
        {"inputs.image": pa.ExtensionArray.from_storage(kind, storage.cast(kind.storage_type))}
    )


def rows() -> Batch:
    """A table of numbers and categories with nulls."""
    rng = np.random.default_rng(0)
    null = rng.random(20) < 0.3
    codes = [None if absent else "fmx"[row % 3] for row, absent in enumerate(null)]
    return Batch.from_columns(
        {
            "inputs.age": pa.array(rng.normal(40, 10, 20), mask=null),
            "inputs.rooms": pa.array(rng.integers(0, 90, 20), mask=null),
            "inputs.level": pa.array(rng.integers(0, 255, 20).astype(np.uint8)),
            "inputs.height": pa.array(rng.normal(170, 9, 20).astype(np.float32)),
            "inputs.weight": pa.array(rng.normal(70, 9, 20).astype(np.float32)),
            "inputs.sex": pa.array(codes, pa.string()),
            "inputs.status": pa.array(codes, pa.string()).dictionary_encode(),
            "inputs.vip": pa.array(rng.random(20) < 0.5, mask=null),
        },
        model="m",
    )


def times() -> Batch:
    """Time series as tensors and as lists, of floats and of integers, with nulls, a short and a flat one."""
    rng = np.random.default_rng(0)
    lists = [[1.0, 2.5, None, 4.0, 8.0], [], None, [3.0], [2.0] * 6, rng.normal(size=30).tolist()]
    whole = [[1, 20, 3, 40, 5], [], None, [3], [2] * 6, rng.integers(-99, 99, 30).tolist()]
    leads = rng.normal(size=(6, 40, 2))
    leads[0] = 1.0
    return Batch.from_columns(
        {
            "inputs.series": rng.normal(size=(6, 40)).astype(np.float32),
            "inputs.leads": leads,
            "inputs.counts": rng.integers(-500, 500, (6, 40)).astype(np.int16),
            "inputs.lists": pa.array(lists, pa.list_(pa.float64())),
            "inputs.whole": pa.array(whole, pa.list_(pa.int64())),
        },
        model="m",
    )


def shown(batch: Batch) -> list[str]:
    """Inputs of each record as text, in which NaN equals NaN, -0.0 equals 0.0, and null equals only null."""
    names = [name for name in batch.names if name.startswith("inputs.")]
    columns = [_values(batch, name) for name in names]
    return [repr([_plain(column[row]) for column in columns]) for row in range(batch.rows)]


def _values(batch: Batch, name: str) -> list[Any]:
    array = batch.arrow(name)
    found: list[Any] = (array.storage if is_tensor(array.type) else array).to_pylist()
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value


def of_text(*makes: tuple[Callable[..., Perturbation], dict[str, Any]]) -> dict[str, Case]:
    """Cases on the text column; further arguments make further cases."""
    return {
        f"text.{make.__name__}{_told(options)}": Case(make, partial(make, **options), texts)
        for make, options in makes
    }


def of_image(*makes: tuple[Callable[..., Perturbation], dict[str, Any]]) -> dict[str, Case]:
    """Cases on grey and colour images and, in their own range, on bytes."""
    kinds: dict[str, tuple[Callable[[], Batch], dict[str, Any]]] = {
        "grey": (partial(images, 8, 9), {}),
        "colour": (partial(images, 3, 9, 16, dtype=np.float64), {}),
        "bytes": (partial(images, 3, 8, 8, dtype=np.uint8), {}),
    }
    found = {}
    for make, options in makes:
        for kind, (batch, scale) in kinds.items():
            if make in (image.channels, image.grey) and kind == "grey":
                continue
            fitting = scale if "value_range" in make.__code__.co_varnames else {}
            name = f"image.{make.__name__}{_told(options)} {kind}"
            found[name] = Case(make, partial(make, **options, **fitting, device="cpu"), batch)
    return found


def of_series(*makes: tuple[Callable[..., Perturbation], dict[str, Any]]) -> dict[str, Case]:
    """Cases on every column of time series."""
    return {
        f"series.{make.__name__}{_told(options)} {name}": Case(
            make, partial(make, name, **options), times, makes_nulls=make is series.gap
        )
        for make, options in makes
        for name in (
            ["leads"]
            if make is series.channels
            else ["series", "counts", "lists"]
            if options
            else ["leads", "lists", "whole"]
        )
    }


def _told(options: dict[str, Any]) -> str:
    return f"({', '.join(f'{name}={value}' for name, value in options.items())})" if options else ""


def _louder(value: Any, rng: np.random.Generator) -> Any:
    return f"{value}!" if value else None


CASES: dict[str, Case] = {
    **of_text(
        (text.add_negation, {}),
        (text.case, {"to": "lower"}),
        (text.case, {"to": "upper"}),
        (text.case, {"to": "title"}),
        (text.case, {"to": "swap"}),
        (text.compatibility, {}),
        (text.compatibility, {"style": "bold"}),
        (text.compatibility, {"style": "italic"}),
        (text.confusables, {"count": 3}),
        (text.contractions, {}),
        (text.delete_characters, {}),
        (text.delete_characters, {"count": 9}),
        (text.emoji, {}),
        (text.handle, {}),
        (text.insert_characters, {"count": 2}),
        (text.keyboard, {"count": 2}),
        (text.locations, {}),
        (text.names, {}),
        (text.names, {"part": "first"}),
        (text.names, {"part": "last"}),
        (text.numbers, {}),
        (text.paraphrase, {}),
        (text.phrase, {"phrases": ["Honestly.", "Really."], "at": "either"}),
        (text.punctuation, {}),
        (text.remove_negation, {}),
        (text.repeat_characters, {}),
        (text.synonyms, {}),
        (text.synonyms, {"mapping": {"film": ["opera"]}}),
        (text.typos, {}),
        (text.typos, {"count": 3}),
        (text.url, {}),
        (text.whitespace, {"count": 2}),
        (text.zero_width, {}),
    ),
    **of_image(
        (image.blur, {}),
        (image.brightness, {"by": 0.2}),
        (image.brightness, {"by": -0.2}),
        (image.channels, {"order": (2, 0, 1)}),
        (image.contrast, {"factor": 1.5}),
        (image.flip, {}),
        (image.flip, {"axis": "vertical"}),
        (image.gamma, {"exponent": 0.5}),
        (image.grey, {}),
        (image.jpeg, {"quality": 20}),
        (image.noise, {"sigma": 0.1}),
        (image.occlude, {"share": 0.5}),
        (image.rotate, {}),
        (image.salt_and_pepper, {"share": 0.3}),
        (image.shift, {"pixels": 2}),
        (image.stuck, {}),
        (image.stuck, {"axis": "column", "lines": 2}),
        (image.zoom, {}),
        (image.zoom, {"factor": 0.7}),
    ),
    "tabular.clip": Case(table.clip, lambda: table.clip("age", low=35, high=45), rows),
    "tabular.clip int": Case(table.clip, lambda: table.clip("level", high=99), rows),
    "tabular.decimal_shift": Case(table.decimal_shift, lambda: table.decimal_shift("age"), rows),
    "tabular.decimal_shift int": Case(table.decimal_shift, lambda: table.decimal_shift("rooms"), rows),
    "tabular.flip": Case(
        table.flip,
        lambda: table.flip("sex", {"f": "m", "m": "f"}, with_={"status": {"f": "x"}}),
        rows,
    ),
    "tabular.jitter": Case(table.jitter, lambda: table.jitter("age", noise=0.5), rows),
    "tabular.jitter by spread": Case(table.jitter, lambda: table.jitter("age"), rows),
    "tabular.jitter int": Case(table.jitter, lambda: table.jitter("rooms", noise=0.1), rows),
    "tabular.jitter byte": Case(table.jitter, lambda: table.jitter("level", noise=300), rows),
    "tabular.missing": Case(table.missing, lambda: table.missing("age", "rooms"), rows, makes_nulls=True),
    "tabular.missing sentinel": Case(table.missing, lambda: table.missing("age", "rooms", value=-999), rows),
    "tabular.missing empty": Case(table.missing, lambda: table.missing("sex", "status", value=""), rows),
    "tabular.out_of_range": Case(
        table.out_of_range, lambda: table.out_of_range("height", low=0, high=9), rows
    ),
    "tabular.out_of_range int": Case(
        table.out_of_range, lambda: table.out_of_range("rooms", low=0, high=9), rows
    ),
    "tabular.repeat_digit": Case(table.repeat_digit, lambda: table.repeat_digit("height"), rows),
    "tabular.repeat_digit int": Case(table.repeat_digit, lambda: table.repeat_digit("rooms"), rows),
    "tabular.shuffle": Case(table.shuffle, lambda: table.shuffle("status"), rows),
    "tabular.swap": Case(table.swap, lambda: table.swap("sex", values=["f", "m", "x"]), rows),
    "tabular.swap pairs": Case(table.swap, lambda: table.swap("status", values={"f": "m", "m": "f"}), rows),
    "tabular.swap number": Case(table.swap, lambda: table.swap("rooms", values=[1, 2]), rows),
    "tabular.swap_columns": Case(table.swap_columns, lambda: table.swap_columns("height", "weight"), rows),
    "tabular.unit_error": Case(table.unit_error, lambda: table.unit_error("height", factor=1 / 2.54), rows),
    "tabular.unit_error int": Case(
        table.unit_error, lambda: table.unit_error("rooms", factor=9 / 5, offset=32), rows
    ),
    **of_series(
        (series.channels, {"order": (1, 0)}),
        (series.drift, {}),
        (series.dropout, {"share": 0.4}),
        (series.dropout, {"fill": "zero"}),
        (series.gap, {}),
        (series.gap, {"fill": "hold"}),
        (series.jitter, {"sigma": 0.5}),
        (series.resample, {"every": 3}),
        (series.scaling, {"by": 0.5}),
        (series.shift, {"steps": 3}),
        (series.spike, {"count": 2}),
        (series.stuck, {}),
        (series.warp, {"by": 0.9}),
    ),
    "chat.contents": Case(chat.contents, lambda: chat.contents(text.typos("content")), talks),
    "chat.contents system": Case(
        chat.contents, lambda: chat.contents(text.case("content", to="upper"), role="system"), talks
    ),
    "chat.contents all": Case(
        chat.contents, lambda: chat.contents(text.keyboard("content"), role=None), talks
    ),
    "chat.inject": Case(chat.inject, chat.inject, talks),
    "chat.inject prompt": Case(chat.inject, lambda: chat.inject("prompt", at="start"), talks),
    "chat.language": Case(chat.language, chat.language, talks),
    "chat.layout": Case(chat.layout, chat.layout, talks),
    "chat.persona": Case(chat.persona, chat.persona, talks),
    "chat.politeness": Case(chat.politeness, chat.politeness, talks),
    "chat.reorder_examples": Case(chat.reorder_examples, chat.reorder_examples, talks),
    "chat.reorder_instructions": Case(chat.reorder_instructions, chat.reorder_instructions, talks),
    "chat.reorder prompt": Case(
        chat.reorder_instructions, lambda: chat.reorder_instructions("prompt"), talks
    ),
    "column": Case(perturb.column, lambda: perturb.column("vip", lambda values, rng: ~values), rows),
    "each": Case(perturb.each, lambda: perturb.each("text", _louder), texts),
    "chain": Case(perturb.chain, lambda: perturb.chain(text.case(to="upper"), text.typos()), texts),
    "one_of": Case(
        perturb.one_of, lambda: perturb.one_of(text.case(to="upper"), text.typos(), text.url()), texts
    ),
    "where": Case(
        perturb.where,
        lambda: perturb.where(lambda batch: batch.column("inputs.other") > 4, text.emoji()),
        texts,
    ),
}
