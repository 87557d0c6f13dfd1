"""Every block of docs/profiles.md runs."""

import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[3] / "docs" / "profiles.md"


def test_every_block_of_the_guide_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 1
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(blocks[0], str(GUIDE), "exec"), names)
