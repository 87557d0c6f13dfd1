"""What an assertion reads is seen, whichever way it reads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from outrider.assertions import Assertion, Batch, Findings, assertion
from outrider.assertions.batch.columns_read import columns_read, is_of_sender
from outrider.assertions.library import bounds, required, text_pattern, unknown_columns

RECORDS: list[dict[str, Any]] = [
    {
        "id": str(row),
        "entity": "e",
        "inputs": {"area": 50.0 * row, "text": "hello", "boxes": [{"x": 1.0}]},
        "outputs": {"price": 3.0},
        "attrs": {"city": "x"},
    }
    for row in range(4)
]


def reads(judge: Assertion) -> list[str]:
    found: set[str] = set()
    judge.judged(Batch.from_records(RECORDS, model="m").own(reads=found))
    return columns_read(found)


def never(batch: Batch) -> Any:
    return np.zeros(batch.rows)


WAYS: dict[str, tuple[Callable[[Batch], Any], list[str]]] = {
    "column": (lambda batch: batch.column("inputs.area") < 0, ["inputs.area"]),
    "frame": (lambda batch: batch.inputs["area"].to_numpy() < 0, ["inputs.*"]),
    "pandas": (lambda batch: batch.to_pandas()["inputs.area"].to_numpy() < 0, ["*"]),
    "arrow": (lambda batch: batch.to_arrow().num_rows * never(batch), ["*"]),
    "nulls": (lambda batch: batch.is_null("attrs.city"), ["attrs.city"]),
    "before": (lambda batch: batch.previous("outputs.price") < 0, ["outputs.price"]),
    "taken": (lambda batch: batch.take(np.arange(batch.rows)).column("outputs.price") < 0, ["outputs.price"]),
    "changed": (
        lambda batch: batch.with_columns({"attrs.new": never(batch)}).column("outputs.price") < 0,
        ["outputs.price"],
    ),
    "exploded": (
        lambda batch: batch.explode("inputs.boxes").reduce(np.zeros(batch.rows), "max"),
        ["inputs.boxes"],
    ),
    "asked for": (
        lambda batch: never(batch) + (0.0 * batch.has("outputs.price")),
        ["outputs.price"],
    ),
    "nothing": (never, []),
}


@pytest.mark.parametrize("way", WAYS)
def test_reads_are_seen_whichever_way_the_batch_is_read(way: str) -> None:
    judge, expected = WAYS[way]
    assert reads(assertion(name="a")(judge)) == expected


def test_reads_of_one_record_are_seen() -> None:
    assert reads(assertion(name="a", per_record=True)(lambda record: record["inputs.area"] < 0)) == [
        "inputs.area"
    ]


def test_reads_of_answers_are_outputs() -> None:
    batch = Batch.from_records(RECORDS, model="m").with_answers({"2": {"score": np.zeros(4)}})
    found: set[str] = set()
    answers = batch.own(reads=found).take([0, 1]).answers("2")
    assert answers is not None
    answers.column("outputs.score")
    assert columns_read(found) == ["outputs.score"]


@pytest.mark.parametrize(
    ("judge", "expected"),
    [
        (bounds("inputs.area", low=0, high=9), ["inputs.area"]),
        (text_pattern("inputs.text", "x"), ["inputs.text"]),
        (required(["inputs.area", "outputs.price"]), ["inputs.area", "outputs.price"]),
    ],
    ids=lambda value: value.name if isinstance(value, Assertion) else "",
)
def test_reads_of_the_library_are_the_columns_that_it_was_given(
    judge: Assertion, expected: list[str]
) -> None:
    assert reads(judge) == expected


def test_unknown_columns_may_be_of_either_side() -> None:
    assert not is_of_sender(reads(unknown_columns(["inputs.area"])))


def test_a_batch_that_nobody_watches_notes_nothing() -> None:
    batch = Batch.from_records(RECORDS, model="m")
    found: set[str] = set()
    watched = batch.own(reads=found)
    batch.column("outputs.price")
    assert isinstance(Findings.of(batch.column("inputs.area")), Findings)
    assert found == set()
    watched.column("inputs.area")  # cached for both by now, and read all the same
    assert found == {"inputs.area"}
