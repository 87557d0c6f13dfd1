"""What is done to a module once it is loaded, step by step: ``recipe`` of a version."""

from collections.abc import Sequence

import torch

from outrider.errors import ConfigError


def apply_recipe(module: torch.nn.Module, recipe: Sequence[str]) -> torch.nn.Module:
    """The module after every step; it may be another object, and is changed where it is not.

    Raises
    ------
    ConfigError
        If a step is not known.
    """
    for step in recipe:
        raise ConfigError(f"recipe: no step {step!r}")
    return module
