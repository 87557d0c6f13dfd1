"""Adapter folders: what is refused, and why; a model with one adapter by itself."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from outrider.assertions import Batch
from outrider.dataops.model_kinds.adapted import AdaptedRunner
from outrider.dataops.model_kinds.adapter import _of_layer, read_adapter
from outrider.dataops.model_kinds.loading import as_predictor, load_model
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.errors import ConfigError
from tests.requirements import require_package

LORA = {"peft_type": "LORA", "lora_alpha": 4, "r": 2}
MODULE = """
import torch

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
"""


def write(folder: Path, config: dict[str, Any], **tensors: torch.Tensor) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def pair(
    layer: str, *, down: tuple[int, ...] = (2, 3), up: tuple[int, ...] = (4, 2)
) -> dict[str, torch.Tensor]:
    return {
        f"base_model.model.{layer}.lora_A.weight": torch.ones(down),
        f"base_model.model.{layer}.lora_B.weight": torch.ones(up),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "IA3"}, "LORA or PREFIX_TUNING expected, got 'IA3'"),
        ({"use_dora": True}, "use_dora is set; only plain LoRA"),
        ({"init_lora_weights": "pissa_niter_4"}, "has changed the base as well"),
        (
            {"alpha_pattern": {"(.*)*X": 1}},
            r"alpha_pattern: '\(\.\*\)\*X' is a regular expression, which is never",
        ),
        ({"rank_pattern": {"layer.[01]": 2}}, "rank_pattern: .* is a regular expression"),
        ({"alpha_pattern": {"0": "many"}}, "alpha_pattern: '0': a finite number expected, got str"),
        ({"lora_alpha": float("nan")}, "lora_alpha: a finite number expected, got float"),
        ({"lora_alpha": 10**400}, "lora_alpha: a finite number expected, got int"),
        ({"alpha_pattern": ["0"]}, "alpha_pattern: an object of layers expected, got list"),
    ],
)
def test_adapters_that_would_be_answered_wrongly_are_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_adapter(write(tmp_path, LORA | change, **pair("0")))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (pair("0", down=(0, 3), up=(4, 0)), "0: lora_A has rank 0, lora_B 0"),
        (pair("0", up=(8,)), r"0: two matrices of floats expected, got .*\[2, 3\] and torch.float32 \[8\]"),
        ({name: tensor.long() for name, tensor in pair("0").items()}, "two matrices of floats expected"),
        ({}, "tensors of an adapter expected, got none"),
    ],
)
def test_tensors_that_are_no_matrices_are_refused(
    tmp_path: Path, tensors: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_adapter(write(tmp_path, LORA, **tensors))


@pytest.mark.parametrize("sizes", [(-2, -1, -4), ("2", 1, 4), (2, 1.0, 4), (2, True, 4), (2, 1, None)])
def test_sizes_of_a_prefix_that_are_no_counts_are_refused(tmp_path: Path, sizes: tuple[Any, ...]) -> None:
    config = dict(zip(("num_layers", "num_attention_heads", "token_dim"), sizes, strict=True))
    folder = write(tmp_path, {"peft_type": "PREFIX_TUNING"} | config, prompt_embeddings=torch.ones(2, 16))
    with pytest.raises(ConfigError, match="transformer expected, got"):
        read_adapter(folder)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"adapter_config.json does not exist"):
        read_adapter(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(LORA))
    with pytest.raises(ConfigError, match=r"adapter_model.bin is a pickle and is never read"):
        read_adapter(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"\x00")
    with pytest.raises(ConfigError, match="not a safetensors file"):
        read_adapter(tmp_path)
    half = dict(list(pair("0").items())[:1])
    with pytest.raises(ConfigError, match="has one of lora_A and lora_B"):
        read_adapter(write(tmp_path, LORA, **half))


def source_in(folder: Path) -> tuple[Source, bytes]:
    (folder / "module.py").write_text(MODULE)
    scope: dict[str, Any] = {}
    exec(MODULE, scope)
    weights = dump_weights(scope["model"]().state_dict())
    return Source("torch", "module.py:model", inputs=("a", "b", "c"), classes=(0, 1), adapter="lora"), weights


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (pair("7"), "the base has no layer 7"),
        (pair("0", down=(2, 5)), "0 takes 3 to 4, LoRA 5 to 4"),
        (pair("1"), "1 is a ReLU; LoRA is known for"),
        ({"base_model.model.2.scale": torch.ones(2)}, "2.scale is no parameter of the base"),
        ({"base_model.model.0.bias": torch.ones(9)}, r"0.bias of shape \(4,\) expected, got \(9,\)"),
    ],
)
def test_an_adapter_that_does_not_fit_its_base_is_refused_when_it_is_loaded(
    tmp_path: Path, tensors: dict[str, torch.Tensor], message: str
) -> None:
    source, weights = source_in(tmp_path)
    write(tmp_path / "lora", LORA, **tensors)
    with pytest.raises(ConfigError, match=message):
        load_model(source, folder=tmp_path, weights=weights)


def test_a_torch_module_with_its_adapter_is_the_merged_module(tmp_path: Path) -> None:
    source, weights = source_in(tmp_path)
    write(tmp_path / "lora", LORA, **pair("0"), **{"base_model.model.2.bias": torch.tensor([1.0, -1.0])})
    runner = load_model(source, folder=tmp_path, weights=weights)
    assert isinstance(runner, AdaptedRunner)
    merged: Any = load_model(_without(source), folder=tmp_path, weights=weights)
    with torch.no_grad():
        merged.module[0].weight += torch.ones(4, 2) @ torch.ones(2, 3) * (4 / 2)
        merged.module[2].bias.copy_(torch.tensor([1.0, -1.0]))
    batch = Batch.from_columns(
        {f"inputs.{name}": torch.randn(5).double().numpy() for name in "abc"}, model="m"
    )
    one, other = as_predictor(runner)(batch), as_predictor(merged)(batch)
    torch.testing.assert_close(torch.tensor(one["probs"]), torch.tensor(other["probs"]))


def _without(source: Source) -> Source:
    import dataclasses

    return dataclasses.replace(source, adapter=None)


NAMES = st.text("ab_1", min_size=1, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(".".join)


@given(
    named=st.dictionaries(st.one_of(PATHS, PATHS.map("^{}".format)), st.integers(1, 9), max_size=6),
    layer=PATHS,
)
def test_scaling_of_literal_names_is_that_of_peft(named: dict[str, int], layer: str) -> None:
    find = require_package("peft.utils.other", "pip install outrider[hf]").get_pattern_key
    # PEFT reads a dot as any letter; names in which it stands for another one do not come from PEFT.
    escaped = {key.replace(".", r"\."): value for key, value in named.items()}
    assert _of_layer(named, layer, 0) == escaped.get(find(escaped.keys(), layer), 0)


def test_name_of_many_parts_costs_no_more_than_its_length() -> None:
    assert _of_layer({"a.b": 3}, "c" * 200 + ".a.b", 1) == 3
    assert _of_layer({"(.*)*X": 3}, "a" * 200, 1) == 1
