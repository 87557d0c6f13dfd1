"""Checkpoints of a training run: one safetensors file, replaced atomically.

Tensors by name, the rest as JSON in the header, nothing executable; a checkpoint of another task is ignored.
"""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

log = logging.getLogger(__name__)
_NAME = "checkpoint.safetensors"
_HEADER = "outrider"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    tensors: Mapping[str, torch.Tensor]
    state: Mapping[str, Any]
    """Plain JSON values."""

    def part(self, prefix: str) -> dict[str, torch.Tensor]:
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(prefix)
        }


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    folder: Path
    task: str

    def write(self, checkpoint: Checkpoint) -> None:
        """A process killed meanwhile leaves the previous one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        header = json.dumps({"task": self.task, "state": dict(checkpoint.state)})
        # A copy of each: parameters may share memory, which the format refuses.
        tensors = {
            name: tensor.detach().to("cpu", copy=True).contiguous()
            for name, tensor in checkpoint.tensors.items()
        }
        temporary = self.folder / f".{_NAME}.{os.getpid()}"
        save_file(tensors, temporary, metadata={_HEADER: header})
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, self.folder / _NAME)

    def read(self) -> Checkpoint | None:
        """None if damaged or of another task."""
        for left in self.folder.glob(f".{_NAME}.*"):
            left.unlink(missing_ok=True)
        path = self.folder / _NAME
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                header = json.loads(file.metadata()[_HEADER])
                if header["task"] != self.task:
                    log.warning("%s is of another task: training begins anew", path)
                    return None
                return Checkpoint({name: file.get_tensor(name) for name in file.keys()}, header["state"])  # noqa: SIM118 - a method of the format
        except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
            log.warning("%s cannot be read, training begins anew: %s", path, error)
            return None
