"""Launch of a version's engine, with its secrets and files."""

import os
from collections.abc import Mapping
from pathlib import Path

from outrider.dataops.confinement import clean_environment, without_secrets
from outrider.dataops.model_kinds.source import Source
from outrider.monitor.settings.config import Settings

from .device_options import DeviceOptions
from .launch import Launch

DRIVER = Path("/dev/nvidiactl")
"""With this device, a process opens devices that no list of files names."""


def launch_of(
    settings: Settings,
    model: str,
    source: Source,
    weights: Path | None,
    *,
    opens_upload: bool,
) -> Launch:
    worker, own = settings.worker, settings.models.get(model)
    options = worker.fill(DeviceOptions)
    is_confined = opens_upload and source.kind in ("hf", "onnx") and not DRIVER.exists()
    return Launch(
        settings.base.resolve(), options.to_json(), worker.threads,
        None if own is None else own.shadow.batch_rows,
        environment=_environment(source, opens_upload=opens_upload),
        readable=files_of(settings, source, weights) if is_confined else None,
    )  # fmt: skip


def _environment(source: Source, *, opens_upload: bool) -> Mapping[str, str] | None:
    if source.kind == "torch":  # weights of a stranger for a class of the owner's, who may ask for more
        return without_secrets(os.environ)
    if opens_upload:
        own = source.key_env if source.kind == "endpoint" else None
        return clean_environment(os.environ, kept=() if own is None else (own,))
    return None if source.kind in ("function", "endpoint") else without_secrets(os.environ)


def files_of(settings: Settings, source: Source, weights: Path | None) -> tuple[Path, ...]:
    """Files of an opened version without code, links resolved."""
    found = [] if weights is None else [weights]
    for folder in (source.reference, source.adapter) if source.kind == "hf" else ():
        if folder is not None and settings.path(folder).exists():
            found += [
                settings.path(folder),
                *(one for one in settings.path(folder).iterdir() if one.is_symlink()),
            ]
    return tuple(one.resolve() for one in found if one.exists())
