"""Torch modules as predictors: loaded safely, fed batches, answers read."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from outrider.assertions import Batch
from outrider.errors import ConfigError
from outrider.user_code import load_callable

from .class_outputs import classes_array, stacked
from .runner import EncodedRows, Tensors

State = Mapping[str, torch.Tensor]
FEW_CLASSES = 64


def load_architecture(reference: str, folder: Path) -> Callable[[], torch.nn.Module]:
    """Each call of the result returns a new, untrained module."""
    build = load_callable(reference, folder)

    def architecture() -> torch.nn.Module:
        try:
            module = build()
        except Exception as error:
            raise ConfigError(f"{reference!r}() raised {type(error).__name__}: {error}") from error
        if not isinstance(module, torch.nn.Module):
            raise ConfigError(f"{reference!r}() must return a torch.nn.Module, got {type(module).__name__}")
        return module

    return architecture


def load_weights(module: torch.nn.Module, weights: bytes, *, name: str = "weights") -> torch.nn.Module:
    """In evaluation mode; ``ConfigError`` if weights do not fit."""
    try:
        state = load_tensors(weights)
    except SafetensorError as error:
        raise ConfigError(f"{name}: not a safetensors file: {error}") from error
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ConfigError(f"{name} do not fit {type(module).__name__}: {error}") from error
    return module.eval()


def dump_weights(state: State) -> bytes:
    """Equal states give equal bytes."""
    data: bytes = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()})
    return data


def pick_device(setting: str) -> torch.device:
    """For ``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    if setting == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(setting)


def encode(batch: Batch, inputs: Sequence[str]) -> torch.Tensor:
    """One tensor column unchanged (rows, …), numeric ones stacked (rows, columns)."""
    return torch.from_numpy(stacked(batch, inputs))


class TorchRunner:
    """A classifier answers ``label``, ``score``, ``margin`` and ``probs``, others ``value``."""

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        inputs: Sequence[str],
        classes: Sequence[int | str] = (),
        task: str = "classification",
        device: str | torch.device = "cpu",
    ) -> None:
        self.device = torch.device(device)
        self.module = module.to(self.device).eval()
        self.inputs = tuple(inputs)
        self.classes = classes_array(classes)
        self.task = task

    @property
    def encoding(self) -> str:
        """Runners with equal values encode the same."""
        return f"torch {self.inputs}"

    def encode(self, batch: Batch, /) -> EncodedRows:
        return EncodedRows({"x": encode(batch, self.inputs)})

    def run(self, tensors: Tensors, /) -> Tensors:
        return {"out": self.module(tensors["x"])}

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        out = answers["out"].float()
        if self.task != "classification":
            return {"value": out.squeeze(-1).numpy()}
        return read_logits(out, self.classes)


def read_logits(out: torch.Tensor, classes: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """``label``, ``score``, ``margin`` and ``probs`` of CPU logits (rows, classes)."""
    if out.ndim != 2 or out.shape[1] != len(classes):
        raise ConfigError(
            f"the module must return (rows, {len(classes)}) logits, one per class, got {tuple(out.shape)}"
        )
    # Few numbers beside each other are read slowly, many rows beside each other fast.
    is_narrow = len(classes) <= FEW_CLASSES
    by_class = out.T.contiguous().softmax(dim=0) if is_narrow else out.softmax(dim=1).T  # (classes, rows)
    first = by_class.max(dim=0)
    second = by_class.scatter(0, first.indices[None], 0.0).amax(dim=0)
    return {
        "label": classes[first.indices.numpy()],
        "score": first.values.numpy(),
        "margin": (first.values - second).numpy(),
        "probs": by_class.T.contiguous().numpy(),
    }
