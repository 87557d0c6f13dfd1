"""Processes that train one model together, as ``torchrun`` starts them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from .order import Places
from .trainer import ModelLearner, StepExamples


@dataclass(frozen=True, slots=True)
class Ranks:
    rank: int = 0
    ranks: int = 1

    @classmethod
    def of_environment(cls) -> "Ranks":
        """Joins the group of ``torchrun``, if any."""
        if "TORCHELASTIC_RUN_ID" not in os.environ:  # WORLD_SIZE alone may be that of somebody else's job
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        return cls(dist.get_rank(), dist.get_world_size())

    def share(self, order: Places, ends: Sequence[int]) -> tuple[Places, Sequence[int]]:
        """Rows of this rank. Steps with too few rows repeat the last one."""
        if self.ranks == 1:
            return order, ends
        steps = [
            order[start + min(self.rank, end - start - 1) : end : self.ranks]
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        return np.concatenate(steps), np.cumsum([len(rows) for rows in steps]).tolist()

    def mean(self, losses: torch.Tensor, rows: int) -> torch.Tensor:
        """Share of this rank in a step's mean, as gradients are averaged."""
        if self.ranks == 1:
            return losses.mean()
        if self.rank >= rows:  # its row is another rank's
            losses = losses * 0.0
        return losses.sum() * (self.ranks / rows)

    def wrapped(self, learner: ModelLearner) -> Callable[[StepExamples], torch.Tensor]:
        """Losses of the learner, whose gradients are averaged over all ranks."""
        if self.ranks == 1:
            return learner.losses
        return torch.nn.parallel.DistributedDataParallel(_Losses(learner))

    def agreed(self, value: float) -> float:
        if self.ranks == 1:
            return value
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        shared = torch.tensor([value], dtype=torch.float64, device=device)
        dist.broadcast(shared, 0)
        return float(shared[0])


class _Losses(torch.nn.Module):
    """Module for DistributedDataParallel, which averages gradients."""

    def __init__(self, learner: ModelLearner) -> None:
        super().__init__()
        self.learned = learner.module
        self._losses = learner.losses

    def forward(self, examples: StepExamples) -> torch.Tensor:
        return self._losses(examples)
