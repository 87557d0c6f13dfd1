"""Choice of the device that the engine runs on."""

import torch

from .cuda.device import CudaDevice, wanted_card
from .device import CpuDevice, Device
from .device_options import DeviceOptions
from .pacing import Pacer


def open_device(options: DeviceOptions) -> Device:
    """The device that the options name; sets the threads of torch.

    Raises
    ------
    ConfigError
        If there is no such device.
    """
    card = wanted_card(options)
    torch.set_num_threads(options.threads)
    return CpuDevice(Pacer(options.duty)) if card is None else CudaDevice(card, options)
