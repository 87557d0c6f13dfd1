from typing import Any

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.dataops.estimates import Weight
from outrider.monitor.evidence import paired_evidence


@pytest.mark.parametrize("labels", [[0.0, 1.0, 1.0], [0, 1, 1], [False, True, True]])
def test_labels_are_compared_by_value_whatever_number_type_a_table_came_with(labels: list[Any]) -> None:
    batch = Batch.from_columns({"inputs.x": np.arange(3.0), "label.label": np.array(labels)}, model="m")

    def says(*answers: int) -> Any:
        return lambda _batch: {"label": np.array(answers)}

    pair = paired_evidence("held", batch, "label", says(0, 1, 1), says(0, 1, 0))
    assert (pair.rows, pair.champion_correct, pair.candidate_correct) == (3, 3, 2)


def test_chosen_rows_are_weighted_to_what_they_were_chosen_from() -> None:
    ids = np.array([f"r{row}" for row in range(40)], dtype=object)
    batch = Batch.from_columns({"id": ids, "label.label": np.zeros(40, dtype=int)}, model="m")
    # 20 hard rows, each of little weight, that the candidate mends; 20 of the audit, right with both.
    weights = {f"r{row}": Weight(0.1 if row < 20 else 1.0, row >= 20) for row in range(40)}

    def says(hard: int) -> Any:
        return lambda _batch: {"label": np.array([hard] * 20 + [0] * 20)}

    pair = paired_evidence("fresh", batch, "label", says(1), says(0), weights=weights)
    assert (pair.champion_correct, pair.candidate_correct) == (20, 40)
    assert pair.champion_share is not None
    assert pair.candidate_share is not None
    assert pair.champion_share.value == pytest.approx(20 / 22)
    assert pair.candidate_share.value == 1.0
    assert paired_evidence("held", batch, "label", says(1), says(0)).champion_share is None
