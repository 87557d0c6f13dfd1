"""Model in production: a small convolutional network for digits.

Of 8 by 8 pixels.
"""

import torch
from torch import nn
from torch.nn import functional


class DigitNet(nn.Module):
    """Network from images (rows, 8, 8) to logits (rows, 10). Ink is 1.0 on ground 0.0."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.hidden = nn.Linear(32 * 4 * 4, 128)
        self.out = nn.Linear(128, 10)

    def forward(self, x):
        """Logits of a batch."""
        x = (x[:, None] - 0.5) * 2  # (rows, 1, 8, 8)
        x = functional.relu(self.conv1(x))  # (rows, 16, 8, 8)
        x = functional.relu(self.conv2(x))  # (rows, 32, 4, 4)
        return self.out(functional.relu(self.hidden(x.flatten(1))))


class SmallNet(nn.Module):
    """Challenger with a twentieth of the weights. Images (rows, 8, 8) to logits (rows, 10)."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 40)
        self.out = nn.Linear(40, 10)

    def forward(self, x):
        """Logits of a batch."""
        return self.out(functional.relu(self.hidden((x.flatten(1) - 0.5) * 2)))


def augment(x, generator):
    """Augmentation of an image in retraining: a shift and noise.

    By up to a column, two times in three.

    Nothing here knows how cameras fail.
    """
    moved = torch.rand(len(x), generator=generator) < 0.67
    side = torch.randint(0, 2, (len(x),), generator=generator) * 2 - 1
    shift = torch.where(moved, side, torch.zeros_like(side))
    columns = (torch.arange(8)[None] + shift[:, None]).clamp(0, 7)  # the edge is repeated
    x = x.gather(2, columns[:, None, :].expand(-1, 8, -1))
    return x + 0.08 * torch.randn(x.shape, generator=generator)
