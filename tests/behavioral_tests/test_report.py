"""What is told of a test that failed."""

import numpy as np
import pytest

from outrider.behavioral_tests import MFT
from outrider.behavioral_tests.example_text import example_lines
from outrider.behavioral_tests.html_parts import fields_of
from outrider.behavioral_tests.outcome import Example
from outrider.behavioral_tests.report import failure_lines


def test_a_description_of_several_lines_stays_below_its_test() -> None:
    test = MFT(name="test_old", cases=["hi"], labels=0, description="Two statements.\nThe last one counts.")
    lines = failure_lines(test.run(lambda batch: {"label": np.ones(batch.rows)}))
    assert lines[1:3] == ["  Two statements.", "  The last one counts."]


def test_numbers_are_told_as_numbers_and_not_letter_by_letter() -> None:
    was = {"image": [[0.0] * 5] * 4, "size": [1.0, 2.0]}
    now = {"image": [[0.0, 0.0, 16.0, 0.0, 0.0]] * 4, "size": [1.0, 2.5]}
    assert example_lines(Example("7", 1.0, now, {"label": 1}, was, {"label": 0})) == [
        "[7] image=tensor(4, 5) in [0, 0], mean 0 -> tensor(4, 5) in [0, 16], mean 3.2, 4 of 20 changed",
        "    size=[1, 2] -> [1, 2.5]",
        "    label=0 -> label=1",
    ]


def test_the_page_shows_vectors_with_digits_that_can_be_read() -> None:
    image, probs = fields_of(
        {"image": [[0.0] * 5] * 4, "probs": [0.8962386250495911, 0.1037613749504089]},
        {"image": [[1.0] * 5] * 4, "probs": [0.42595478892326355, 0.57404521107673645]},
    )
    assert (probs.before, probs.after, probs.pieces) == ("[0.8962, 0.1038]", "[0.426, 0.574]", ())
    assert (image.after, len(image.images)) == ("tensor(4, 5) in [1, 1], mean 1", 3)


def test_a_case_without_a_right_answer_is_told_how_to_get_one() -> None:
    test = MFT(name="test_old", cases=["hi"])
    with pytest.raises(KeyError, match="give labels=, or cases with a column or key 'label'"):
        test.run(lambda batch: {"label": np.ones(batch.rows)})
