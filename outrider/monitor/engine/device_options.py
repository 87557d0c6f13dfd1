"""Device options as plain values from configuration to engine process."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal

Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Options of a device, ``[worker]`` settings of the same name (without ``graphs``)."""

    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    threads: int = 1
    """Torch threads of a pass on the CPU, and of writing batches for a GPU."""
    dtype: Dtype = "float32"
    """Of weights and of what is computed on a GPU; answers come back as float32. The CPU keeps what the
    models have."""
    compile: bool = False
    """Whether ``torch.compile`` is tried on modules on a GPU."""
    graphs: bool = True
    """Whether passes on a GPU are captured as CUDA graphs."""
    duty: float = 1.0
    """Share of the time in which the device may be kept busy, in (0, 1]: below 1 a pause follows every
    pass."""
    low_priority: bool = False
    """Whether CUDA MPS, where it runs, lets other processes go first."""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "DeviceOptions":
        return cls(**json.loads(text))
