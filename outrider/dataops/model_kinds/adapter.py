"""Low-rank matrices, prefixes and trained modules of a PEFT folder."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from outrider.errors import ConfigError

from .folder_check import number_problem, pattern_problem

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "prompt_embeddings"
_ROLES = re.compile(r"(?P<module>.+)\.(?P<role>lora_A|lora_B|lora_embedding_A|lora_embedding_B)(\.weight)?$")
_OTHER_INIT = re.compile(r"pissa|olora|corda|loftq|lora_ga", re.IGNORECASE)
_UNSUPPORTED = (
    "use_dora", "use_qalora", "use_bdlora", "alora_invocation_tokens", "layer_replication", "lora_bias",
    "trainable_token_indices", "target_parameters", "megatron_config", "arrow_config", "kasa_config",
    "monteclora_config",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LowRank:
    """LoRA term of one layer: ``y += x @ down.T @ up.T``. Hu et al., ICLR 2022, eq. 3."""

    down: torch.Tensor
    """``lora_A``: shape (r, in), for a convolution (r, in, …), for an embedding (r, words)."""
    up: torch.Tensor
    """``lora_B`` times the scaling: shape (out, r), for a convolution (out, r, 1, …)."""


@dataclass(frozen=True, slots=True)
class Adapter:
    name: str
    low_rank: Mapping[str, LowRank] = field(default_factory=dict)
    """By dotted name of the layer in the base."""
    replaced: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Tensors that replace the base's: heads (``modules_to_save``) and biases."""
    prefix: torch.Tensor | None = None
    """Keys and values before those of the text in every attention layer, shape (tokens, 2 * layers, key
    heads, width of a head), after Li and Liang, "Prefix-Tuning", ACL 2021; None for LoRA."""

    @property
    def tensors(self) -> list[torch.Tensor]:
        low = [tensor for pair in self.low_rank.values() for tensor in (pair.down, pair.up)]
        return [*low, *self.replaced.values(), *([] if self.prefix is None else [self.prefix])]


def read_adapter(folder: Path) -> Adapter:
    """Read LoRA or a prefix, without PEFT."""
    config, tensors = _config(folder), _tensors(folder)
    kind = config.get("peft_type")
    if kind == "LORA":
        return _lora(folder, config, tensors)
    if kind == "PREFIX_TUNING":
        return _prefix(folder, config, tensors)
    raise ConfigError(f"{folder / CONFIG}: peft_type LORA or PREFIX_TUNING expected, got {kind!r}")


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist; an adapter is a folder that PEFT has saved") from error
    except (ValueError, OSError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: a JSON object expected, got {type(config).__name__}")
    return config


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    path = folder / WEIGHTS
    if not path.is_file():
        raise ConfigError(
            f"{path} does not exist; save the adapter with save_pretrained(…), which writes safetensors "
            "(adapter_model.bin is a pickle and is never read)"
        )
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ConfigError(f"{path}: not a safetensors file: {error}") from error


def _lora(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Adapter:
    _refuse(folder, config)
    if problem := pattern_problem(config):
        raise ConfigError(f"{folder / CONFIG}: {problem}")
    pairs: dict[str, dict[str, torch.Tensor]] = {}
    replaced: dict[str, torch.Tensor] = {}
    for key, tensor in tensors.items():
        name = key.removeprefix("base_model.model.").replace(".base_layer.", ".")
        if found := _ROLES.match(name):
            pairs.setdefault(found["module"], {})[found["role"]] = tensor
        elif "lora_" in name:
            raise ConfigError(f"{folder / WEIGHTS}: {key}: this form of LoRA cannot be run")
        else:
            replaced[name.replace(".modules_to_save.", ".")] = tensor
    if not tensors:
        raise ConfigError(f"{folder / WEIGHTS}: tensors of an adapter expected, got none")
    low = {name: _pair(folder, name, roles, config) for name, roles in pairs.items()}
    return Adapter(folder.name, low_rank=low, replaced=replaced)


def _refuse(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse options under which plain LoRA would answer wrongly."""
    for name in _UNSUPPORTED:
        if config.get(name):
            raise ConfigError(f"{folder / CONFIG}: {name} is set; only plain LoRA can be run")
    init = config.get("init_lora_weights")
    if isinstance(init, str) and _OTHER_INIT.match(init):
        raise ConfigError(
            f"{folder / CONFIG}: init_lora_weights {init!r} has changed the base as well; save it as plain "
            "LoRA with save_pretrained(…, path_initial_model_for_weight_conversion=…)"
        )


def _pair(folder: Path, name: str, roles: Mapping[str, torch.Tensor], config: Mapping[str, Any]) -> LowRank:
    down, up = (roles.get(f"lora_{role}", roles.get(f"lora_embedding_{role}")) for role in "AB")
    if down is None or up is None:
        raise ConfigError(f"{folder / WEIGHTS}: {name} has one of lora_A and lora_B; both expected")
    if min(down.ndim, up.ndim) < 2 or not (down.is_floating_point() and up.is_floating_point()):
        forms = " and ".join(f"{tensor.dtype} {list(tensor.shape)}" for tensor in (down, up))
        raise ConfigError(f"{folder / WEIGHTS}: {name}: two matrices of floats expected, got {forms}")
    rank = down.shape[0]
    if up.shape[1] != rank or not rank:
        raise ConfigError(f"{folder / WEIGHTS}: {name}: lora_A has rank {rank}, lora_B {up.shape[1]}")
    alpha = _of_layer(config.get("alpha_pattern") or {}, name, config.get("lora_alpha", 8))
    if problem := number_problem(alpha):
        raise ConfigError(f"{folder / CONFIG}: lora_alpha: {problem}")
    scaling = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return LowRank(down, (up.float() * scaling).to(up.dtype))


def _of_layer(named: Mapping[str, float], layer: str, default: float) -> float:
    """Value of the first name that ends the layer's at a dot, as PEFT; after ``^`` of the whole name."""
    found, end = {f"^{layer}", layer} & named.keys(), layer
    while end := end.partition(".")[2]:
        if end in named:
            found.add(end)
    return next((value for key, value in named.items() if key in found), default) if found else default


def _prefix(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Adapter:
    flat = tensors.get(PREFIX)
    if flat is None:
        raise ConfigError(f"{folder / WEIGHTS}: {PREFIX} expected, got {', '.join(tensors) or 'nothing'}")
    sizes = [config.get(name) for name in ("num_layers", "num_attention_heads", "token_dim")]
    layers, heads, width = (size if type(size) is int and size > 0 else 0 for size in sizes)
    if not (layers and heads and width) or config.get("num_transformer_submodules", 1) != 1:
        raise ConfigError(
            f"{folder / CONFIG}: num_layers, num_attention_heads and token_dim of a model with one "
            f"transformer expected, got {', '.join(map(repr, sizes))}"
        )
    if flat.ndim != 2 or flat.shape[1] != layers * 2 * width or width % heads:
        raise ConfigError(
            f"{folder / WEIGHTS}: {PREFIX} of shape (tokens, {layers * 2 * width}) expected, "
            f"got {tuple(flat.shape)}"
        )
    replaced = {
        key.removeprefix("base_model.").removeprefix("model.").replace(".modules_to_save.", "."): tensor
        for key, tensor in tensors.items()
        if key != PREFIX
    }
    return Adapter(
        folder.name, replaced=replaced, prefix=flat.view(len(flat), layers * 2, heads, width // heads)
    )
