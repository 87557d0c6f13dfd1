"""Faults of language models' answers: ungrounded, refused, malformed, or miscalculated.

The columns are those of the chat template: ``inputs.prompt``, ``inputs.passages`` (texts or lists of texts)
and ``outputs.answer``; each factory accepts other names.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outrider.assertions.assertion import Assertion, Level, assertion
from outrider.assertions.batch import Batch

from .calculations import arithmetic
from .groundedness import groundedness, ungrounded
from .json_answers import json_schema
from .refusals import refusal, refusal_probabilities
from .texts import has_text, text_column

__all__ = [
    "arithmetic",
    "empty_answer",
    "final_line",
    "groundedness",
    "json_schema",
    "refusal",
    "refusal_probabilities",
    "ungrounded",
]


CALLS_TOOLS = ("tool_calls", "tool_call", "function_call", "tool_use")
"""Finish reasons that mean a tool call."""


def empty_answer(
    *,
    answer: str = "outputs.answer",
    tool_calls: str = "outputs.tool_calls",
    finish_reason: str = "outputs.finish_reason",
    error: str = "attrs.error",
    name: str = "empty_answer",
    level: Level = "critical",
) -> Assertion:
    """Answers without text although the model should have answered.

    Finds
    -----
    Answers that are empty or white space. A null or absent answer is not judged (a request whose answer was
    never captured, a trace without contents; ``required`` finds these), and neither is a turn that calls a
    tool (``tool_calls``, or a ``finish_reason`` that says so), nor a call that failed (``error``).

    Cost
    ----
    0.05 µs per record, in blocks of 10,000.

    Measured
    --------
    An exact check: it fires if and only if the answer is present, has nothing but white space, and there is
    no tool call or error instead.

    Examples
    --------
    >>> turns = {"outputs.answer": ["Yes.", " ", "", None], "outputs.tool_calls": [None, None, "[{}]", None]}
    >>> empty_answer().severities(Batch.from_columns(turns, model="helpdesk")).tolist()
    [0.0, 1.0, 0.0, 0.0]
    """

    @assertion(name=name, level=level, description=f"{answer} is empty.")
    def judge(batch: Batch) -> NDArray[np.bool_]:
        blank = pc.equal(pc.utf8_trim_whitespace(text_column(batch, answer)), "")
        reason = text_column(batch, finish_reason) if batch.has(finish_reason) else None
        excused = _has_content(batch, error) | _has_content(batch, tool_calls)
        if reason is not None:
            excused |= pc.is_in(reason, pa.array(CALLS_TOOLS)).to_numpy(zero_copy_only=False)
        empty: NDArray[np.bool_] = blank.to_numpy(zero_copy_only=False) & has_text(batch, answer) & ~excused
        return empty

    return judge


def _has_content(batch: Batch, name: str) -> NDArray[np.bool_]:
    """Mask of records with content in a column, shape (rows,); empty text and an empty JSON list are none."""
    has_content = has_text(batch, name)
    if has_content.any() and pa.types.is_string(batch.arrow(name).type):
        nothing = pc.is_in(pc.utf8_trim_whitespace(text_column(batch, name)), pa.array(["", "[]", "null"]))
        has_content &= ~nothing.to_numpy(zero_copy_only=False)
    return has_content


def final_line(
    pattern: str = r"A: [-$]?[\d,]*\.?\d+.*",
    *,
    answer: str = "outputs.answer",
    name: str = "final_line",
    level: Level = "warning",
) -> Assertion:
    r"""Answers whose last line is not of the required form.

    Parameters
    ----------
    pattern
        Regular expression that the whole last line must match, in RE2 syntax (no look-around, no
        back-references).

    Finds
    -----
    Answers that were cut off, or that lack the line a program reads, such as ``A: 42``. White space at the
    end does not count; an empty answer is not judged.

    Cost
    ----
    0.2 µs per record: an answer of 300 characters: one regular expression over the column.

    Measured
    --------
    On 2,640 GSM8K solutions that must end in `A: number`: 1.00 (0.70 to 1.00) of 9 flagged ones are
    incorrect (`python -m benchmarks.assertions.llm`).

    Examples
    --------
    >>> answers = ["4 * 3 = 12 cups\nA: 12", "4 * 3 = 12 cups\nA: twelve", "4 * 3 ="]
    >>> batch = Batch.from_columns({"outputs.answer": answers}, model="tutor")
    >>> final_line(r"A: -?[\d.,]+").severities(batch).tolist()
    [0.0, 1.0, 1.0]
    """
    whole = rf"(?:^|\n)[ \t]*(?:{pattern})\s*$"
    try:
        pc.match_substring_regex(pa.array([""]), whole)
    except pa.ArrowInvalid as error:
        raise ValueError(f"pattern must be a regular expression of RE2, got {pattern!r}: {error}") from None

    @assertion(name=name, level=level, description=f"The last line of {answer} is not {pattern}")
    def judge(batch: Batch) -> NDArray[np.bool_]:
        answers = text_column(batch, answer)
        fails = pc.invert(pc.match_substring_regex(answers, whole))
        wrong: NDArray[np.bool_] = pc.and_(
            fails, pc.not_equal(pc.utf8_trim_whitespace(answers), "")
        ).to_numpy(zero_copy_only=False)
        return wrong

    return judge
