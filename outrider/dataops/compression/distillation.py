"""Distillation: train a module on the champion's answers, without labels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from outrider.dataops.model_kinds.runner import EncodedRows, Runner
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights, load_architecture
from outrider.errors import ConfigError

OUT = "out"
"""Name of the raw answers that are learned: logits of a classifier, values of others."""
BATCH_ROWS, TEMPERATURE = 32, 2.0
Masks = Mapping[str, torch.Tensor]
"""By name of a parameter: where its weights stay, bool of its shape."""


@dataclass(frozen=True, slots=True)
class Distilling:
    """Length, rate and seed of training."""

    epochs: int = 3
    learning_rate: float = 3e-4
    seed: int = 0


def raw_answers(runner: Runner, rows: EncodedRows, *, batch_rows: int = 64) -> torch.Tensor:
    """Undecoded answers of a model, on the CPU, shape (rows, …).

    Raises
    ------
    ConfigError
        If its task has no such answers: tokens, scoring and generation are decided inside of ``run``.
    """
    parts = []
    with torch.inference_mode():
        for start in range(0, rows.count, batch_rows):
            fed = rows.slice(start, start + batch_rows).tensors
            answers = runner.run({name: tensor.to(runner.device) for name, tensor in fed.items()})
            if OUT not in answers:
                raise ConfigError(
                    f"distillation is for classes and values: this task has {', '.join(answers)} alone"
                )
            parts.append(answers[OUT].float().cpu())
    return torch.cat(parts)


def distil(
    student: Runner,
    rows: EncodedRows,
    taught: torch.Tensor,
    options: Distilling,
    *,
    is_classifier: bool,
    masks: Masks,
    progress: Callable[[int, float], None],
) -> Mapping[str, torch.Tensor]:
    """Train a module on the champion's raw answers to the same rows, and return its state on the CPU.

    Adam, with its rate falling to zero as a half cosine. What is masked stays zero. Equal for equal
    arguments on the CPU. ``progress`` gets each epoch's number (from 1) and mean loss.

    References
    ----------
    Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015, without hard labels.
    """
    module, device = student.module, student.device
    taught = taught.to(device)
    loss_of = SoftClasses(TEMPERATURE) if is_classifier else ScaledValues(taught)
    steps = options.epochs * -(-rows.count // BATCH_ROWS)
    draw = np.random.default_rng(options.seed)
    module.requires_grad_(True).train()
    optimiser = torch.optim.Adam(module.parameters(), lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=steps)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)  # for dropout
        for epoch in range(1, options.epochs + 1):
            total = 0.0
            for chunk in np.array_split(draw.permutation(rows.count), -(-rows.count // BATCH_ROWS)):
                fed = {name: tensor.to(device) for name, tensor in rows.take(chunk).tensors.items()}
                out = student.run(fed)[OUT]
                wanted = taught[torch.from_numpy(chunk).to(device)]
                if out.shape != wanted.shape:
                    raise ConfigError(
                        f"the student answers {tuple(out.shape[1:])} a record, the champion "
                        f"{tuple(wanted.shape[1:])}: both must answer alike"
                    )
                optimiser.zero_grad()
                loss = loss_of(out, wanted).mean()
                loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation here
                optimiser.step()
                schedule.step()
                with torch.no_grad():
                    for name, keep in masks.items():
                        module.get_parameter(name).mul_(keep)
                total += float(loss.detach()) * len(chunk)
            progress(epoch, total / rows.count)
    module.eval().requires_grad_(False)
    return {name: tensor.detach().cpu().clone() for name, tensor in module.state_dict().items()}


class SoftClasses:
    """Kullback-Leibler divergence of softened classes, shape (rows,).

    Times the square of the temperature.
    """

    def __init__(self, temperature: float) -> None:
        self._t = temperature

    def __call__(self, out: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
        """Loss of each row."""
        ours = torch.log_softmax(out.float() / self._t, dim=1)
        theirs = torch.log_softmax(taught / self._t, dim=1)
        both = torch.nn.functional.kl_div(ours, theirs, reduction="none", log_target=True)
        return both.flatten(1).sum(1) * self._t**2


class ScaledValues:
    """Squared error in units of the champion's own variance, shape (rows,).

    Parameters
    ----------
    taught
        Answers of the champion that the variance is of.
    """

    def __init__(self, taught: torch.Tensor) -> None:
        self._scale = float(taught.var(unbiased=False).clamp_min(1e-12))

    def __call__(self, out: torch.Tensor, taught: torch.Tensor) -> torch.Tensor:
        """Loss of each row."""
        errors = torch.nn.functional.mse_loss(out.float(), taught, reduction="none")
        return errors.reshape(len(errors), -1).mean(1) / self._scale


def student_weights(source: Source, folder: Path, *, seed: int) -> bytes | None:
    """Initial weights of a student: new ones by the seed.

    None for those of its folder.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if source.kind == "torch":
            return dump_weights(load_architecture(source.reference, folder)().state_dict())
        path = folder / source.reference
        if any(path.glob("*.safetensors")):
            return None
        from transformers import AutoConfig, AutoModelForSequenceClassification

        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        fresh = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]  # not annotated
        return dump_weights(fresh.state_dict())
