"""JPEG compression loss: quantised DCT coefficients, without the file format."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng

from .pixels import Device, Range, ranged, to_tensor

if TYPE_CHECKING:
    from torch import Tensor

_LUMINANCE = [
    [16, 11, 10, 16, 24, 40, 51, 61],
    [12, 12, 14, 19, 26, 58, 60, 55],
    [14, 13, 16, 24, 40, 57, 69, 56],
    [14, 17, 22, 29, 51, 87, 80, 62],
    [18, 22, 37, 56, 68, 109, 103, 77],
    [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101],
    [72, 92, 95, 98, 112, 100, 103, 99],
]
_CHROMINANCE = np.full((8, 8), 99)
_CHROMINANCE[:4, :4] = [[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]]
_TO_YCC = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])
_FROM_YCC = np.array([[1.0, 0.0, 1.402], [1.0, -0.344136, -0.714136], [1.0, 1.772, 0.0]])


def jpeg(
    name: str = "image", *, quality: int = 50, value_range: Range | None = None, device: Device = "auto"
) -> Perturbation:
    """Degrade an image like JPEG compression.

    Quality is from 1 (worst) to 100. Pixels are quantized to 256 levels of ``value_range``. Images with three
    channels are treated as red, green and blue and lose half of their colour resolution (4:2:0), as in files
    by cameras and Pillow; with any other number, each channel is compressed as grey.

    References
    ----------
    ITU-T T.81 (JPEG), annex K tables 1 and 2; quality as in the IJG's libjpeg. Decoded pixels differ from
    libjpeg's by its integer arithmetic.
    """
    if not 1 <= quality <= 100:
        raise ValueError(f"quality must lie in [1, 100], got {quality}")
    tables = [_scaled(np.array(table), quality) for table in (_LUMINANCE, _CHROMINANCE)]

    def op(x: "Tensor", rng: Rng) -> "Tensor":  # noqa: ARG001 - an op takes both
        levels = x.mul_(255).clamp_(0, 255).round_()
        luminance, chrominance = (to_tensor(table, x) for table in tables)
        decoded = (
            _colour(levels, luminance, chrominance) if x.shape[1] == 3 else _coded(levels, luminance, block=8)
        )
        return decoded.clamp_(0, 255).round_().div_(255)

    return ranged(name, op, device=device, value_range=value_range)


def _scaled(table: NDArray[np.int64], quality: int) -> NDArray[np.float64]:
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return np.clip((table * scale + 50) // 100, 1, 255).astype(np.float64)


def _colour(levels: "Tensor", luminance: "Tensor", chrominance: "Tensor") -> "Tensor":
    from torch.nn.functional import avg_pool2d, interpolate

    height, width = levels.shape[2:]
    ycc = _mixed(levels, _TO_YCC)
    ycc[:, 1:] += 128
    ycc = _padded(ycc.round_(), 16)
    luma = _coded(ycc[:, :1], luminance, block=8)[:, :, :height, :width]
    small = _coded(avg_pool2d(ycc[:, 1:], 2).round_(), chrominance, block=8)
    small = small[:, :, : (height + 1) // 2, : (width + 1) // 2]
    chroma = interpolate(small, scale_factor=2, mode="bilinear", align_corners=False)
    chroma = chroma[:, :, :height, :width].round_().sub_(128)
    ycc = luma.new_empty(levels.shape)
    ycc[:, :1], ycc[:, 1:] = luma, chroma
    return _mixed(ycc, _FROM_YCC)


def _mixed(x: "Tensor", matrix: NDArray[np.float64]) -> "Tensor":
    """Channels (n, 3, h, w) multiplied by a 3 x 3 matrix."""
    return (to_tensor(matrix, x) @ x.flatten(2)).view_as(x)


def _coded(levels: "Tensor", table: "Tensor", *, block: int) -> "Tensor":
    """Levels of 0 to 255 after quantizing each block's coefficients to the table's steps."""
    n, c, height, width = levels.shape
    x = _padded(levels, block) - 128
    rows, columns = x.shape[2] // block, x.shape[3] // block
    blocks = x.view(n, c, rows, block, columns, block).transpose(3, 4).reshape(-1, block * block)
    both = to_tensor(np.kron(_dct(block), _dct(block)), levels)  # one product for rows and columns
    steps = table.flatten()
    blocks = (blocks @ both.T).div_(steps).round_().mul_(steps) @ both
    x = blocks.view(n, c, rows, columns, block, block).transpose(3, 4)
    x = x.reshape(n, c, rows * block, columns * block)
    return x[:, :, :height, :width].add(128).round_().clamp_(0, 255)


def _padded(x: "Tensor", block: int) -> "Tensor":
    """Image with the last row and column repeated until both sides are multiples of ``block``."""
    from torch.nn.functional import pad

    height, width = x.shape[2:]
    return pad(x, (0, -width % block, 0, -height % block), mode="replicate")


def _dct(size: int) -> NDArray[np.float64]:
    """Orthonormal matrix of the discrete cosine transform (type II), shape (size, size)."""
    k, place = np.arange(size)[:, None], np.arange(size)
    matrix: NDArray[np.float64] = np.sqrt(2 / size) * np.cos(np.pi * (2 * place + 1) * k / (2 * size))
    matrix[0] /= np.sqrt(2)
    return matrix
