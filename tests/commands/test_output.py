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
