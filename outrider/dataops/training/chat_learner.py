"""LoRA of a causal language model, on corrected answers or preferences."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch

from outrider.assertions import Batch
from outrider.dataops.model_kinds.hf import HfRunner
from outrider.dataops.model_kinds.hf_tasks import Scoring
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.model_kinds.texts import texts_of
from outrider.errors import ConfigError, ValidationRefused

from .adapter_module import AdapterModule
from .answering import trimmed
from .improving import improve
from .lora_learner import FOLDER, adapted_source, adapter_note, adapter_of, load_base
from .targets import label_column
from .trainer import Report, StepExamples, TrainedModel, TrainingTask

Objective = Literal["sft", "dpo"]
CHOSEN, REJECTED = "chosen.", "rejected."
"""Prefixes of the tensors of the corrected answer, and of the model's own."""
NEW_TOKENS = 32
"""Tokens that serving writes unless ``max_new_tokens`` says otherwise."""


class ChatLearner:
    """Language model that learns corrected answers (sft) or to prefer them (dpo).

    The loss is the mean negative log-probability of the answer's tokens, or
    ``-log sigmoid(beta * (log p/p0(corrected) - log p/p0(own)))``, where p0 is the same module with the
    adapter as it was at the start. Rafailov et al., "Direct Preference Optimization", NeurIPS 2023, eq. 7.
    """

    def __init__(
        self,
        runner: HfRunner,
        low: AdapterModule,
        source: Source,
        *,
        target: str,
        weights: bytes | None = None,
        objective: Objective = "sft",
        beta: float = 0.1,
        note: str = "",
    ) -> None:
        self.module = low.module
        self._runner, self._low, self._source = runner, low, source
        self._target, self._weights, self._note = target, weights, note
        self._prefers, self._beta = objective == "dpo", beta
        self._answer = str(source.options.get("output", "text"))
        self._most = int(source.options.get("max_new_tokens", NEW_TOKENS))
        self._start = low.start() if self._prefers else {}
        self._scoring = Scoring()
        self.module.train()

    @property
    def columns(self) -> list[str]:
        own = [f"outputs.{self._answer}"] if self._prefers else []
        inputs = [f"inputs.{name}" for name in self._runner.encoder.inputs]
        return [*inputs, f"label.{self._target}", *own]

    def encode(self, rows: Batch, /) -> StepExamples:
        found = self._written(rows, label_column(rows, self._target), CHOSEN)
        if self._prefers:
            found |= self._written(rows, f"outputs.{self._answer}", REJECTED)
        return StepExamples(found, rows.rows)

    def losses(self, examples: StepExamples, /) -> torch.Tensor:
        chosen = self._part(examples, CHOSEN)
        scores = self._scoring.run(self.module, chosen)
        if not self._prefers:
            return -scores["logprob"] / scores["tokens"].clamp(min=1)
        rejected = self._part(examples, REJECTED)
        other = self._scoring.run(self.module, rejected)["logprob"]
        before = self._before(chosen) - self._before(rejected)
        margin = scores["logprob"] - other - before
        return -torch.nn.functional.logsigmoid(self._beta * margin)

    def trained(self, work: Path, /) -> TrainedModel:
        files = self._low.write(work / FOLDER, base=self._source.reference)
        return TrainedModel(self._source, weights=self._weights, files=files, note=self._note)

    def _written(self, rows: Batch, column: str, prefix: str) -> dict[str, torch.Tensor]:
        """Prompts with answers appended; only the answers' tokens are scored."""
        encoder = self._runner.encoder
        encoded = encoder.encode(rows)
        assert encoded.lengths is not None
        ids = encoded.tensors["input_ids"].tolist()
        prompts = [row[:length] for row, length in zip(ids, encoded.lengths, strict=True)]
        texts = _answers(rows, column)
        asked = texts_of(rows, encoder.inputs[0])
        whole = [encoder.answered(prompt, text) for prompt, text in zip(asked, texts, strict=True)]
        answers = encoder.tokenizer(whole, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        answers = [answer[: self._most] for answer in answers]
        made = encoder.rows(
            {
                "input_ids": [a + b for a, b in zip(prompts, answers, strict=True)],
                "scored": [[0] * len(a) + [1] * len(b) for a, b in zip(prompts, answers, strict=True)],
            }
        )
        return {f"{prefix}{name}": tensor for name, tensor in made.tensors.items()}

    def _part(self, examples: StepExamples, prefix: str) -> dict[str, torch.Tensor]:
        named = examples.tensors.items()
        own = {name.removeprefix(prefix): t for name, t in named if name.startswith(prefix)}
        return trimmed(own, self._runner.device)

    def _before(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        def module(**arguments: Any) -> Any:
            return torch.func.functional_call(self.module, self._start, (), arguments)

        with torch.no_grad(), _evaluating(self.module):
            return self._scoring.run(module, tensors)["logprob"]


def train_chat(task: TrainingTask, report: Report) -> TrainedModel:
    learner = chat_learner(task)
    return improve(learner, task, report, columns=learner.columns)


def chat_learner(task: TrainingTask) -> ChatLearner:
    if task.source.kind != "hf" or task.source.task != "generation":
        raise ConfigError(
            f"{task.model}: a Hugging Face folder with task 'generation' expected, got {task.source.kind} "
            f"with task {task.source.task!r}"
        )
    runner = load_base(task)
    assert isinstance(runner, HfRunner)
    return ChatLearner(
        runner,
        adapter_of(task, runner.module),
        adapted_source(task.source),
        target=task.target,
        weights=task.weights,
        objective=task.options.get("objective") or "sft",
        beta=float(task.options.get("beta") or 0.1),
        note=adapter_note(task),
    )


def _answers(rows: Batch, column: str) -> list[str]:
    found: list[Any] = rows.arrow(column).to_pylist() if rows.has(column) else [None] * rows.rows
    for row, value in enumerate(found):
        if not isinstance(value, str):
            raise ValidationRefused(
                f"record {rows.keys[row]!r}: {column}: the text of an answer expected, got {value!r:.80}; "
                "withdraw the label, or learn answers alone with objective = 'sft'"
            )
    return found


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    trained = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in trained:
            part.training = True
