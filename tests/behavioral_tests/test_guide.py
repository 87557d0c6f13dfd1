"""The guide "Write a suite in ten minutes" does what it says, block by block."""

from pathlib import Path

import pytest

from tests.guides import as_a_terminal, follow, in_process, matches, section, steps

GUIDE = Path(__file__).parents[2] / "docs" / "write-a-suite.md"


@pytest.mark.costly("a guide is followed to its end, in processes")
@pytest.mark.parametrize(("title", "commands"), [("Text", 5), ("Tables", 2), ("Images", 2), ("Chat", 2)])
def test_each_example_goes_from_nothing_to_green_as_printed(
    title: str,
    commands: int,
    pytester: pytest.Pytester,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_a_terminal(monkeypatch)
    assert follow(section(GUIDE, title), pytester.path, in_process(pytester, capsys)) >= commands


@pytest.mark.costly("a guide is followed to its end, in processes")
def test_what_ci_and_the_service_need_follows_on_the_first_example(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_a_terminal(monkeypatch)
    text = section(GUIDE, "Text")
    for step in steps(text):
        if step.kind == "file":
            (pytester.path / step.name).parent.mkdir(parents=True, exist_ok=True)
            (pytester.path / step.name).write_text(step.text, encoding="utf-8")
    runners = in_process(pytester, capsys)
    assert follow(section(GUIDE, "In CI"), pytester.path, runners) >= 1
    assert (pytester.path / "report.xml").exists()
    assert follow(section(GUIDE, "On live traffic"), pytester.path, runners) >= 1


def test_an_ellipsis_stands_for_anything_and_nothing_else_does() -> None:
    assert matches("a … c\n…\nz", "a b c\nd\ne\nz\n")
    assert matches("…\nz", "z")
    assert not matches("a\nz", "a\nb\nz")
    assert not matches("a b", "a c")
