"""Every block of docs/drift.md runs, in order."""

import re
from pathlib import Path
from typing import Any

from outrider.assertions.drift import statistics

GUIDE = Path(__file__).parents[3] / "docs" / "drift.md"


def test_every_block_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    assert names["found"].is_drift


def test_all_statistics_are_in_the_guide() -> None:
    names = re.findall(r'"(\w+)":', Path(statistics.__file__).read_text(encoding="utf-8"))
    text = GUIDE.read_text(encoding="utf-8")
    assert len(names) == 9
    assert [name for name in names if f"`{name}`" not in text and name != "degrees_of_freedom"] == []
