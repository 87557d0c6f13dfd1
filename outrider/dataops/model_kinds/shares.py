"""Check of declared ``shares``. Tensors of two versions' files, by digest, without torch."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from outrider.errors import ConfigError


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    digest: str
    nbytes: int


_LONGEST_HEADER = 100_000_000
_CHUNK = 1 << 24


def tensor_digests(weights: Path | bytes) -> dict[str, str]:
    """SHA-256 of type, shape and bytes of each tensor, by name."""
    return {tensor.name: tensor.digest for tensor in _tensors(weights)}


def shared_bytes(own: Path | bytes, base: Path | bytes) -> tuple[int, int]:
    """Bytes of tensors with equal name and content, and of all."""
    known = tensor_digests(base)
    mine = _tensors(own)
    shared = sum(tensor.nbytes for tensor in mine if known.get(tensor.name) == tensor.digest)
    return shared, sum(tensor.nbytes for tensor in mine)


def _tensors(weights: Path | bytes) -> list[_Tensor]:
    if isinstance(weights, bytes):
        return list(_digests(partial(_read, BytesIO(weights)), "weights"))
    files = sorted(weights.glob("*.safetensors")) if weights.is_dir() else [weights]
    if not files or not all(file.is_file() for file in files):
        raise ConfigError(f"{weights}: a safetensors file expected, or a folder with one")
    found: list[_Tensor] = []
    for file in files:
        with file.open("rb") as opened:
            found += _digests(partial(_read, opened), str(file))
    return found


def check_shares(
    shares: Sequence[str], own: Mapping[str, str], base: Mapping[str, str], *, name: str, base_name: str
) -> None:
    """Refuse a version whose declared submodules differ from its base's.

    Parameters
    ----------
    shares
        Dotted names of submodules or tensors.
    own, base
        Digests of both, as :func:`tensor_digests` gives them.

    Raises
    ------
    ConfigError
        Naming the first tensor that differs, is not there, or the name that stands for none.

    Examples
    --------
    >>> check_shares(["stem"], {"stem.weight": "a1"}, {"stem.weight": "a1"}, name="m@2", base_name="m@1")
    """
    for part in shares:
        mine = [tensor for tensor in own if tensor == part or tensor.startswith(f"{part}.")]
        if not mine:
            parts = ", ".join(sorted({tensor.partition(".")[0] for tensor in own}))
            raise ConfigError(
                f"{name}: shares: {part!r} is no part of it that has weights; there are {parts}"
            )
        for tensor in mine:
            if tensor not in base:
                raise ConfigError(f"{name}: shares: {part!r} is refused: {base_name} has no tensor {tensor}")
            if own[tensor] != base[tensor]:
                raise ConfigError(
                    f"{name}: shares: {part!r} is refused: its {tensor} is not that of {base_name} (digest "
                    f"{own[tensor][:12]} here, {base[tensor][:12]} there); name parts that are equal, or "
                    "none: what is equal is found without"
                )


def _read(file: BinaryIO, start: int, stop: int) -> bytes:
    file.seek(start)
    return file.read(stop - start)


def _digests(read: Callable[[int, int], bytes], name: str) -> Iterator[_Tensor]:
    """``read(start, stop)`` gives bytes of the file."""
    size = int.from_bytes(read(0, 8), "little")
    try:
        if not 2 <= size <= _LONGEST_HEADER:
            raise ValueError(f"a header of {size} bytes")
        header: dict[str, Any] = json.loads(read(8, 8 + size))
        places = [
            (tensor, f"{facts['dtype']} {facts['shape']}", *facts["data_offsets"])
            for tensor, facts in header.items()
            if tensor != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{name}: not a safetensors file: {error}") from error
    for tensor, form, start, stop in places:
        digest = sha256(form.encode())
        for at in range(8 + size + start, 8 + size + stop, _CHUNK):
            digest.update(read(at, min(at + _CHUNK, 8 + size + stop)))
        yield _Tensor(tensor, digest.hexdigest(), stop - start)
