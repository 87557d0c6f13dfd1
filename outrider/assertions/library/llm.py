"""What goes wrong in answers of language models: ungrounded, refused, of the wrong form, or miscalculated.

The columns are those of the chat template: ``inputs.prompt``, ``inputs.passages`` (texts or lists of texts)
and ``outputs.answer``; each factory takes other names.
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
from .texts import text_column

__all__ = [
    "arithmetic",
    "final_line",
    "groundedness",
    "json_schema",
    "refusal",
    "refusal_probabilities",
    "ungrounded",
]


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
        What the whole last line must match, in the syntax of RE2 (no look-around, no back-references).

    Finds
    -----
    Answers that were cut off, or that never come to the line a program reads, such as ``A: 42``. White space
    at the end does not count; an empty answer is not judged.

    Cost
    ----
    0.2 µs per record: an answer of 300 characters: one regular expression over the column.

    Measured
    --------
    On 2,640 GSM8K solutions that must end in ``A: number``: 9 fire, and all 9 are incorrect (base rate 63 %).

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
        said = text_column(batch, answer)
        fails = pc.invert(pc.match_substring_regex(said, whole))
        wrong: NDArray[np.bool_] = pc.and_(fails, pc.not_equal(pc.utf8_trim_whitespace(said), "")).to_numpy(
            zero_copy_only=False
        )
        return wrong

    return judge
