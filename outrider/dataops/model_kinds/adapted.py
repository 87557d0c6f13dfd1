"""Model with an adapter, as a Runner of its own."""

import copy
from typing import Any

import torch
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.errors import ConfigError

from .adapter import Adapter
from .adapter_mixing import VariantSpan
from .mixture import Mixture
from .runner import EncodedRows, Runner, Tensors


class AdaptedRunner:
    """Base and one adapter.

    The base's module is unchanged, so that the engine can share it among adapters; alone, the adapter is
    applied at the first run.
    """

    def __init__(self, base: Runner, adapter: Adapter) -> None:
        self.base = base
        self.adapter = adapter
        self._laid: tuple[Mixture, Runner] | None = None

    @property
    def module(self) -> torch.nn.Module:
        """The base's module, without the adapter."""
        return self.base.module

    @module.setter
    def module(self, module: torch.nn.Module) -> None:
        self.base.module = module
        self._laid = None

    @property
    def device(self) -> torch.device:
        return self.base.device

    @device.setter
    def device(self, device: torch.device) -> None:
        self.base.device = device
        self._laid = None

    def encode(self, batch: Batch, /) -> EncodedRows:
        return self.base.encode(batch)

    def run(self, tensors: Tensors, /) -> Tensors:
        mixture, runner = self._mixture()
        rows = len(next(iter(tensors.values())))
        mixture.begin(rows, [VariantSpan(0, 0, rows)])
        return narrowed(runner.run(tensors), mixture.width(0))

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        return self.base.decode(answers)

    def check(self) -> None:
        Mixture(self.base.module, [self.adapter], is_stacked=False)  # no copy is made, and nothing kept

    def _mixture(self) -> tuple[Mixture, Runner]:
        if self._laid is None:
            mixture = Mixture(self.base.module, [self.adapter])
            self._laid = mixture, with_module(self.base, mixture.module)
        return self._laid


def with_module(runner: Runner, module: torch.nn.Module) -> Runner:
    made = copy.copy(runner)
    made.module = module
    return made


def narrowed(answers: Tensors, width: tuple[int, int] | None) -> Tensors:
    """Answers of a narrower head without padding (`Mixture.width`)."""
    if width is None:
        return answers
    widest, own = width
    return {n: t[..., :own] if t.ndim > 1 and t.shape[-1] == widest else t for n, t in answers.items()}


def base_of(runner: Runner) -> Runner:
    return runner.base if isinstance(runner, AdaptedRunner) else runner


def refuse_idle(mixture: Mixture, names: str) -> None:
    """``ConfigError`` if adapter layers did not run, as the base answered."""
    if idle := mixture.idle():
        raise ConfigError(
            f"{names}: {idle[0]} and {len(idle) - 1} more have an adapter and were not called in a pass; the "
            "model reads their weights in another way, so the adapter cannot be run"
        )
