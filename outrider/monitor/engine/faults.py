"""Faults of a pass: of the model, the memory, or the device."""

from enum import StrEnum

import torch

NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")
"""What allocators say who raise no error of their own type; cuBLAS and cuDNN among them."""
LIBRARY = ("cublas_status_", "cusolver_status_", "cudnn_status_")
BROKEN_LIBRARY = ("execution_failed", "internal_error", "mapping_error")
"""A library's complaint of arguments leaves the device as it was; these do not."""
BROKEN = ("cuda error", "cuda driver error", "device-side assert")
"""What torch says when the context of the device is of no use any more."""


class Fault(StrEnum):
    """Action after an error."""

    MODEL = "model"
    MEMORY = "memory"
    DEVICE = "device"


def fault_of(error: BaseException) -> Fault:
    """Fault of an error, by type from torch, else by text.

    After an illegal address, a device-side assert or an uncorrectable memory error every further call of the
    same process fails, so no row is to be blamed for those that follow.

    Examples
    --------
    >>> fault_of(MemoryError())
    <Fault.MEMORY: 'memory'>
    >>> fault_of(RuntimeError("CUDA error: an illegal memory access was encountered"))
    <Fault.DEVICE: 'device'>
    >>> fault_of(ValueError("shapes do not match"))
    <Fault.MODEL: 'model'>
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return Fault.MEMORY
    if not isinstance(error, RuntimeError):
        return Fault.MODEL
    text = str(error).lower()
    if any(sign in text for sign in NO_MEMORY):
        return Fault.MEMORY
    if any(sign in text for sign in LIBRARY):
        return Fault.DEVICE if any(sign in text for sign in BROKEN_LIBRARY) else Fault.MODEL
    is_broken = isinstance(error, torch.AcceleratorError) or any(sign in text for sign in BROKEN)
    return Fault.DEVICE if is_broken else Fault.MODEL
