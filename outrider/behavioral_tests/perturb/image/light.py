"""Light and colour: brightness, contrast, gamma, grey, order of channels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng, check_order

from .pixels import Device, Range, images, ranged

if TYPE_CHECKING:
    from torch import Tensor

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue for grey (ITU-R BT.601)."""


def brightness(
    name: str = "image", *, by: float = 0.1, value_range: Range | None = None, device: Device = "auto"
) -> Perturbation:
    """Add ``by`` times the value range to all pixels. Negative values darken."""
    return ranged(name, lambda x, _: x.add_(by), device=device, value_range=value_range)


def contrast(
    name: str = "image", *, factor: float = 1.3, value_range: Range | None = None, device: Device = "auto"
) -> Perturbation:
    """Scale each pixel's distance from its image's mean. A factor below 1 flattens."""

    def op(x: "Tensor", rng: Rng) -> "Tensor":  # noqa: ARG001 - an op takes both
        mean = x.mean(dim=(1, 2, 3), keepdim=True)
        return x.sub_(mean).mul_(factor).add_(mean)

    return ranged(name, op, device=device, value_range=value_range)


def gamma(
    name: str = "image", *, exponent: float = 1.5, value_range: Range | None = None, device: Device = "auto"
) -> Perturbation:
    """Raise pixels, scaled to [0, 1], to a power. An exponent above 1 darkens."""
    if exponent <= 0:
        raise ValueError(f"exponent must be > 0, got {exponent}")

    def op(x: "Tensor", rng: Rng) -> "Tensor":  # noqa: ARG001
        return x.clamp_(0.0, 1.0).pow_(exponent)

    return ranged(name, op, device=device, value_range=value_range)


def grey(name: str = "image", *, device: Device = "auto") -> Perturbation:
    """Convert images to grey.

    Each channel becomes the luma of red, green and blue. Images that are already grey, or have one channel,
    are not applicable.
    """

    def op(x: "Tensor", rng: Rng) -> "Tensor":  # noqa: ARG001
        if x.shape[1] != 3:
            return x
        luma = sum(weight * x[:, at] for at, weight in enumerate(LUMA))
        is_grey = (x == x[:, :1]).flatten(1).all(dim=1)  # rounding of the weights is no change
        return x.where(is_grey[:, None, None, None], luma[:, None].expand_as(x))  # type: ignore[index]

    return images(name, op, device=device)


def channels(
    name: str = "image", *, order: Sequence[int] = (2, 1, 0), device: Device = "auto"
) -> Perturbation:
    """Reorder channels, such as red-green-blue read as blue-green-red.

    Raises
    ------
    ValueError
        At creation, if ``order`` is not a permutation or keeps the order; at run time, if images have another
        number of channels.
    """
    check_order(order, (2, 1, 0))

    def op(x: "Tensor", rng: Rng) -> "Tensor":  # noqa: ARG001
        if x.shape[1] != len(order):
            raise ValueError(f"inputs.{name}: {len(order)} channels expected, got {x.shape[1]}")
        return x[:, list(order)]

    return images(name, op, device=device)
