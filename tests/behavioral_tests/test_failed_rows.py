"""Failed cases as rows to learn from."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests import INV, MFT, perturb
from outrider.behavioral_tests.failed_rows import NO_LABEL, failed_rows


def loud(batch: Batch) -> Mapping[str, NDArray[Any]]:
    """Label 1 for texts in capitals."""
    return {"label": np.array([int(text.isupper()) for text in batch.column("inputs.text").tolist()])}


def test_a_test_without_right_answers_takes_none_from_those_behind_it() -> None:
    tests: list[INV | MFT] = [
        INV(name="test_case", cases=["hi"], perturb=perturb.text.case(to="upper")),
        MFT(name="test_loud", cases=["yes", "no"], labels=1),
    ]
    found = failed_rows(tests, [test.run(loud) for test in tests])
    assert found.batch is not None
    assert found.batch.column("label.label").tolist() == [1, 1]
    assert found.test == ["/test_loud"] * 2
    assert found.left_out == {NO_LABEL: 1}
