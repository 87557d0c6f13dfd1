"""A wrong ``shares`` in outrider.toml is refused, with the tensor that differs."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save, save_file

from outrider.dataops.model_kinds.source import Source
from outrider.errors import ConfigError
from outrider.monitor.registry.declared_shares import refuse_wrong_shares, wrong_shares
from outrider.monitor.settings.config import Settings, load_settings

CONFIG = """
[models.mood]
architecture = "model.py:build"
weights = "one.safetensors"
inputs = ["x"]
classes = [0, 1]
[models.mood.challengers.tuned]
weights = "two.safetensors"
adapted_from = "1"
shares = ["stem"]
[models.tenant]
architecture = "model.py:build"
weights = "three.safetensors"
inputs = ["x"]
classes = [0, 1]
adapted_from = "mood"
shares = ["stem"]
"""
ONE = {"stem.weight": torch.ones(2, 2), "head.weight": torch.ones(2, 2)}
HEAD = {"head.weight": torch.zeros(2, 2)}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    save_file(ONE, tmp_path / "one.safetensors")
    save_file(ONE | HEAD, tmp_path / "two.safetensors")
    save_file(ONE | HEAD, tmp_path / "three.safetensors")
    (tmp_path / "outrider.toml").write_text(CONFIG)
    return load_settings(tmp_path / "outrider.toml")


def test_true_declarations_are_accepted(settings: Settings) -> None:
    assert list(wrong_shares(settings)) == []


def test_a_false_one_is_told_with_the_tensor_for_challengers_and_for_other_models(settings: Settings) -> None:
    for name in ("two", "three"):
        save_file({"stem.weight": torch.full((2, 2), 1.5)} | HEAD, settings.path(f"{name}.safetensors"))
    first, second = wrong_shares(settings)
    assert first.startswith(
        "mood@tuned: shares: 'stem' is refused: its stem.weight is not that of mood@1 (digest "
    )
    assert second.startswith("tenant@1: shares: 'stem' is refused: its stem.weight is not that of mood@1")


def test_stored_weights_count_before_those_of_the_file(settings: Settings) -> None:
    source = Source("torch", "model.py:build", adapted_from="mood@7", shares=("stem",))
    refuse_wrong_shares(settings, "mood", "tuned", source)
    seventh = save({"stem.weight": torch.zeros(2, 2)})
    with pytest.raises(ConfigError, match="not that of mood@7"):
        refuse_wrong_shares(settings, "mood", "tuned", source, {("mood", "7"): seventh}.get)
