"""From what a user writes after ``--model`` to a Predictor."""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.errors import ConfigError
from outrider.user_code import load_callable

if TYPE_CHECKING:
    from outrider.assertions import Predictor
    from outrider.monitor.config import ModelSettings


def load_predictor(reference: str, *, folder: Path | None = None) -> "Predictor":
    """Predictor that a reference names.

    Parameters
    ----------
    reference
        ``file.py:function``, ``module:function``, the address of a JSON endpoint (see
        :mod:`outrider.behavioral_tests.endpoint`), or a project folder with an ``outrider.toml``
        (``folder#model`` where it has several models).
    folder
        What relative paths are relative to, and where modules are looked for first.

    Raises
    ------
    ConfigError
        If it cannot be found; the message says what was tried.
    """
    folder = (folder or Path()).resolve()
    if reference.startswith(("http://", "https://")):
        from outrider.behavioral_tests.endpoint import endpoint

        return endpoint(reference)
    path, _, model = reference.partition("#")
    if (folder / path).is_dir() or path.endswith(".toml"):
        return _of_project(folder / path, model)
    return _of_function(reference, folder)


def _of_function(reference: str, folder: Path) -> "Predictor":
    source, _, name = reference.rpartition(":")
    if not source or not name:
        raise ConfigError(
            f"{reference!r} is no model: file.py:function, module:function, a project folder or an http "
            "address expected"
        )
    if source.endswith(".py"):
        loaded: Predictor = load_callable(reference, folder)
        return loaded
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(source)
    except ImportError as error:
        raise ConfigError(f"module {source!r} of model {reference!r} cannot be imported: {error}") from error
    predictor: Predictor | None = getattr(module, name, None)
    if not callable(predictor):
        raise ConfigError(f"{source} has no function {name!r}; a predictor maps a Batch to outputs by name")
    return predictor


def _of_project(path: Path, model: str) -> "Predictor":
    from outrider.monitor.config import load_settings

    settings = load_settings(path / "outrider.toml" if path.is_dir() else path)
    names = sorted(settings.models)
    if not model and len(names) != 1:
        raise ConfigError(f"{path} has models {', '.join(names) or '(none)'}; name one: {path}#<model>")
    if model and model not in settings.models:
        raise ConfigError(f"{path} has no model {model!r}; there are {', '.join(names)}")
    chosen = settings.models[model or names[0]]
    if chosen.predictor:
        return _of_function(chosen.predictor, settings.base)
    if chosen.architecture is None or chosen.weights is None:
        raise ConfigError(f"{path}: model {model or names[0]!r} has neither predictor nor architecture")
    return _of_module(chosen, settings.base, settings.worker.device)


def _of_module(chosen: "ModelSettings", base: Path, device: str) -> "Predictor":
    """First version of a torch model: its weights file as it lies in the project."""
    from outrider.dataops.torch_models import TorchPredictor, load_architecture, load_weights, pick_device

    assert chosen.architecture is not None
    assert chosen.weights is not None
    weights = base / chosen.weights
    if not weights.is_file():
        raise ConfigError(f"{weights} does not exist; weights = {chosen.weights!r} names it")
    module = load_architecture(chosen.architecture, base)()
    return TorchPredictor(
        load_weights(module, weights.read_bytes(), name=str(weights)),
        inputs=chosen.inputs,
        classes=chosen.classes,
        task=chosen.task,
        device=pick_device(device),
    )
