"""Flag of records that lack declared inputs but are taken."""

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Assertion, Batch, assertion
from outrider.assertions.library import required

NAME = "missing_inputs"


def missing_inputs(inputs: tuple[str, ...]) -> Assertion:
    """Records without declared inputs; severity is the missing share.

    Examples
    --------
    >>> records = [{"inputs": {"age": 41}}, {"inputs": {"years": 41}}, {"outputs": {"label": 1}}]
    >>> missing_inputs(("inputs.age",)).severities(Batch.from_records(records, model="m")).tolist()
    [0.0, 1.0, 0.0]
    """
    lacking = required(inputs, name=NAME)

    @assertion(name=NAME, level="critical", description=f"Declared inputs are missing: {', '.join(inputs)}.")
    def judge(batch: Batch) -> NDArray[np.float64]:
        asked = np.zeros(batch.rows, dtype=np.bool_)
        for name in batch.names:
            if name.startswith("inputs."):
                asked |= ~batch.is_null(name)
        return np.where(asked, lacking.severities(batch), 0.0)

    return judge
