"""The configuration that the guide of adapters shows is one."""

import re
from pathlib import Path

from outrider.monitor.settings.config import load_settings
from outrider.monitor.settings.sources import challenger_source, source_of

GUIDE = Path(__file__).parents[2] / "docs" / "adapters.md"


def test_challengers_and_tenants_of_the_guide_are_adapters_of_one_base(tmp_path: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "outrider.toml").write_text(example)
    settings = load_settings(tmp_path / "outrider.toml")
    tone = challenger_source(settings, "reviews", "tone")
    tenant = source_of(settings, "reviews_of_a_tenant")
    assert tenant is not None
    for source, adapter in ((tone, "adapters/tone"), (tenant, "adapters/tenant")):
        assert (source.kind, source.reference, source.adapter) == ("hf", "base", adapter)
        assert source.adapted_from == "reviews@1"
    assert len(tenant.classes) == 3
