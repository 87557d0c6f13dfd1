"""The page about OpenTelemetry: its settings load, its YAML parses, its code is taken in."""

import importlib
import re
from pathlib import Path

import pytest

from outrider.monitor.settings.config import load_settings
from tests.monitor.test_intake import key_of, process

from .exports import records

PAGE = (Path(__file__).parents[3] / "docs" / "platforms" / "opentelemetry.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_its_settings_load(tmp_path: Path) -> None:
    (block,) = blocks("toml")
    config = tmp_path / "outrider.toml"
    config.write_text(block)
    assert load_settings(config).models["support"].intake.otel_service == "helpdesk"


def test_its_collector_configuration_is_whole() -> None:
    (block,) = blocks("yaml")
    collector = importlib.import_module("yaml").safe_load(block)
    for pipeline in collector["service"]["pipelines"].values():
        assert set(pipeline["exporters"]) <= set(collector["exporters"])
        assert set(pipeline["processors"]) <= {*collector["processors"], "batch"}


def test_its_code_sends_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = blocks("python")
    with process(tmp_path, '[models.support.intake]\notel_service = "helpdesk"') as (_, url):
        monkeypatch.setenv("OUTRIDER_URL", url)
        monkeypatch.setenv("OUTRIDER_KEY", key_of(tmp_path))
        exec(compile(block, "opentelemetry.md", "exec"), {"__name__": "guide"})
    (record,) = records(tmp_path / "outrider-data" / "journal.db")
    assert (record["entity"], record["partial"]) == ("c-7", False)
    assert (record["inputs.prompt"], record["outputs.answer"]) == ("When does it ship?", "On Monday.")
