"""The page of perturbations runs, its examples are what comes out, and it names everything there is."""

import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import perturb

PAGE = (Path(__file__).parents[2] / "docs" / "perturbations.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES = re.findall(r"^\| `\w+` \| .* \| `(\w+\(.*?\))`: (.*) \| (.*) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("block", CODE, ids=range(len(CODE)))
def test_every_block_runs(block: str) -> None:
    exec(compile(block, "docs/perturbations.md", "exec"), {"__name__": "page"})


@pytest.mark.parametrize(("call", "before", "after"), EXAMPLES)
def test_every_example_is_what_seed_0_gives(call: str, before: str, after: str) -> None:
    batch = Batch.from_columns({"inputs.text": [before]}, model="m")
    made = eval(f"perturb.text.{call}", {"perturb": perturb})
    found = made(batch, np.random.default_rng(0)).column("inputs.text")[0]
    assert found == after.replace("\\u200b", "\u200b")


@pytest.mark.parametrize(
    "family", [perturb.text, perturb.image, perturb.tabular, perturb.series, perturb.chat, perturb]
)
def test_the_page_names_everything(family: ModuleType) -> None:
    part = (
        PAGE
        if family is perturb
        else PAGE.split(f"`{family.__name__.removeprefix('outrider.behavioral_tests.')}`")[1]
    )
    part = part.split("\n## ")[0] if family is not perturb else part
    hidden = {"Perturbation", "Perturbed"}
    offered = [name for name in family.__all__ if name not in hidden and f"`{name}`" not in part]
    assert [
        name for name in offered if not isinstance(getattr(family, name), ModuleType) and name != "apply"
    ] == []


def test_every_text_perturbation_has_an_example() -> None:
    assert {call.split("(")[0] for call, _, _ in EXAMPLES} == set(perturb.text.__all__)
