"""The device of the engine and a model on it, beside the same model in float32."""

import copy
from dataclasses import dataclass

import torch
from torch import nn

from outrider.dataops.model_kinds.runner import EncodedRows
from outrider.monitor.engine.device import Device
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.executor import Segment
from outrider.monitor.engine.open_device import open_device

from ._models import OneInput
from ._scale import Kind, Scale

NAME = ("text", "1")


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a figure is measured.

    Attributes
    ----------
    kind
        On ``cpu`` figures have no target.
    """

    kind: Kind
    scale: Scale

    def device(self, *, duty: float = 1.0) -> Device:
        """The engine's device: bfloat16 on a GPU, the processor as it is."""
        return open_device(
            DeviceOptions(
                device=self.kind,
                dtype="bfloat16" if self.kind == "cuda" else "float32",
                duty=duty,
                low_priority=self.kind == "cuda",
            )
        )

    def fed(self, module: nn.Module, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Tensors on the device, in the type of the weights where they are numbers."""
        weights = next(module.parameters())
        return tuple(t.to(self.kind, weights.dtype if t.is_floating_point() else t.dtype) for t in tensors)

    def reference(self, module: nn.Module, *tensors: torch.Tensor) -> torch.Tensor:
        """Logits of a module that still lies on the CPU, in float32 on the device."""
        wide = copy.deepcopy(module).to(self.kind).eval()
        with torch.inference_mode():
            out: torch.Tensor = wide(*self.fed(wide, *tensors)).cpu()
        return out


def adopted(device: Device, module: nn.Module, argument: str = "ids") -> OneInput:
    """A runner of a module on a device."""
    runner = OneInput(module, argument)
    device.adopt(runner)
    return runner


def whole(rows: EncodedRows, *names: tuple[str, str]) -> list[Segment]:
    """All rows for each version."""
    return [Segment(name, 0, rows.count) for name in names or (NAME,)]
