"""Files of users are read as they are now."""

import importlib.machinery
import os
import sys
from pathlib import Path

import pytest

from outrider.user_code import load_file


def test_an_edit_of_the_same_length_within_a_second_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "checks.py"
    for text in ("labels = [0, 1]", "labels = [1, 0]"):
        file.write_text(text)
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert f"labels = {load_file(file).labels}" == text
    assert not list(tmp_path.rglob("*" + importlib.machinery.BYTECODE_SUFFIXES[0])), "nothing beside the file"
