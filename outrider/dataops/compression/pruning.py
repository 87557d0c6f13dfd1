"""Pruning: the smallest weights become zero, no faster or smaller alone."""

import torch

Masks = dict[str, torch.Tensor]
"""By name of a parameter: where its weights stay, bool of its shape."""


def prune(module: torch.nn.Module, how: str) -> Masks:
    """Zero the smallest weights of linear and convolution layers, in place.

    Parameters
    ----------
    how
        ``magnitude_P``: P percent of each layer's weights; ``2:4``: the smaller two of every four neighbours
        of a row, which tensor cores of NVIDIA's since Ampere skip; layers whose rows are no multiple of four
        stay whole.

    References
    ----------
    Han et al., "Learning both Weights and Connections for Efficient Neural Networks", NeurIPS 2015, here per
    layer and in one step; Mishra et al., "Accelerating Sparse Deep Neural Networks", 2021 (2:4).
    """
    masks: Masks = {}
    for name, layer in module.named_modules():
        if not isinstance(layer, (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d)):
            continue
        keep = two_of_four(layer.weight) if how == "2:4" else largest(layer.weight, share=_kept(how))
        with torch.no_grad():
            layer.weight.mul_(keep)
        masks[f"{name}.weight" if name else "weight"] = keep
    return masks


def apply_masks(module: torch.nn.Module, masks: Masks) -> None:
    """Zero masked weights again, in place: after a training step."""
    with torch.no_grad():
        for name, keep in masks.items():
            module.get_parameter(name).mul_(keep)


def largest(weight: torch.Tensor, *, share: float) -> torch.Tensor:
    """Bool mask of the largest ``share``, of equal weights the first.

    Examples
    --------
    >>> largest(torch.tensor([[3.0, -1.0, 2.0, -4.0]]), share=0.5).tolist()
    [[True, False, False, True]]
    """
    size = weight.abs().flatten()
    kept = torch.zeros(size.shape, dtype=torch.bool, device=size.device)
    order = size.argsort(descending=True, stable=True)
    kept[order[: round(share * len(size))]] = True
    return kept.reshape(weight.shape)


def two_of_four(weight: torch.Tensor) -> torch.Tensor:
    """Bool mask (rows, columns): larger two of a row's four neighbours.

    Examples
    --------
    >>> two_of_four(torch.tensor([[3.0, -1.0, 2.0, -4.0]])).tolist()
    [[True, False, False, True]]
    """
    if weight.ndim != 2 or weight.shape[1] % 4:
        return torch.ones(weight.shape, dtype=torch.bool, device=weight.device)
    fours = weight.detach().abs().reshape(-1, 4)
    kept = torch.zeros(fours.shape, dtype=torch.bool, device=weight.device)
    kept.scatter_(1, fours.argsort(dim=1, descending=True, stable=True)[:, :2], value=True)
    return kept.reshape(weight.shape)


def zero_share(module: torch.nn.Module) -> float:
    """Share of the numbers of all parameters that are zero."""
    sizes = [(int((p == 0).sum()), p.numel()) for p in module.parameters()]
    return sum(zeros for zeros, _ in sizes) / max(1, sum(size for _, size in sizes))


def _kept(how: str) -> float:
    kind, _, percent = how.partition("_")
    if kind != "magnitude" or not percent.isdigit() or not 0 < int(percent) < 100:
        raise ValueError(f"2:4 or magnitude_P with P from 1 to 99 expected, got {how!r}")
    return 1.0 - int(percent) / 100
