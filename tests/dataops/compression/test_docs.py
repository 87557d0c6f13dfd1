"""The guide to compression runs."""

import re
from pathlib import Path

from outrider.dataops.compression.slo import DEFAULTS, LIMITS
from outrider.dataops.compression.variant import PRUNINGS, RECIPES
from outrider.dataops.model_kinds.recipes import STEPS

GUIDE = (Path(__file__).parents[3] / "docs" / "compression.md").read_text(encoding="utf-8")


def test_every_python_block_of_the_guide_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "compression.md", "exec"), {})


def test_every_step_and_every_bound_stands_in_the_guide() -> None:
    steps = {*STEPS, *PRUNINGS, *(step for recipe in RECIPES for step in recipe)}
    assert [name for name in (*steps, *LIMITS) if f"`{name}`" not in GUIDE] == []
    assert [name for name, bound in DEFAULTS.items() if f"`{name}={bound:g}`" not in GUIDE] == []
