"""What is told of a test that failed."""

from outrider.behavioral_tests import MFT
from outrider.behavioral_tests.report import failure_lines


def test_a_description_of_several_lines_stays_below_its_test() -> None:
    test = MFT(name="test_old", cases=["hi"], labels=0, description="Two statements.\nThe last one counts.")
    lines = failure_lines(test.run(lambda batch: {"label": [1] * batch.rows}))
    assert lines[1:3] == ["  Two statements.", "  The last one counts."]
