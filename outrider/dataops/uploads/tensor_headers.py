"""Headers of safetensors files, and numbers that no trained model has."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from .announced import WrongUpload

MOST_HEADER_BYTES = 8_388_608
_STEP_BYTES = 4_194_304
_WIDTHS = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2,
    "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
_EXPONENTS = {
    "F64": ("<u8", 0x7FF0_0000_0000_0000), "F32": ("<u4", 0x7F80_0000), "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
}  # fmt: skip
"""Bits that are all set in NaN and infinity."""


@dataclass(frozen=True, slots=True)
class TensorForm:
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def tensor_forms(path: Path, *, name: str | None = None) -> dict[str, TensorForm]:
    """From the header alone; gaps and foreign bytes are refused."""
    file = name or path.name
    size = path.stat().st_size
    with path.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or not 2 <= length <= min(MOST_HEADER_BYTES, size - 8):
            raise _no_safetensors(file, f"a header of {length} bytes in a file of {size}")
        try:
            header = json.loads(opened.read(length))
        except (ValueError, RecursionError):
            raise _no_safetensors(file, "its header is not JSON") from None
    if not isinstance(header, dict):
        raise _no_safetensors(file, "its header is no object")
    header.pop("__metadata__", None)
    found = {tensor: _form(file, tensor, facts, 8 + length) for tensor, facts in header.items()}
    at = 8 + length
    for tensor, form in sorted(found.items(), key=lambda pair: (pair[1].start, pair[1].stop)):
        if form.start != at:
            raise _no_safetensors(file, f"tensor {tensor[:200]!r} begins at byte {form.start}, not {at}")
        at = form.stop
    if at != size:
        raise _no_safetensors(file, f"{size} bytes expected by its header {at}")
    return found


def check_same(
    own: Mapping[str, TensorForm], champion: Mapping[str, TensorForm], *, file: str, of: str
) -> None:
    """Refuse names, types or shapes that differ from the champion's."""
    for tensor in sorted(own.keys() | champion.keys()):
        expected = str(champion[tensor]) if tensor in champion else "no such tensor"
        got = str(own[tensor]) if tensor in own else "no such tensor"
        if expected != got:
            raise WrongUpload(
                f"{file}: tensor {tensor[:200]!r}: {expected} expected as in {of}, got {got}",
                file=file, tensor=tensor[:200], expected=expected, got=got,
            )  # fmt: skip


def check_finite(path: Path, forms: Mapping[str, TensorForm], *, name: str | None = None) -> None:
    """Refuse weights with NaN or infinity; read in steps."""
    with path.open("rb") as file:
        for tensor, form in forms.items():
            if form.dtype in _EXPONENTS and not _is_finite(file, form):
                raise WrongUpload(
                    f"{name or path.name}: tensor {tensor[:200]!r}: finite numbers expected, got NaN or "
                    "infinity: training has diverged",
                    file=name or path.name,
                    tensor=tensor[:200],
                    expected="finite numbers",
                    got="NaN or infinity",
                )


def check_low_rank(
    own: Mapping[str, TensorForm], base: Mapping[str, TensorForm], *, file: str, of: str
) -> None:
    """Refuse low-rank matrices that fit no layer of the base."""
    for tensor, form in sorted(own.items()):
        layer, role = _layer_of(tensor)
        if role is None:
            continue
        weight = _weight(base, layer)
        if weight is None:
            raise WrongUpload(
                f"{file}: tensor {tensor[:200]!r}: {of} has no layer {layer[:200]!r}",
                file=file, tensor=tensor[:200], expected=f"a layer of {of}", got=layer[:200],
            )  # fmt: skip
        width = form.shape[-1 if role == "A" else 0] if form.shape else 0
        if len(form.shape) == 2 and len(weight.shape) == 2 and width not in weight.shape:
            raise WrongUpload(
                f"{file}: tensor {tensor[:200]!r}: a width of {' or '.join(map(str, weight.shape))} expected "
                f"as its layer in {of} has, got {list(form.shape)}",
                file=file, tensor=tensor[:200], expected=list(weight.shape), got=list(form.shape),
            )  # fmt: skip


def merged(files: Iterable[Path]) -> dict[str, TensorForm]:
    found: dict[str, TensorForm] = {}
    for file in files:
        found |= tensor_forms(file)
    return found


def _form(file: str, tensor: str, facts: object, offset: int) -> TensorForm:
    try:
        if not isinstance(facts, dict):
            raise TypeError
        dtype, shape, (start, stop) = facts["dtype"], facts["shape"], facts["data_offsets"]
        numbers = [*shape, start, stop]
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers) or dtype not in _WIDTHS:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise _no_safetensors(file, f"tensor {tensor[:200]!r} has no dtype, shape and data_offsets") from None
    if stop - start != math.prod(shape) * _WIDTHS[dtype]:
        raise _no_safetensors(
            file, f"tensor {tensor[:200]!r} is {dtype} {shape}, which is not {stop - start} bytes"
        )
    return TensorForm(dtype, tuple(shape), offset + start, offset + stop)


def _is_finite(file: BinaryIO, form: TensorForm) -> bool:
    kind, mask = _EXPONENTS[form.dtype]
    file.seek(form.start)
    left = form.stop - form.start
    while left:
        data = file.read(min(_STEP_BYTES, left))
        if not data:
            return False
        left -= len(data)
        bits = np.frombuffer(data, dtype=kind)
        if np.any((bits & np.array(mask, dtype=kind)) == mask):
            return False
    return True


def _layer_of(tensor: str) -> tuple[str, str | None]:
    """Layer of a low-rank matrix and its side; no side for other tensors."""
    for role in ("A", "B"):
        for mark in (f".lora_{role}.", f".lora_{role}"):
            head, found, tail = tensor.partition(mark)
            if found and tail in ("", "weight", "default.weight"):
                return head.removeprefix("base_model.model.").replace(".base_layer", ""), role
    return tensor, None


def _weight(base: Mapping[str, TensorForm], layer: str) -> TensorForm | None:
    """A base saved without its head lacks the first part of the names."""
    parts = layer.split(".")
    for at in range(min(3, len(parts))):
        if (found := base.get(".".join([*parts[at:], "weight"]))) is not None:
            return found
    tail = f".{layer}.weight"
    return next((form for name, form in base.items() if name.endswith(tail)), None)


def _no_safetensors(file: str, why: str) -> WrongUpload:
    return WrongUpload(f"{file}: a safetensors file expected: {why}", file=file)
