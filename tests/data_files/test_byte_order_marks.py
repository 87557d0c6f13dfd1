"""Files that editors and spreadsheets write with a byte order mark in front."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.dataops.datasets.suite_files import read_suite
from outrider.errors import ConfigError
from outrider.monitor.client import _settings
from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.gate_policy import read_policy

PUBLIC = Path(__file__).with_name("public_cases")
SUITE = {"expectations": [{"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "age"}}]}


def test_configuration_with_a_mark_is_read_by_service_and_client(tmp_path: Path) -> None:
    path = tmp_path / "outrider.toml"
    path.write_bytes((PUBLIC / "bom.toml").read_bytes())
    assert load_settings(path).server.port == 8940
    assert _settings(str(path))["server"]["port"] == 8940


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("suite.json", json.dumps(SUITE), lambda path: read_suite(path.name, path.parent)),
        ("gate.toml", "version = 1\n", lambda path: read_policy(path, path.name)),
    ],
)
def test_file_with_a_mark_is_read_as_without(
    tmp_path: Path, name: str, text: str, read: Callable[[Path], object]
) -> None:
    found = []
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / name).write_text(text, encoding=encoding)
        try:
            found.append(repr(read(tmp_path / name)))
        except (ValueError, tomllib.TOMLDecodeError) as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_suite_with_a_parameter_is_refused_when_it_is_read() -> None:
    with pytest.raises(ConfigError, match=r"kwargs\.max_value: a value expected, got the parameter 'upper'"):
        read_suite("gx_parameter.json", PUBLIC)
