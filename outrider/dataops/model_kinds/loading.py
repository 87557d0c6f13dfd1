"""Loading of a version from its source, whatever its kind.

Heavy libraries are imported by kind: functions, ONNX files and endpoints never load torch.
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


def load_model(
    source: Source,
    *,
    folder: Path,
    weights: Weights | None = None,
    device: "str | torch.device" = "cpu",
    base: "Runner | None" = None,
) -> "Runner | Predictor":
    """Runner of tensors, else a Predictor; ``base`` is not read again.

    Kept folders are opened before, by `content.opened_source`.
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
    return all(hasattr(model, part) for part in ("encode", "run", "decode"))


def as_predictor(model: "Runner | Predictor") -> Predictor:
    if not is_runner(model):
        return model  # type: ignore[return-value]  # a TypeGuard says nothing of what is left
    from .runner import RunnerPredictor

    return RunnerPredictor(model)


def _load_module(
    source: Source, folder: Path, weights: Weights | None, device: str, base: "Runner | None"
) -> "Runner":
    from .content import check_pins
    from .torch_models import pick_device

    check_pins(source, folder)
    adapter = _read_adapter(source, folder)
    if adapter is not None and base is not None:
        return _adapted(base, adapter)
    if source.kind == "torch":
        runner = _load_torch(source, folder, weights)
    else:
        from .hf import load_hf

        runner = load_hf(source, folder, weights, replaced={} if adapter is None else adapter.replaced)
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
    """``ConfigError`` if the adapter does not fit."""
    from .adapted import AdaptedRunner

    adapted = AdaptedRunner(runner, adapter)
    adapted.check()
    return adapted


def _load_torch(source: Source, folder: Path, weights: Weights | None) -> "Runner":
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
