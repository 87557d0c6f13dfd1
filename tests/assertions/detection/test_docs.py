"""docs/alarms.md: its example runs."""

import re
from pathlib import Path
from typing import Any

from outrider.assertions.detection import Onset

PAGE = Path(__file__).parents[3] / "docs" / "alarms.md"


def test_the_example_finds_the_stream_that_rose() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    notebook: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), notebook)
    assert notebook["found"].tolist() == [3]
    onset = notebook["onset"]
    assert isinstance(onset, Onset)
    assert onset.first <= 100 <= onset.last
    assert not notebook["quiet"].any()
