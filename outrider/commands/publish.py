"""Publication of a version's test outcomes, in requests of limited size."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from outrider.behavioral_tests import Outcome
from outrider.errors import ConfigError

from .api import connect, one_model

OUTCOME_BYTES = 250_000
REQUEST_BYTES = 5_000_000
REQUEST_OUTCOMES = 500
ERROR_LETTERS = 10_000


def publish(
    outcomes: Sequence[Outcome],
    reference: str,
    *,
    target: str | None = None,
    source: Literal["cli", "pytest"],
    folder: Path | None = None,
) -> str:
    """Publish outcomes of ``reference`` (the value of ``--model``); return ``model@version``.

    ``target`` is VERSION or MODEL@VERSION and overrides the reference.
    """
    model, version = version_of(reference, target, folder=folder)
    api = connect()
    model = one_model(api, model)
    if version == "champion":
        version = str(api.get(f"/v1/models/{model}/versions/champion")["version"])
    for part in _requests(outcomes):
        api.post(f"/v1/suites/{model}/outcomes", {"version": version, "source": source, "outcomes": part})
    return f"{model}@{version}"


def version_of(reference: str, target: str | None, *, folder: Path | None = None) -> tuple[str | None, str]:
    """Model (None: the service's only one) and version of outcomes. ``target`` overrides ``reference``."""
    known = _of_reference(reference, folder or Path())
    given = _of_target(target) if target else (None, None)
    version = given[1] or known[1]
    if version is None:
        raise ConfigError(
            f"{reference} does not say which version was tested: name it, VERSION or MODEL@VERSION"
        )
    return given[0] or known[0], version


def _of_target(target: str) -> tuple[str | None, str | None]:
    model, at, version = target.rpartition("@")
    return (model or None) if at else None, version or None


def _of_reference(reference: str, folder: Path) -> tuple[str | None, str | None]:
    """Model and version that a project reference names; by default the first version in the configuration."""
    path, _, rest = reference.partition("#")
    place = folder / path
    if reference.startswith(("http://", "https://")) or not (place.is_dir() or path.endswith(".toml")):
        return None, None
    file = place / "outrider.toml" if place.is_dir() else place
    if not file.exists():
        return None, None
    from outrider.monitor.settings.config import load_settings

    models = load_settings(file).models
    name, _, version = rest.partition("@")
    if not name and len(models) == 1:
        name = next(iter(models))
    if name not in models:
        return name or None, version or None
    return name, version or models[name].version


def _requests(outcomes: Sequence[Outcome]) -> Iterator[list[dict[str, Any]]]:
    """Outcomes in parts, each of which fits into one request."""
    part: list[dict[str, Any]] = []
    size = 0
    for outcome in outcomes:
        plain, bytes_ = _fitting(outcome)
        if part and (size + bytes_ > REQUEST_BYTES or len(part) >= REQUEST_OUTCOMES):
            yield part
            part, size = [], 0
        part.append(plain)
        size += bytes_
    if part:
        yield part


def _fitting(outcome: Outcome) -> tuple[dict[str, Any], int]:
    """Outcome as JSON values, with examples dropped until it fits the size limit, and its size."""
    plain = outcome.to_dict()
    plain["error"] = plain["error"][:ERROR_LETTERS]
    plain["suite"] = plain["suite"] or "tests"  # of a test that is in no file
    while (size := len(json.dumps(plain))) > OUTCOME_BYTES and plain["examples"]:
        plain["examples"] = plain["examples"][:-1]
    return plain, size
