"""Choice of the device that the engine runs on."""

import torch

from .cuda.device import CudaDevice, wanted_card
from .device import CpuDevice, Device
from .device_options import DeviceOptions
from .pacing import Pacer


def open_device(options: DeviceOptions) -> Device:
    """Open the device that the options name, and set torch's threads; ConfigError where there is none."""
    card = wanted_card(options)
    torch.set_num_threads(options.threads)
    return CpuDevice(Pacer(options.duty)) if card is None else CudaDevice(card, options)
