"""Freezing of weights in training."""

from collections.abc import Sequence

from torch import nn

from outrider.errors import ConfigError


def train_only(module: nn.Module, names: Sequence[str]) -> list[nn.Parameter]:
    """Frozen parts stay in evaluation mode, which freezes running means too."""
    module.train()
    if not names:
        return list(module.parameters())
    every = dict(module.named_parameters(remove_duplicate=False))
    for name in names:
        if not any(_is_under(known, [name]) for known in every):
            raise ConfigError(f"trains: {name!r} is no parameter or part of the model; {_there_are(module)}")
    trained = {id(p): p for name, p in every.items() if _is_under(name, names)}
    for parameter in every.values():
        parameter.requires_grad_(id(parameter) in trained)
    for path, part in module.named_modules():
        own = list(part.parameters())
        has_tensors = bool(own) or any(True for _ in part.buffers())
        if has_tensors and not _is_under(path, names) and not any(id(p) in trained for p in own):
            part.eval()
    return list(trained.values())


def _is_under(path: str, names: Sequence[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _there_are(module: nn.Module) -> str:
    parts = [name for name, part in module.named_children() if any(True for _ in part.parameters())]
    own = [name for name, _ in module.named_parameters(recurse=False)]
    return f"there are {', '.join([*parts, *own])}"
