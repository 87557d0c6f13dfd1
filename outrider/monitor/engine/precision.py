"""Weights in bfloat16, half the memory, fastest on tensor cores."""

import torch


def narrow_weights(module: torch.nn.Module) -> None:
    """Turn float32 weights into bfloat16, in place.

    Non-persistent buffers keep their type (rotary frequencies in bfloat16 make position 257 position
    256), and so do quantised tensors.
    """
    for part in module.modules():
        for parameter in part._parameters.values():
            if parameter is not None and _is_plain(parameter.data):
                parameter.data = parameter.data.to(torch.bfloat16)
        for name, buffer in part._buffers.items():
            if buffer is not None and name not in part._non_persistent_buffers_set and _is_plain(buffer):
                part._buffers[name] = buffer.to(torch.bfloat16)


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and tensor.dtype == torch.float32
