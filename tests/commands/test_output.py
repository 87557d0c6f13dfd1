"""Texts of records and people on a terminal."""

import pytest

from outrider.commands.output import printable, table


def test_no_reason_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table([{"reason": "one\x1b[2J\ntwo [b]bold[/b]"}], {"reason": "reason"}, empty="none")
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown
    assert "one\N{REPLACEMENT CHARACTER}[2J" in shown
    assert "two [b]bold[/b]" in shown
    assert printable("a\nb\r") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"


def test_a_narrow_terminal_cuts_no_name_of_a_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "job_0a2a042d86504bf28a00ff0a4addb1b0"
    row = {"id": name, "model": "sentiment", "created": "2026-11-26T19:15:00+00:00", "error": "word" * 20}
    monkeypatch.setenv("COLUMNS", "80")
    table([row], {key: key for key in row}, empty="none")
    lines = capsys.readouterr().out.splitlines()
    assert any(name in line for line in lines)
    assert max(map(len, lines)) <= 80
