"""docs/selection.md: its blocks run in order, as one notebook would."""

import re
from pathlib import Path

from outrider.assertions.selection import POLICIES

GUIDE = Path(__file__).parents[3] / "docs" / "selection.md"


def test_every_example_runs_and_every_policy_is_explained() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    notebook: dict[str, object] = {"__name__": "notebook"}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, str(GUIDE), "exec"), notebook)
    assert "precision" in notebook
    assert [policy for policy in POLICIES if f"| `{policy}`" not in text] == []
