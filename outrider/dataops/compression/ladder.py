"""Fixed ladder of smaller and faster variants, each measured and judged beside its champion."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from outrider.assertions import Assertion, Batch
from outrider.assertions.comparison.differences import Ruler
from outrider.behavioral_tests import Outcome, Suite
from outrider.behavioral_tests.running import run_tests
from outrider.dataops.model_kinds.content import FOLDER, pin
from outrider.dataops.model_kinds.loading import is_runner, load_model
from outrider.dataops.model_kinds.runner import Runner
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.errors import ConfigError, OutriderError

from .distillation import Distilling, Masks, distil, raw_answers, student_weights
from .fresh import Fresh, measured_afresh
from .judged import fired, flips, suite_verdict
from .likeness import answer, answers_of, likeness
from .slo import Slo
from .timing import Effort, measure
from .variant import Variant

log = logging.getLogger(__name__)
CHAMPION = "champion"


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to make a variant."""

    name: str
    recipe: tuple[str, ...] = ()
    """Steps at load."""
    learns: bool = False
    """Whether its weights learn the champion's answers to stored traffic; else they are the champion's."""
    needs_cuda: bool = False


SPARSE, STUDENT = "sparse", "distilled"
LADDER = (
    Rung("bf16", ("bf16",)),
    Rung("int8", ("int8_dynamic",)),
    Rung(SPARSE, ("semi_structured",), learns=True, needs_cuda=True),
    Rung("low rank", ("low_rank",), learns=True),
    Rung(STUDENT, learns=True),
)


def _as_it_is(source: Source) -> Source:
    return source


@dataclass(frozen=True, slots=True)
class CompressionTask:
    """Compression task: a champion and the references for its variants."""

    source: Source
    weights: bytes | None
    """``source`` and ``weights``: the champion as it is loaded; weights are None where they lie in the folder
    that the source names."""
    name: str
    """``model@version`` of the champion."""
    folder: Path
    """What relative paths of the source are relative to."""
    records: Batch
    """Stored traffic on which variants are judged."""
    unseen: Batch
    """Other records, on which the chosen one is judged again: the best of many is flattered by the first."""
    traffic: Batch
    """Older traffic that is learned on; may be empty."""
    student: str | None = None
    """``file.py:callable`` of a smaller module, or folder of a smaller Hugging Face model; None for none."""
    ruler: Ruler = field(default_factory=Ruler)
    """What of two answers counts as different."""
    assertions: Sequence[Assertion] = ()
    suites: Sequence[Suite] = ()
    cases: Batch | None = None
    """Records for behavioral tests that have none of their own."""
    distilling: Distilling = field(default_factory=Distilling)
    effort: Effort = field(default_factory=Effort)
    device: str = "cpu"
    opened: Callable[[Source], Source] = _as_it_is
    """Opening of a source's kept folders on this disk."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """Compression of one champion: the variants tried, and the choice."""

    name: str
    device: str
    rows: int
    slo: Slo
    champion: Variant
    variants: Sequence[Variant]
    failed: Mapping[str, str]
    """Why rungs made no variant, by name."""
    refused: Mapping[str, Sequence[str]]
    """Why variants that passed here were refused in the fresh process, by name."""
    chosen: Variant | None
    """The most gainful that keeps every bound, here and in the fresh process; None where none does."""
    confirmed: Variant | None
    """The same with the figures of the fresh process, on unseen records."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can carry."""
        return {
            "model": self.name,
            "device": self.device,
            "rows": self.rows,
            "slo": dict(self.slo.bounds),
            "champion": self.champion.to_dict(self.slo),
            "variants": [each.to_dict(self.slo) for each in self.variants],
            "failed": dict(self.failed),
            "refused": dict(self.refused),
            "chosen": None if self.chosen is None else self.chosen.name,
            "confirmed": None if self.confirmed is None else self.confirmed.to_dict(self.slo),
        }


