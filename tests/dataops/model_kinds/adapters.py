"""Adapters that PEFT makes and saves, and what PEFT itself answers with them."""

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

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
