"""Every block of the guide to suite files runs, in order, in one folder."""

import re
from pathlib import Path
from typing import Any

import pytest

from outrider.behavioral_tests import load_suite
from outrider.behavioral_tests.suite_file import WrittenCase, WrittenTest
from tests.commands.test_test_command import call

GUIDE = Path(__file__).parents[2] / "docs" / "suites.md"
TEXT = GUIDE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)


def test_the_guide_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "behavior").mkdir()
    names: dict[str, Any] = {"__name__": "guide"}
    commands = 0
    for language, block in BLOCKS:
        if language == "json":
            (tmp_path / "behavior" / "mood.suite.json").write_text(block, encoding="utf-8")
            assert len(load_suite("behavior/mood.suite.json").tests) == 3
        elif language == "python":
            exec(compile(block, str(GUIDE), "exec"), names)
            if "test_praise" in block:
                (tmp_path / "behavior" / "test_praise.py").write_text(block, encoding="utf-8")
        else:
            line, _, printed = block.partition("\n")
            code, text = call(*line.removeprefix("$ outrider ").split())
            assert code == 0
            assert text.split() == printed.split()
            commands += 1
    assert commands == 3


@pytest.mark.parametrize("kind", [WrittenTest, WrittenCase])
def test_every_field_is_in_the_guide(kind: type[Any]) -> None:
    assert [name for name in kind.__struct_fields__ if f"`{name}`" not in TEXT] == []
