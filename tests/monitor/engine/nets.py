"""Small networks of the kinds that versions of one trunk are made of."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import nn


class Block(nn.Module):
    """A residual block of a transformer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.rest = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        answer: torch.Tensor = x + self.rest(x)
        return answer


class Blocks(nn.Module):
    """A transformer with glue between its parts, which fx can follow."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 16)
        self.places = nn.Parameter(torch.randn(6, 16))
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x.view(-1, 6, 4)) + self.places  # (B, 6, 16)
        for block in self.blocks:
            h = block(h)
        answer: torch.Tensor = self.head(h.mean(1))
        return answer


class Branching(nn.Module):
    """The same of torch's own layers, whose container branches on its operands: fx cannot follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.encoder(self.embed(x.view(-1, 6, 4))).mean(1))
        return answer


class Convolutions(nn.Module):
    """Batch normalisation, pooling, and activations that write in place."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Unflatten(1, (1, 4, 6)),
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
        )
        self.head = nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Flatten(), nn.Linear(96, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.stem(x))
        return answer


class Writing(nn.Module):
    """Its head writes into what the stem has made."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(24, 8)
        self.head = Overwriting()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.stem(x))
        return answer


class Overwriting(nn.Module):
    """Doubles its input where it stands."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.last(x.mul_(2.0))
        return answer


class Counting(nn.Module):
    """Answers depend on how often it was called: no part of it may be answered for another."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Counter()
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.stem(x))
        return answer


class Counter(nn.Module):
    """Adds the number of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(24, 8)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        answer: torch.Tensor = self.inner(x) + self.calls
        return answer


class Suspicious(nn.Module):
    """Refuses to be watched: its head raises where a mode of torch is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(24, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (
            torch._C._len_torch_function_stack()
            or torch._C._len_torch_dispatch_stack()
            or float(x.sum()) == 7
        ):
            raise ValueError("watched")
        answer: torch.Tensor = self.head(self.stem(x))
        return answer


def built(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A module whose weights are all different from those of a fresh one."""
    torch.manual_seed(seed)
    module = build()
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * 0.1)
    return module.eval()


def derived(base: nn.Module, changed: Sequence[str], seed: int) -> nn.Module:
    """A copy in which the parameters under some names are others."""
    draw = torch.Generator().manual_seed(seed)
    module = copy.deepcopy(base)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.startswith(tuple(changed)):
                parameter.add_(torch.randn(parameter.shape, generator=draw) * 0.1)
    return module
