"""Test bench: variants as the service loads them, beside the champion."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from outrider.assertions import Assertion, Batch
from outrider.assertions.comparison.differences import Ruler
from outrider.behavioral_tests import Suite
from outrider.dataops.model_kinds.content import FOLDER, pin
from outrider.dataops.model_kinds.loading import is_runner, load_model
from outrider.dataops.model_kinds.runner import EncodedRows, Runner
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import dump_weights
from outrider.errors import ConfigError

from .answering import InBatches, answer
from .distillation import Distilling, distil, raw_answers, student_weights
from .evaluated import Evaluated
from .fresh_measurement import Confirmed, ask_fresh
from .judged import fired, flips, run_suites, suite_verdict
from .likeness import likeness
from .pruning import Masks, prune, zero_share
from .timing import Cost, Effort, measure
from .variant import CHAMPION, SAME, STUDENT, Variant

log = logging.getLogger(__name__)
AGAIN_ROWS = 17
"""Batch size of the champion's second answers: another shape, so other rounding."""


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
    traffic: Batch | None = None
    """Older traffic that is distilled on; may be empty."""
    student: str | None = None
    """``file.py:callable`` of a smaller module, or folder of a smaller Hugging Face model; None for none."""
    given: Mapping[str, Path] = field(default_factory=dict)
    """Weights that somebody made elsewhere, by name, as safetensors of the champion's architecture."""
    ruler: Ruler = field(default_factory=Ruler)
    """What of two answers counts as different."""
    assertions: Sequence[Assertion] = ()
    suites: Sequence[Suite] = ()
    cases: Batch | None = None
    """Records for behavioral tests that have none of their own."""
    distilling: Distilling = field(default_factory=Distilling)
    effort: Effort = field(default_factory=Effort)
    device: str = "cpu"
    seed: int = 0
    opened: Callable[[Source], Source] = _as_it_is
    """Opening of a source's kept folders on this disk."""


