"""Adapters that PEFT makes and saves, and what PEFT itself answers with them."""

import copy
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.requirements import require_package


def peft() -> Any:
    """The package, or a skip."""
    return require_package("peft", "pip install outrider[hf]")


def save_adapter(base: torch.nn.Module, config: Any, folder: Path, *, seed: int) -> Path:
    """A folder as training leaves it: every part of the adapter is random, and the base is untouched."""
    torch.manual_seed(seed)
    with _quiet():
        made = peft().get_peft_model(copy.deepcopy(base), config)
        with torch.no_grad():
            for parameter in made.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * 0.2)
        made.save_pretrained(folder)
    return folder


def write_lora(base: torch.nn.Module, folder: Path, *, seed: int, rank: int = 4) -> Path:
    """LoRA of all linear layers but the head, which is its own; written as PEFT does, without its import."""
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, layer in base.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "classifier":
            tensors[f"{name}.lora_A.weight"] = torch.randn(rank, layer.in_features, generator=random) * 0.2
            tensors[f"{name}.lora_B.weight"] = torch.randn(layer.out_features, rank, generator=random) * 0.2
    tensors |= _head(base, random)
    config = {"peft_type": "LORA", "task_type": "SEQ_CLS", "r": rank, "lora_alpha": 8}
    return _write(folder, config, {f"base_model.model.{name}": t for name, t in tensors.items()})


def write_prefix(base: torch.nn.Module, folder: Path, *, seed: int, length: int = 3) -> Path:
    """A prefix for a BERT of two layers, and a head; written as PEFT does."""
    random = torch.Generator().manual_seed(seed)
    own: Any = base
    layers, heads, width = 2, own.config.num_attention_heads, own.config.hidden_size
    config = {
        "peft_type": "PREFIX_TUNING", "num_layers": layers, "num_attention_heads": heads, "token_dim": width,
        "num_transformer_submodules": 1, "num_virtual_tokens": length,
    }  # fmt: skip
    tensors = {f"base_model.{name}": tensor for name, tensor in _head(base, random).items()}
    prompt = torch.randn(length, layers * 2 * width, generator=random)
    return _write(folder, config, tensors | {"prompt_embeddings": prompt})


def _head(base: Any, random: torch.Generator) -> dict[str, torch.Tensor]:
    """Another head in the shape of the base's."""
    named = base.classifier.named_parameters()
    return {f"classifier.{name}": torch.randn(p.shape, generator=random) for name, p in named}


def _write(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def answer(base: torch.nn.Module, folder: Path | None, fed: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """What PEFT answers with one adapter alone."""
    module = with_adapter(base, folder)
    with torch.inference_mode():
        out = module(**fed)
    found: torch.Tensor = getattr(out, "logits", out)
    return found


def with_adapter(base: torch.nn.Module, folder: Path | None) -> Any:
    """PEFT's own module for one adapter; a copy of the base without one."""
    module: Any = copy.deepcopy(base)
    if folder is not None:
        with _quiet():
            module = peft().PeftModel.from_pretrained(module, folder)
    return module.eval()


@contextmanager
def _quiet() -> Iterator[None]:
    """PEFT uses what transformers has deprecated, and advises on names of models that have none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
