"""Predictor from a reference after ``--model``."""

import hashlib
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ConfigError
from .user_code import load_callable

if TYPE_CHECKING:
    from .assertions import Predictor
    from .dataops.models.registry import Model
    from .monitor.settings.config import Settings


def load_predictor(reference: str, *, folder: Path | None = None) -> "Predictor":
    """Predictor that a reference names.

    Parameters
    ----------
    reference
        ``file.py:function``, ``module:function``, the address of a JSON endpoint (see
        :mod:`outrider.behavioral_tests.asking.records`), or a project folder with an ``outrider.toml``
        (``folder#model`` where it has several models). ``folder#model@version`` is a version in the project's
        data folder (``champion`` is one too), or a challenger that is not registered yet; without a version
        the model is as the configuration names it.
    folder
        What relative paths are relative to, and where modules are looked for first.

    Raises
    ------
    ConfigError
        If it cannot be found; the message says what was tried.
    """
    folder = (folder or Path()).resolve()
    if reference.startswith(("http://", "https://")):
        from outrider.behavioral_tests.asking.records import endpoint

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


def _of_project(path: Path, reference: str) -> "Predictor":
    from .monitor.settings.config import load_settings

    model, _, version = reference.partition("@")
    settings = load_settings(path / "outrider.toml" if path.is_dir() else path)
    names = sorted(settings.models)
    if not model and len(names) != 1:
        raise ConfigError(f"{path} has models {', '.join(names) or '(none)'}; name one: {path}#<model>")
    if model and model not in settings.models:
        raise ConfigError(f"{path} has no model {model!r}; there are {', '.join(names)}")
    name = model or names[0]
    if version:
        return _of_version(settings, name, version)
    return section_predictor(settings, name)


def section_predictor(settings: "Settings", name: str, version: str | None = None) -> "Predictor":
    """First version or challenger of a model, from the configuration."""
    from .monitor.registry.predictors import load_predictor as load_source
    from .monitor.settings.sources import challenger_source, source_of

    own = settings.models[name]
    source = source_of(settings, name) if version is None else challenger_source(settings, name, version)
    if source is None:
        raise ConfigError(
            f"model {name!r} has none of architecture, folder, onnx, predictor and endpoint: "
            "there is nothing to ask"
        )
    given = own.weights if version is None else own.challengers[version].weights
    if given is None and source.adapted_from == f"{name}@{own.version}":
        given = own.weights  # a challenger without weights of its own has those of the first version
    weights = settings.path(given) if given else None
    if weights is not None and not weights.is_file():
        raise ConfigError(f"{weights} does not exist; weights = {given!r} names it")
    return load_source(settings, source, weights)


def _of_version(settings: "Settings", name: str, version: str) -> "Predictor":
    """A version that the service keeps: weights from the object store, or the function it was."""
    from .dataops.models import registry as models
    from .dataops.state.database import open_database
    from .monitor.registry.predictors import version_predictors
    from .monitor.settings.sources import loadable_source

    is_named = version in settings.models[name].challengers
    if not (settings.data_folder / "state.db").is_file():
        if is_named:
            return section_predictor(settings, name, version)
        raise ConfigError(
            f"{settings.data_folder} has no versions of {name!r} yet: `outrider serve` makes it"
        )
    engine = open_database(settings.database_url)
    try:
        with engine.connect() as connection:
            known = models.all_versions(connection, name)
            found = next(
                (one for one in known if version in (one.version, one.status == "champion" and "champion")),
                None,
            )
            if found is None and is_named:
                return section_predictor(settings, name, version)
            if found is None:
                there = ", ".join(each.version for each in known)
                raise ConfigError(f"model {name!r} has no version {version!r}; there is {there or 'none'}")
            source = loadable_source(settings, found)
            if source.kind == "function":
                _same_function(settings, found)
            if found.weights is None and source.kind == "torch":
                raise ConfigError(f"{found.id} has no weights: it failed to be trained")
            (predictor,) = version_predictors(settings, connection, name, found.version)
            return predictor
    finally:
        engine.dispose()


def _same_function(settings: "Settings", found: "Model") -> None:
    """Raise where the file of a predictor function is not what it was when the version was registered."""
    from .dataops.model_kinds.content import whole_digest
    from .dataops.model_kinds.source import Source

    source = Source.from_json(found.source)
    if "artefacts" in source.kept:  # trained here: what it learned is kept, and the file only reads it
        return
    file = settings.base / source.reference.rpartition(":")[0]
    if not file.is_file():
        raise ConfigError(f"{found.id} is a function of {file}, which does not exist any more")
    if whole_digest(source, hashlib.sha256(file.read_bytes()).hexdigest()) != found.digest:
        raise ConfigError(
            f"{found.id} is a function of {file}, which has changed since: it cannot be asked again"
        )
