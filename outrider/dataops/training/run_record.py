"""Record of a training run, sufficient to train again and compare."""

import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from outrider.dataops.model_kinds.source import Kind, Source

from .trainer import TrainedModel, TrainingTask

_EVERYWHERE = ("outrider", "torch", "numpy", "safetensors")
_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    "hf": ("transformers", "tokenizers", "peft"),
    "function": ("scikit-learn", "onnxruntime", "skl2onnx"),
}


def run_record(task: TrainingTask) -> dict[str, Any]:
    return {
        "settings": dict(task.options),
        "seed": task.seed,
        "source": task.registered.to_json(),
        "target": task.target,
        "champion": task.champion,
        "champion_digest": None if task.weights is None else hashlib.sha256(task.weights).hexdigest(),
        "code": file_digests(task.source, task.options, task.base),
        "datasets": {
            name: None if rows is None else {"id": rows.id, "digest": rows.digest, "rows": len(rows)}
            for name, rows in (("fresh", task.fresh), ("replay", task.replay))
        },
        "environment": environment(task.source.kind),
        "device": task.device,
        "threads": _threads(),
    }


def _threads() -> int:
    try:
        import torch
    except ModuleNotFoundError:
        return 1
    return torch.get_num_threads()


def environment(kind: Kind) -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    for name in (*_EVERYWHERE, *_OF_KIND.get(kind, ())):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def file_digests(source: Source, options: Mapping[str, Any], base: Path) -> dict[str, str]:
    """SHA-256 of user files by name; folders by sizes and times."""
    found: dict[str, str] = {}
    named = [source.reference, source.adapter]
    named += [options.get(name) for name in ("augment", "trainer", "architecture")]
    for reference in named:
        if not isinstance(reference, str) or "://" in reference:
            continue
        name = reference.partition(":")[0]
        if Path(name).is_absolute():  # a kept folder, whose digest its source names
            continue
        path = base / name
        if path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.is_dir():
            found[name] = _folder_digest(path)
    return found


def _folder_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        status = path.stat()
        digest.update(f"{path.relative_to(folder)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def digest_of(made: TrainedModel) -> str:
    if made.weights is not None and not made.files:
        return hashlib.sha256(made.weights).hexdigest()
    whole = hashlib.sha256()
    for name, path in sorted(made.files.items()):
        whole.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    if made.weights is not None:
        whole.update(made.weights)
    return whole.hexdigest()


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Differences between two records, such as ``torch 2.12.0 -> 2.13.0``."""
    found: list[tuple[str, Any, Any]] = []
    for group in ("environment", "code", "settings", "datasets"):
        old, new = before.get(group) or {}, after.get(group) or {}
        found += [(name, old.get(name), new.get(name)) for name in dict.fromkeys([*old, *new])]
    names = ("champion_digest", "source", "target", "device", "threads", "seed")
    found += [(name, before.get(name), after.get(name)) for name in names]
    return [f"{name} {_brief(old)} -> {_brief(new)}" for name, old, new in found if old != new]


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value.get('id')} ({str(value.get('digest'))[:12]})"
    text = "none" if value is None else str(value)
    return text[:12] if len(text) == 64 else text
