from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.monitor.evidence import paired_evidence


@pytest.mark.parametrize("labels", [[0.0, 1.0, 1.0], [0, 1, 1], [False, True, True]])
def test_labels_are_compared_by_value_whatever_number_type_a_table_came_with(labels: list[Any]) -> None:
    batch = Batch.from_columns({"inputs.x": np.arange(3.0), "label.label": np.array(labels)}, model="m")

    def says(*answers: int) -> Any:
        return lambda _batch: {"label": np.array(answers)}

    pair = paired_evidence("held", batch, "label", says(0, 1, 1), says(0, 1, 0))
    assert (pair.rows, pair.champion_correct, pair.candidate_correct) == (3, 3, 2)
