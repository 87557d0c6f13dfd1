"""docs/assertions.md: its blocks run in order, as one notebook would."""

import re
from pathlib import Path

import numpy as np

from outrider.assertions import Assertion, Batch, Checker

GUIDE = Path(__file__).parents[2] / "docs" / "assertions.md"


def test_every_example_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 7
    notebook: dict[str, object] = {"__name__": "notebook"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), notebook)
    windowed = notebook["changed_its_mind"]
    assert isinstance(windowed, Assertion)
    anonymous = Batch.from_columns({"outputs.label": np.array(["x", "y"], dtype=object)}, model="loans")
    assert len(Checker([windowed]).check(anonymous)) == 0
