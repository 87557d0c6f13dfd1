"""A declaration of shared parts is held against the weights, by digest."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save, save_file

from outrider.dataops.model_kinds.shares import check_shares, shared_bytes, tensor_digests
from outrider.errors import ConfigError

BASE = {
    "stem.0.weight": torch.arange(6.0).reshape(2, 3),
    "stem.0.bias": torch.zeros(2, dtype=torch.bfloat16),
    "head.weight": torch.ones(1, 2),
}


def changed(name: str, tensor: torch.Tensor) -> dict[str, str]:
    return tensor_digests(save(BASE | {name: tensor}))


def check(shares: list[str], own: dict[str, str]) -> None:
    check_shares(shares, own, tensor_digests(save(BASE)), name="m@2", base_name="m@1")


def test_equal_parts_are_accepted_whatever_else_differs() -> None:
    check(["stem"], changed("head.weight", torch.zeros(1, 2)))
    check(["stem.0", "head"], tensor_digests(save(BASE)))


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("stem.0.weight", torch.arange(6.0).reshape(2, 3) + 1e-6),
        ("stem.0.weight", torch.arange(6.0).reshape(3, 2)),
        ("stem.0.bias", torch.zeros(2, dtype=torch.float16)),
        ("stem.0.bias", -torch.zeros(2, dtype=torch.bfloat16)),
    ],
)
def test_a_tensor_that_differs_is_named(name: str, tensor: torch.Tensor) -> None:
    with pytest.raises(ConfigError, match=f"m@2: shares: 'stem' is refused: its {name} is not that of m@1"):
        check(["stem"], changed(name, tensor))


def test_a_tensor_that_the_base_has_not_and_an_unknown_part_are_named() -> None:
    with pytest.raises(ConfigError, match=r"m@1 has no tensor stem\.1\.weight"):
        check(["stem"], changed("stem.1.weight", torch.zeros(1)))
    with pytest.raises(ConfigError, match="'ste' is no part of it that has weights; there are head, stem"):
        check(["ste"], tensor_digests(save(BASE)))


def test_bytes_in_common_are_counted() -> None:
    other = save(BASE | {"head.weight": torch.zeros(1, 2)})
    assert shared_bytes(other, save(BASE)) == (6 * 4 + 2 * 2, 6 * 4 + 2 * 2 + 2 * 4)


def test_files_folders_and_bytes_give_the_same_digests(tmp_path: Path) -> None:
    save_file(BASE, tmp_path / "one.safetensors")
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, (name, tensor) in enumerate(BASE.items()):
        save_file({name: tensor}, folder / f"model-{number}.safetensors", metadata={"format": "pt"})
    digests = tensor_digests(save(BASE))
    assert tensor_digests(tmp_path / "one.safetensors") == digests
    assert tensor_digests(folder) == digests


@pytest.mark.parametrize(
    "content", [b"", b"\\x00" * 16, (40).to_bytes(8, "little") + b'{"a": 1}' + b" " * 32]
)
def test_what_is_no_safetensors_file_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="not a safetensors file"):
        tensor_digests(content)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a safetensors file expected"):
        tensor_digests(tmp_path)
