"""What every assertion on texts must hold to: a text that is not there is judged by none of them."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from outrider.assertions import Assertion, Batch
from outrider.assertions import library as lib
from outrider.assertions.catalogue import entries
from outrider.assertions.library import llm

CASES: dict[str, Callable[[], Assertion]] = {
    "arithmetic": lambda: lib.arithmetic(inline=True),
    "empty_answer": lib.empty_answer,
    "final_line": lib.final_line,
    "json_schema": lambda: lib.json_schema({"type": "object"}),
    "language": lambda: lib.language("en"),
    "length": lambda: lib.length(shortest=3, longest=40),
    "personal_data": lib.personal_data,
    "refusal": lib.refusal,
    "repetition": lib.repetition,
    "ungrounded": lib.ungrounded,
}
FIRES_ON = {
    "arithmetic": "18 * 2 = 720 dogs",
    "empty_answer": "",
    "final_line": "no line that a program reads",
    "json_schema": "[]",
    "language": "Das Paket ist auf dem Weg zu Ihnen.",
    "length": "",
    "personal_data": "write to ann@shop.example",
    "refusal": "Sorry, but I can't assist with that.",
    "repetition": "I am not sure. " * 5,
    "ungrounded": "I think it is ninety days, and shipping is free!",
}
PASSAGE = "You can return an order within 30 days."
each = pytest.mark.parametrize("name", CASES)


def turns(answers: list[str | None], **more: Any) -> Batch:
    columns: dict[str, Any] = {
        "inputs.prompt": ["Hello?"] * len(answers),
        "inputs.passages": pa.array([[PASSAGE]] * len(answers)),
        "outputs.answer": pa.array(answers, pa.string()),
    }
    return Batch.from_columns(columns | more, model="helpdesk")


def test_every_assertion_on_texts_has_a_case() -> None:
    modules = {one.family: importlib.import_module(f"{lib.__name__}.{one.family}") for one in entries()}
    on_texts = {name for name, module in modules.items() if hasattr(module, "text_column")}
    assert {one.name for one in entries() if one.family in on_texts} == set(CASES)


@each
def test_text_assertion_null_among_texts_fires_on_the_text_alone(name: str) -> None:
    batch = turns([None, FIRES_ON[name], None])
    assert (CASES[name]().severities(batch) > 0).tolist() == [False, True, False]


@each
@pytest.mark.parametrize("kind", [pa.string(), pa.null(), pa.list_(pa.string())])
def test_text_assertion_column_of_nulls_never_fires(name: str, kind: pa.DataType) -> None:
    batch = turns([None] * 3, **{"outputs.answer": pa.nulls(3, kind)})
    assert not CASES[name]().severities(batch).any()


@each
def test_text_assertion_mirrored_request_without_an_answer_never_fires(name: str) -> None:
    batch = Batch.from_columns({"inputs.prompt": ["Hello?", FIRES_ON[name]]}, model="helpdesk")
    assert not CASES[name]().severities(batch).any()


@each
def test_text_assertion_other_columns_null_never_fires_on_a_good_answer(name: str) -> None:
    good = '{"days": "You can return an order within 30 days."}'
    judge = lib.final_line(".*") if name == "final_line" else CASES[name]()
    judge = lib.length(longest=80) if name == "length" else judge
    for nulled in ("inputs.prompt", "inputs.passages"):
        batch = turns([good], **{nulled: pa.nulls(1, pa.string())})
        assert not judge.severities(batch).any()


def test_empty_answer_tells_empty_from_absent_tool_calls_and_failures() -> None:
    rows: list[tuple[dict[str, Any], bool]] = [
        ({"outputs.answer": ""}, True),
        ({"outputs.answer": " \n"}, True),
        ({"outputs.answer": "Yes."}, False),
        ({"outputs.answer": None, "outputs.finish_reason": "stop"}, False),
        ({"outputs.answer": None, "outputs.tool_calls": '[{"id":"c1"}]'}, False),
        ({"outputs.answer": "", "outputs.tool_calls": '[{"id":"c1"}]'}, False),
        ({"outputs.answer": "", "outputs.tool_calls": "[]"}, True),
        ({"outputs.answer": "", "outputs.finish_reason": "tool_calls"}, False),
        ({"outputs.answer": "", "outputs.finish_reason": "stop"}, True),
        ({"outputs.answer": "", "attrs.error": "timeout"}, False),
        ({"outputs.answer": None, "attrs.error": "429"}, False),
    ]
    names = ("outputs.answer", "outputs.tool_calls", "outputs.finish_reason", "attrs.error")
    columns = {name: pa.array([row.get(name) for row, _ in rows], pa.string()) for name in names}
    fired = llm.empty_answer().severities(Batch.from_columns(columns, model="helpdesk")) > 0
    assert fired.tolist() == [wanted for _, wanted in rows]
    alone = Batch.from_columns({"outputs.answer": columns["outputs.answer"]}, model="helpdesk")
    assert np.count_nonzero(llm.empty_answer().severities(alone)) == 7  # every empty text, excused by nothing
