"""What the pages on payloads and files show is what there is."""

import re
import tomllib
from pathlib import Path

import pytest

from outrider.cli import _load
from outrider.data_files.opening import ENDINGS
from outrider.dataops.payloads.images import FORMATS
from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.payloads import open_payloads, payload_rules

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["large-payloads.md", "platforms/sagemaker.md"])
def test_the_configuration_of_a_page_is_one(page: str, tmp_path: Path) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "outrider.toml").write_text(block)
    settings = load_settings(tmp_path / "outrider.toml")
    (model,) = tomllib.loads(block)["models"]
    rules = payload_rules(settings, model)
    assert open_payloads(settings, model).may_refer is bool(rules.roots)
    if page == "large-payloads.md":
        assert [root.holds(uri) for root, uri in zip(rules.roots, _uris(tmp_path), strict=True)] == [
            True,
            True,
        ]


def _uris(folder: Path) -> list[str]:
    return [(folder / "images" / "a.png").as_uri(), "s3://shop/photos/a.png"]


def test_every_option_of_files_and_every_ending_is_told() -> None:
    text = (DOCS / "replay-files.md").read_text(encoding="utf-8")
    options = [
        name
        for parameter in _load("replay").params
        if getattr(parameter, "rich_help_panel", None)
        for name in parameter.opts
    ]
    assert len(options) > 12
    assert [name for name in options if f"`{name}" not in text] == []
    assert [ending for ending in ENDINGS if ending not in text and not ending.endswith(".gz")] == []
    page = (DOCS / "large-payloads.md").read_text(encoding="utf-8").upper()
    assert [name for name in FORMATS if name not in page] == []
