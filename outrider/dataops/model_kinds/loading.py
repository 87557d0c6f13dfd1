"""Loading of a version from its source, whatever its kind.

Nothing heavy is imported before a kind needs it: a process that loads functions, ONNX files and endpoints
alone never loads torch.
"""

from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from outrider.assertions import Predictor
from outrider.errors import ConfigError

from .source import Source

if TYPE_CHECKING:
    import torch

    from .adapter import Adapter
    from .runner import Runner

Weights = Path | bytes
"""A file of weights, or what is in it."""


def load_model(
    source: Source,
    *,
    folder: Path,
    weights: Weights | None = None,
    device: "str | torch.device" = "cpu",
    base: "Runner | None" = None,
) -> "Runner | Predictor":
    """Load a version: a Runner of tensors, else a Predictor.

    Parameters
    ----------
    folder
        What relative paths of ``source`` are relative to: the folder of the configuration. Kept folders are
        opened before, by `content.opened_source`.
    weights
        Its weights where they lie elsewhere than in ``source.reference``: always for a torch module
        (safetensors), for an ONNX file and a Hugging Face folder where a copy of them is kept.
    device
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; functions and endpoints take no notice of it.
    base
        For a version with an adapter: its base where that is in memory already, which is then not read again.

    Raises
    ------
    ConfigError
        If it cannot be loaded; the message names the file, what was expected and what was found.
    """
    if closed := [role for role, place in source.kept.items() if not Path(place).is_absolute()]:
        raise ConfigError(f"{source.reference}: its kept {closed[0]} is not opened on this disk")
    if source.kind in ("torch", "hf"):
        return _load_module(source, folder, weights, str(device), base)
    if source.adapter or source.recipe:
        raise ConfigError(f"{source.reference}: adapter and recipe are for modules, not for {source.kind}")
    if source.kind == "function":
        from .predictors import load_predictor_function

        artefacts = source.kept.get("artefacts")
        return load_predictor_function(
            source.reference, folder, None if artefacts is None else Path(artefacts)
        )
    if source.kind == "onnx":
        from .onnx_file import load_onnx

        return load_onnx(source, folder, weights, str(device))
    if source.kind == "endpoint":
        from .endpoint import load_endpoint

        return load_endpoint(source)
    raise ConfigError(f"{source.reference}: kind {source.kind!r} cannot be loaded")


def is_runner(model: "Runner | Predictor") -> "TypeGuard[Runner]":
    """True for a Runner, of tensors; other models take batches."""
    return all(hasattr(model, part) for part in ("encode", "run", "decode"))


def as_predictor(model: "Runner | Predictor") -> Predictor:
    """Loaded model as a Predictor, whatever its kind."""
    if not is_runner(model):
        return model  # type: ignore[return-value]  # a TypeGuard says nothing of what is left
    from .runner import RunnerPredictor

    return RunnerPredictor(model)


def _load_module(
    source: Source, folder: Path, weights: Weights | None, device: str, base: "Runner | None"
) -> "Runner":
    """A runner of tensors, with its adapter and its recipe."""
    from .content import check_pins
    from .torch_models import pick_device

    check_pins(source, folder)
    adapter = _read_adapter(source, folder)
    if adapter is not None and base is not None:
        return _adapted(base, adapter)
    runner = (
        _load_torch(source, folder, weights)
        if source.kind == "torch"
        else _load_folder(source, folder, weights, adapter)
    )
    runner.device = pick_device(device)
    runner.module = runner.module.to(runner.device).eval()
    if source.recipe:  # on the device: what a step can do depends on it
        from .recipes import apply_recipe

        runner.module = apply_recipe(runner.module, source.recipe)
    return runner if adapter is None else _adapted(runner, adapter)


def _read_adapter(source: Source, folder: Path) -> "Adapter | None":
    if source.adapter is None:
        return None
    from .adapter import read_adapter

    return read_adapter((folder / source.adapter).resolve())


def _adapted(runner: "Runner", adapter: "Adapter") -> "Runner":
    """A base with its adapter; raises where it does not fit."""
    from .adapted import AdaptedRunner

    adapted = AdaptedRunner(runner, adapter)
    adapted.check()
    return adapted


def _load_folder(
    source: Source, folder: Path, weights: Weights | None, adapter: "Adapter | None"
) -> "Runner":
    from .hf import load_hf

    return load_hf(source, folder, weights, replaced={} if adapter is None else adapter.replaced)


def _load_torch(source: Source, folder: Path, weights: Weights | None) -> "Runner":
    """A declared module with the weights of a safetensors file."""
    from .torch_models import TorchRunner, load_architecture, load_weights

    if weights is None:
        raise ConfigError(f"{source.reference}: weights expected: a torch module needs a safetensors file")
    content, name = weights, "weights"
    if isinstance(weights, Path):
        if not weights.is_file():
            raise ConfigError(f"{weights} does not exist; it should hold the weights of {source.reference}")
        content, name = weights.read_bytes(), str(weights)
    assert isinstance(content, bytes)
    module = load_weights(load_architecture(source.reference, folder)(), content, name=name)
    return TorchRunner(module, inputs=source.inputs, classes=source.classes, task=source.task)
