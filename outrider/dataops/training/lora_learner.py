"""LoRA of a classifier or regression over a frozen base."""

import dataclasses
from pathlib import Path

import torch

from outrider.dataops.model_kinds.adapter import read_adapter
from outrider.dataops.model_kinds.content import ADAPTER, check_pins
from outrider.dataops.model_kinds.hf import load_hf
from outrider.dataops.model_kinds.runner import Runner
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.torch_models import pick_device

from .adapter_module import AdapterModule, NewAdapter
from .answering import AnswerLearner, check_task, load_runner, note_of
from .trainer import TrainedModel, TrainingTask

FOLDER = "adapter"
"""Folder of the trained adapter in a task's work folder."""


class LoraLearner(AnswerLearner):
    def __init__(
        self,
        runner: Runner,
        low: AdapterModule,
        source: Source,
        *,
        target: str,
        weights: bytes | None,
        note: str = "",
    ) -> None:
        super().__init__(runner, source, target=target, note=note)
        self._low, self._weights = low, weights

    def trained(self, work: Path, /) -> TrainedModel:
        files = self._low.write(work / FOLDER, base=self._source.reference)
        return TrainedModel(self._source, weights=self._weights, files=files, note=self._note)


def lora_learner(task: TrainingTask) -> LoraLearner:
    check_task(task)
    runner = load_base(task)
    low = adapter_of(task, runner.module)
    source = adapted_source(task.source)
    return LoraLearner(runner, low, source, target=task.target, weights=task.weights, note=adapter_note(task))


def load_base(task: TrainingTask) -> Runner:
    """Base of the champion, with the head of its adapter's width."""
    source = task.source
    if not _is_continued(task):
        return load_runner(task, dataclasses.replace(source, adapter=None))
    check_pins(source, task.base)
    plain = dataclasses.replace(source, adapter=None, recipe=())
    if source.kind != "hf":
        return load_runner(task, plain)
    replaced = read_adapter(adapter_folder(task)).replaced
    runner = load_hf(plain, task.base, task.weights, replaced=replaced)
    runner.device = pick_device(task.device)
    runner.module = runner.module.to(runner.device)
    return runner


def adapter_of(task: TrainingTask, module: torch.nn.Module) -> AdapterModule:
    if _is_continued(task):
        return AdapterModule.continued(module, adapter_folder(task))
    return AdapterModule.new(module, new_adapter(task), seed=task.seed)


def adapter_note(task: TrainingTask) -> str:
    return note_of(task, "adapter continued from" if _is_continued(task) else "new adapter over")


def new_adapter(task: TrainingTask) -> NewAdapter:
    given = task.options.get("lora") or {}
    known = {field.name for field in dataclasses.fields(NewAdapter)}
    named = {name: value for name, value in given.items() if name in known and value is not None}
    if "layers" in named:
        named["layers"] = tuple(named["layers"])
    return NewAdapter(**named)


def adapter_folder(task: TrainingTask) -> Path:
    return (task.base / (task.source.adapter or "")).resolve()


def adapted_source(source: Source) -> Source:
    """Source of a version whose adapter lies in files of its own."""
    options = {name: value for name, value in source.options.items() if name != ADAPTER}
    return dataclasses.replace(source, adapter=None, options=options)


def _is_continued(task: TrainingTask) -> bool:
    """A training from scratch begins a new adapter."""
    return task.champion is not None and task.source.adapter is not None
