"""LoRA of PEFT over a loaded module, continued or new."""

import importlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from outrider.dataops.model_kinds.adapter import CONFIG, WEIGHTS, read_adapter
from outrider.errors import ConfigError
from outrider.parts import install_command

ADAPTER = "default"
_EXPRESSIONS = ("target_modules", "exclude_modules")
"""Fields whose texts PEFT reads as regular expressions."""


@dataclass(frozen=True, slots=True)
class NewAdapter:
    """Shape of a new adapter, settings ``[models.*.retrain.lora]``."""

    rank: int = 8
    alpha: float | None = None
    """Scaling times rank; twice the rank by default."""
    dropout: float = 0.0
    layers: tuple[str, ...] = ()
    """Ends of the names of adapted layers; all linear ones but the head by default."""
    head: tuple[str, ...] | None = None
    """Modules that are trained whole; the head of a classifier by default."""


class AdapterModule:
    """Given module, changed in place: only its adapter trains, in float32."""

    def __init__(self, module: torch.nn.Module, config: Any) -> None:
        self._config = config
        with quiet():
            self._peft = peft().get_peft_model(module, config)
        self.module: torch.nn.Module = self._peft.base_model.model
        for parameter in self._trained():
            parameter.data = parameter.data.float()

    @classmethod
    def new(cls, module: torch.nn.Module, shape: NewAdapter, *, seed: int) -> "AdapterModule":
        """Depends on the seed alone and changes no answer yet."""
        heads = heads_of(module) if shape.head is None else shape.head
        targets = _targets(module, shape.layers, heads)
        convolved = any(type(layer).__name__ == "Conv1D" for _, layer in module.named_modules())
        config = peft().LoraConfig(
            r=shape.rank,
            lora_alpha=2 * shape.rank if shape.alpha is None else shape.alpha,
            lora_dropout=shape.dropout,
            target_modules=targets,
            modules_to_save=list(heads) or None,
            fan_in_fan_out=convolved,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(module, config)

    @classmethod
    def continued(cls, module: torch.nn.Module, folder: Path) -> "AdapterModule":
        """Adapter of a PEFT folder; answers do not change."""
        adapter = read_adapter(folder)
        if adapter.prefix is not None:
            raise ConfigError(
                f"{folder / CONFIG}: a prefix is not trained here, LORA expected: name method = 'lora' for a "
                "model without it, or train the prefix elsewhere"
            )
        given = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if any(isinstance(given.get(name), str) for name in _EXPRESSIONS) or given.get("layers_pattern"):
            given |= dict.fromkeys((*_EXPRESSIONS, "layers_pattern", "layers_to_transform"))
            given["target_modules"] = sorted(adapter.low_rank)
        try:
            config = peft().LoraConfig.from_peft_type(**given)
            config.inference_mode = False
            made = cls(module, config)
            with quiet():
                loaded = peft().set_peft_model_state_dict(made._peft, load_file(folder / WEIGHTS))
        except (ValueError, RuntimeError, KeyError, TypeError) as error:
            raise ConfigError(f"{folder} does not fit its base: {error}") from error
        if loaded.unexpected_keys:
            raise ConfigError(f"{folder / WEIGHTS}: the base has no layer for {loaded.unexpected_keys[0]}")
        return made

    def start(self) -> dict[str, torch.Tensor]:
        named = self.module.named_parameters()
        return {name: p.detach().clone() for name, p in named if p.requires_grad}

    def write(self, folder: Path, *, base: str) -> dict[str, Path]:
        """Write as PEFT does; equal weights give equal bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        with quiet():
            state: Mapping[str, torch.Tensor] = peft().get_peft_model_state_dict(
                self._peft, save_embedding_layers=False
            )
        tensors = {name: state[name].detach().cpu().contiguous().clone() for name in sorted(state)}
        config = {name: _plain(value) for name, value in self._config.to_dict().items()}
        config |= {"base_model_name_or_path": base, "inference_mode": True}
        text = json.dumps(config, indent=2, sort_keys=True)
        (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        return {name: folder / name for name in (CONFIG, WEIGHTS)}

    def _trained(self) -> Iterator[torch.nn.Parameter]:
        return (parameter for parameter in self.module.parameters() if parameter.requires_grad)


def heads_of(module: torch.nn.Module) -> tuple[str, ...]:
    """Modules of a Hugging Face model outside its trunk. None of language models."""
    prefix = getattr(module, "base_model_prefix", "")
    if not prefix or not hasattr(module, prefix) or words_of(module) is not None:
        return ()
    others = ((name, child) for name, child in module.named_children() if name != prefix)
    return tuple(name for name, child in others if any(True for _ in child.parameters()))


def words_of(module: torch.nn.Module) -> torch.nn.Module | None:
    find = getattr(module, "get_output_embeddings", None)
    found: torch.nn.Module | None = None if find is None else find()
    return found


def peft() -> Any:
    try:
        with quiet():
            return importlib.import_module("peft")
    except ImportError as error:
        raise ConfigError(f"LoRA is trained by PEFT: {install_command(['hf'])} ({error})") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings: PEFT calls deprecated parts of transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _targets(module: torch.nn.Module, layers: Sequence[str], heads: Sequence[str]) -> list[str]:
    kinds = dict(module.named_modules())
    words = words_of(module)
    linear = [
        name
        for name, layer in kinds.items()
        if (isinstance(layer, torch.nn.Linear) or type(layer).__name__ == "Conv1D")
        and layer is not words
        and not any(name == head or name.startswith(f"{head}.") for head in heads)
        and not isinstance(kinds[name.rpartition(".")[0]], torch.nn.MultiheadAttention)
    ]
    found = [name for name in linear if not layers or any(_ends(name, end) for end in layers)]
    for end in layers:
        if not any(_ends(name, end) for name in linear):
            last = sorted({name.rpartition(".")[2] for name in linear})
            raise ConfigError(
                f"retrain.lora.layers: {end!r} is the end of no linear layer's name; there are "
                f"{', '.join(last[:8])}"
            )
    if not found:
        raise ConfigError(
            f"retrain.method: {type(module).__name__} has no linear layer to adapt: 'full' expected"
        )
    return found


def _ends(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")


def _plain(value: Any) -> Any:
    """JSON value of a PEFT setting, sets sorted."""
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return getattr(value, "value", value)