class Ladder:
    """Makes and judges variants of one champion; ``progress`` is called with lines for people."""

    def __init__(self, task: CompressionTask, *, progress: Callable[[str], None] = log.info) -> None:
        self.task = task
        self._tell = progress
        progress(f"{task.name}: {task.records.rows} records, {sum(len(s.tests) for s in task.suites)} tests")
        self._champion = self.load(task.source, task.weights)
        self._rows = self._champion.encode(task.records)
        self._answers = answers_of(self._champion, task.records, self._rows)
        self._fired = fired(task.assertions, self._answers.first)
        self._fired_again = fired(task.assertions, self._answers.again)
        self._outcomes: list[Outcome] = self._asked(self._champion)
        self.champion = self.judge(CHAMPION, task.source, task.weights)

    def climb(self, slo: Slo, *, rungs: Sequence[Rung] = LADDER) -> Compressed:
        """Try every rung, and confirm the most gainful variant that keeps the objective."""
        variants, failed = [], {}
        for rung in rungs:
            self._tell(rung.name)
            try:
                if rung.needs_cuda and self._champion.device.type != "cuda":
                    raise ConfigError("zeros are skipped by CUDA devices alone: others multiply them, too")
                variants.append(self.judge(rung.name, *self.make(rung)))
            except (ConfigError, RuntimeError, ValueError, NotImplementedError) as error:
                log.debug("%s", rung.name, exc_info=True)
                failed[rung.name] = str(error).partition("\n")[0]
        refused: dict[str, list[str]] = {}
        chosen = confirmed = None
        passing = [each for each in variants if each.is_useful and not slo.missed(each.figures)]
        for variant in sorted(passing, key=lambda each: each.gain, reverse=True):
            self._tell(f"{variant.name}: measured again in a fresh process")
            try:
                again = self._confirm(variant)
            except OutriderError as error:
                refused[variant.name] = [str(error)]
                continue
            if not (missed := slo.missed(again.figures)):
                chosen, confirmed = variant, again
                break
            refused[variant.name] = missed
        return Compressed(
            self.task.name,
            self.task.device,
            self.task.records.rows,
            slo,
            self.champion,
            variants,
            failed,
            refused,
            chosen,
            confirmed,
        )

    def judge(self, name: str, source: Source, weights: bytes | None) -> Variant:
        """Measure and judge a version beside the champion, loaded as the service does."""
        task, records = self.task, self.task.records
        runner, rows, beside, outcomes = self._champion, self._rows, None, self._outcomes
        if name != CHAMPION:
            runner, beside = self.load(source, weights), (runner, rows)
            rows, outcomes = runner.encode(records), self._asked(runner)
        answers = answers_of(runner, records, rows)
        return Variant(
            name,
            source,
            weights,
            measure(runner, records, rows, task.effort, champion=beside),
            likeness(self._answers, answers, task.ruler),
            flips(self._fired, self._fired_again, fired(task.assertions, answers.first)),
            suite_verdict(self._outcomes, outcomes),
        )

    def make(self, rung: Rung) -> tuple[Source, bytes | None]:
        """Source and weights of a rung's variant, as the registry keeps them.

        Raises
        ------
        ConfigError
            If this model or device has no use for them.
        """
        source = dataclasses.replace(
            self.task.source,
            recipe=(*self.task.source.recipe, *rung.recipe),
            adapted_from=self.task.name,
            shares=(),
        )
        if not rung.learns:
            return source, self.task.weights
        if self.task.source.adapter or "adapter" in self.task.source.kept:
            raise ConfigError(f"{self.task.name} has an adapter: its weights are two, and stay as they are")
        if not self.task.traffic.rows:
            raise ConfigError("there is no older traffic to learn on: all of it is kept for judging")
        weights = self.task.weights
        if rung.name == STUDENT:
            source = self._student()
            weights = student_weights(source, self.task.folder, seed=self.task.distilling.seed)
        runner = self.load(dataclasses.replace(source, recipe=rung.recipe), weights)
        masks = make_two_of_four(runner.module) if rung.name == SPARSE else {}
        return source, dump_weights(self._learned(rung, runner, masks))

    def load(self, source: Source, weights: bytes | None) -> Runner:
        """Load a version as the service does.

        Raises
        ------
        ConfigError
            If it is no model of tensors.
        """
        opened = self.task.opened(source)
        found = load_model(opened, folder=self.task.folder, weights=weights, device=self.task.device)
        if not is_runner(found):
            raise ConfigError(
                f"{self.task.name}: only torch modules and Hugging Face folders can be compressed, "
                f"this is of kind {source.kind!r}"
            )
        return found

    def _confirm(self, variant: Variant) -> Variant:
        task, was = self.task, variant.cost
        answers = answers_of(self._champion, task.unseen, self._champion.encode(task.unseen))
        asked = Fresh(
            task.opened(variant.source),
            variant.weights,
            task.folder,
            answers.first.to_ipc(),
            answers.again.to_ipc(),
            task.ruler,
            dataclasses.replace(
                task.effort, calls=3 * task.effort.calls, latency_s=3 * task.effort.latency_s
            ),
            task.device,
            torch.get_num_threads(),
        )
        cost, like, resident_mb = measured_afresh(asked)
        cost = dataclasses.replace(
            cost, speed=was.speed, latency_speed=was.latency_speed, smaller=was.smaller
        )
        return dataclasses.replace(variant, cost=cost, likeness=like, resident_mb=resident_mb)

    def _student(self) -> Source:
        if self.task.student is None:
            raise ConfigError("there is no smaller architecture: --student names one")
        options = {name: value for name, value in self.task.source.options.items() if name != FOLDER}
        student = dataclasses.replace(
            self.task.source,
            reference=self.task.student,
            recipe=(),
            adapted_from=None,
            shares=(),
            options=options,
            kept={},
        )
        return pin(student, self.task.folder)  # its folder holds something else than the champion's

    def _learned(self, rung: Rung, runner: Runner, masks: Masks) -> Mapping[str, torch.Tensor]:
        return distil(
            runner,
            runner.encode(self.task.traffic),
            self._taught,
            self.task.distilling,
            is_classifier=self.task.source.task == "classification",
            masks=masks,
            progress=lambda epoch, loss: self._tell(f"{rung.name}: epoch {epoch}, loss {loss:.4f}"),
        )

    @cached_property
    def _taught(self) -> torch.Tensor:
        return raw_answers(self._champion, self._champion.encode(self.task.traffic))

    def _asked(self, runner: Runner) -> list[Outcome]:
        def predictor(batch: Batch) -> Mapping[str, Any]:
            return answer(runner, runner.encode(batch)) if batch.rows else runner.decode({})

        # Every case is asked, so that models can be compared.
        tests = (dataclasses.replace(t, stop="never") for suite in self.task.suites for t in suite.tests)
        return run_tests(tests, predictor, cases=self.task.cases, seed=self.task.distilling.seed)


def make_two_of_four(module: torch.nn.Module) -> Masks:
    """Zero the smaller two of every four weights of a row, in place, and return what stays.

    Layers whose rows are no multiple of four stay whole.

    References
    ----------
    Mishra et al., "Accelerating Sparse Deep Neural Networks", 2021.
    """
    masks = {}
    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.Linear) and layer.weight.shape[1] % 4 == 0:
            fours = layer.weight.detach().abs().reshape(-1, 4)
            kept = torch.zeros(fours.shape, dtype=torch.bool, device=fours.device)
            kept.scatter_(1, fours.argsort(dim=1, descending=True, stable=True)[:, :2], value=True)
            masks[f"{name}.weight" if name else "weight"] = kept.reshape(layer.weight.shape)
            with torch.no_grad():
                layer.weight.mul_(kept.reshape(layer.weight.shape))
    return masks
