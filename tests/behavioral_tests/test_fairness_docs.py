"""Every block of docs/fairness.md runs, in order."""

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "fairness.md"


def test_every_block_runs_behind_the_one_before() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    assert names["outcome"].status in ("passed", "failed")


def test_all_metrics_are_in_the_guide() -> None:
    from outrider.behavioral_tests.fairness import METRICS

    text = GUIDE.read_text(encoding="utf-8")
    assert [metric for metric in METRICS if f"`{metric}`" not in text] == []