class Bench:
    """Bench that evaluates variants beside one champion.

    Parameters
    ----------
    progress
        Called with a line for people as the work goes on.
    """

    def __init__(self, task: CompressionTask, *, progress: Callable[[str], None] = log.info) -> None:
        self.task = task
        self._tell = progress
        progress(f"{task.name}: {task.records.rows} records, {sum(len(s.tests) for s in task.suites)} tests")
        self._champion = self.load(task.source, task.weights)
        self._rows = self._champion.encode(task.records)
        again = answer(self._champion, self._rows, batch_rows=AGAIN_ROWS, by_length=False)
        self._answers = task.records.with_outputs(answer(self._champion, self._rows))
        self._again = task.records.with_outputs(again)
        self._fired = fired(task.assertions, self._answers)
        self._fired_again = fired(task.assertions, self._again)
        self._outcomes = self._asked(self._champion)
        self._made: dict[tuple[str, bool], bytes | None] = {CHAMPION.made: task.weights}
        self._taught: torch.Tensor | None = None

    def champion(self) -> Evaluated:
        """The champion by the same measures."""
        cost = measure(
            self._champion, None, self.task.records, self._rows, self.task.effort, beside_rows=None
        )
        return self._judged(CHAMPION, self._champion, cost)

    def evaluate(self, variant: Variant) -> Evaluated:
        """Make, load, measure and judge a variant; failures carry reasons."""
        self._tell(variant.name)
        try:
            weights = self.weights(variant)
            runner = self.load(self.source(variant), weights)
            rows = self._rows if variant.weights != STUDENT else runner.encode(self.task.records)
            cost = measure(
                runner, self._champion, self.task.records, rows, self.task.effort, beside_rows=self._rows
            )
            return self._judged(variant, runner, cost)
        except (ConfigError, RuntimeError, ValueError, NotImplementedError) as error:
            log.debug("%s", variant.name, exc_info=True)
            return Evaluated(variant, failure=str(error).partition("\n")[0])

    def confirm(self, variant: Variant, unseen: Batch) -> Confirmed:
        """Figures of a variant from a fresh process, on other records.

        Raises
        ------
        OutriderError
            If that process fails.
        """
        rows = self._champion.encode(unseen)
        again = answer(self._champion, rows, batch_rows=AGAIN_ROWS, by_length=False)
        return ask_fresh(
            self.task.opened(self.source(variant)),
            self.weights(variant),
            folder=self.task.folder,
            champion=unseen.with_outputs(answer(self._champion, rows)),
            again=unseen.with_outputs(again),
            ruler=self.task.ruler,
            again_rows=AGAIN_ROWS,
            effort=dataclasses.replace(
                self.task.effort,
                calls=3 * self.task.effort.calls,
                latency_s=3 * self.task.effort.latency_s,
            ),
            device=self.task.device,
        )

    def source(self, variant: Variant) -> Source:
        """Source of the variant, as the registry keeps one."""
        source = self.task.source
        made = dataclasses.replace(
            source, recipe=(*source.recipe, *variant.recipe), adapted_from=self.task.name, shares=()
        )
        if variant.weights != STUDENT:
            return made
        assert self.task.student is not None
        options = {name: value for name, value in source.options.items() if name != FOLDER}
        student = dataclasses.replace(
            made, reference=self.task.student, adapted_from=None, options=options, kept={}
        )
        return pin(student, self.task.folder)  # its folder holds something else than the champion's

    def weights(self, variant: Variant) -> bytes | None:
        """Safetensors of a variant, made once.

        None for the champion's where they lie in its folder.
        """
        if variant.made not in self._made:
            self._made[variant.made] = self._make(variant)
        return self._made[variant.made]

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

    # ---- making ------------------------------------------------------------------------------------------

    def _make(self, variant: Variant) -> bytes:
        if self.task.source.adapter or "adapter" in self.task.source.kept:
            raise ConfigError(
                f"{self.task.name} has an adapter: its weights are two, and only recipes are tried"
            )
        if variant.weights in self.task.given:
            return self.task.given[variant.weights].read_bytes()
        if variant.weights == STUDENT:
            return self._student(variant)
        runner = self.load(dataclasses.replace(self.task.source, recipe=()), self.task.weights)
        masks: Masks | None = None
        if variant.weights != SAME:
            masks = prune(runner.module, variant.weights)
        if variant.is_distilled:
            return dump_weights(self._learned(runner, variant, masks))
        return dump_weights(runner.module.state_dict())

    def _student(self, variant: Variant) -> bytes:
        source = dataclasses.replace(self.source(variant), recipe=())
        runner = self.load(source, student_weights(source, self.task.folder, seed=self.task.seed))
        return dump_weights(self._learned(runner, variant, None))

    def _learned(self, runner: Runner, variant: Variant, masks: Masks | None) -> Mapping[str, torch.Tensor]:
        traffic = self.task.traffic
        if traffic is None or not traffic.rows:
            raise ConfigError("there is no older traffic to distil on: all of it is kept for judging")
        if self._taught is None:
            self._taught = raw_answers(self._champion, self._champion.encode(traffic))
        return distil(
            runner,
            runner.encode(traffic),
            self._taught,
            self.task.distilling,
            is_classifier=self.task.source.task == "classification",
            masks=masks,
            progress=lambda epoch, loss: self._tell(f"{variant.name}: epoch {epoch}, loss {loss:.4f}"),
        )

    # ---- judging -----------------------------------------------------------------------------------------

    def _judged(self, variant: Variant, runner: Runner, cost: Cost) -> Evaluated:
        rows: EncodedRows = self._rows if variant.weights != STUDENT else runner.encode(self.task.records)
        answers = self.task.records.with_outputs(answer(runner, rows))
        again = answer(runner, rows, batch_rows=AGAIN_ROWS, by_length=False)
        found = fired(self.task.assertions, answers)
        verdict = None
        if self._outcomes:
            own = self._outcomes if variant == CHAMPION else self._asked(runner)
            verdict = suite_verdict(self._outcomes, own)
        return Evaluated(
            variant,
            cost=cost,
            likeness=likeness(
                self._answers,
                self._again,
                answers,
                self.task.records.with_outputs(again),
                self.task.ruler,
            ),
            flips=flips(self._fired, self._fired_again, found),
            suites=verdict,
            zeros=zero_share(runner.module) if variant.is_pruned and not variant.recipe else 0.0,
        )

    def _asked(self, runner: Runner) -> list[Any]:
        predictor = InBatches(runner)
        return run_suites(self.task.suites, predictor, cases=self.task.cases, seed=self.task.seed)
