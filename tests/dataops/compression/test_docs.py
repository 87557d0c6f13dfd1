"""The guide to compression runs."""

import re
from pathlib import Path

from outrider.dataops.compression.ladder import LADDER
from outrider.dataops.compression.slo import DEFAULTS, LIMITS
from outrider.dataops.model_kinds.recipes import STEPS

GUIDE = (Path(__file__).parents[3] / "docs" / "compression.md").read_text(encoding="utf-8")


def test_every_python_block_of_the_guide_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "compression.md", "exec"), {})


def test_guide_names_every_rung_step_and_bound() -> None:
    assert [rung.name for rung in LADDER if f"| {rung.name} |" not in GUIDE] == []
    assert [name for name in (*STEPS, *LIMITS) if f"`{name}`" not in GUIDE] == []
    assert [name for name, bound in DEFAULTS.items() if f"`{name}={bound:g}`" not in GUIDE] == []
