"""Client of local models, each in its own engine process."""

import json
import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests.asking.server import Fate
from outrider.dataops.model_kinds.source import Source, Task
from outrider.errors import ConfigError
from outrider.monitor.engine.asks import LATE
from outrider.monitor.engine.client import Making
from outrider.monitor.engine.device_options import DeviceOptions
from outrider.monitor.engine.launch import Launch
from outrider.monitor.engine.single_version import SingleVersion
from outrider.monitor.intake.protocols.chat_columns import input_fields

from .answers import Answers, GatheredAnswers
from .questions import REQUEST
from .records_asker import only_inputs

BLOCK, AHEAD = 4096, 2
"""Maximum number of records per request to the engine, and requests in flight: one is sent while another
is answered."""
SEARCHES = 14
"""Maximum number of bisections, in all, to find records that crash or hang a model."""
_VERSION = "1"
_TASKS: Mapping[str, Task] = {
    "ForSequenceClassification": "classification",
    "ForTokenClassification": "tokens",
    "ForCausalLM": "generation",
    "LMHeadModel": "generation",
    "SEQ_CLS": "classification",
    "TOKEN_CLS": "tokens",
    "CAUSAL_LM": "generation",
    "FEATURE_EXTRACTION": "embedding",
}


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Local model; ``sources`` are tried in order until one loads."""

    folder: Path
    sources: tuple[Source, ...]
    needs_text: bool = False


def local_model(text: str, folder: Path, *, base: Path | None = None) -> LocalModel:
    """Model of a folder, an adapter, an ONNX file or ``file.py:callable``; ``base`` is the fallback
    for an adapter's base model."""
    file, _, name = text.rpartition(":")
    if file.endswith(".py") and name:
        if not (folder / file).is_file():
            raise ConfigError(f"{file} does not exist; file.py:callable expected")
        return LocalModel(folder, (Source("function", text, task="other"),))
    path = (folder / text).resolve()
    if path.suffix == ".onnx" and path.is_file():
        kinds: tuple[Task, ...] = ("classification", "other")
        return LocalModel(folder, tuple(Source("onnx", str(path), task=task) for task in kinds))
    if (path / "adapter_config.json").is_file():
        about = _json(path / "adapter_config.json")
        under = _base_of(path, about, base)
        task = _TASKS.get(str(about.get("task_type"))) or _task_of(under)
        return LocalModel(folder, (Source("hf", str(under), task=task, adapter=str(path)),), needs_text=True)
    if (path / "config.json").is_file():
        return LocalModel(folder, (Source("hf", str(path), task=_task_of(path)),), needs_text=True)
    there = "a folder without config.json" if path.is_dir() else "nothing there"
    raise ConfigError(
        f"{text}: {there}; an http address, a Hugging Face folder, an adapter folder, a file .onnx, "
        "file.py:callable or prompt.md expected"
    )


class LocalAsker:
    """Local model in its own process, loaded with the first questions, whose columns become its inputs."""

    def __init__(self, name: str, model: LocalModel, *, deadline_s: float) -> None:
        self.name = name
        self.borrowed: Counter[str] = Counter()
        self.retries = 0
        self._model = model
        self._deadline_s = deadline_s
        self._version: SingleVersion | None = None
        self._searches = SEARCHES

    def ask(self, questions: Batch, /) -> Answers:
        batch = with_fields(only_inputs(questions))
        self._version = version = self._version or self._load(batch)
        gathered = GatheredAnswers(questions)
        is_talk = questions.has(REQUEST)
        asked: deque[tuple[int, range]] = deque()
        for start in range(0, batch.rows, BLOCK):
            rows = range(start, min(start + BLOCK, batch.rows))
            asked.append((_send(version, batch, rows), rows))
            if len(asked) >= AHEAD:
                self._take(version, batch, *asked.popleft(), gathered, is_talk=is_talk)
        while asked:
            self._take(version, batch, *asked.popleft(), gathered, is_talk=is_talk)
        return gathered.answers()

    def close(self) -> None:
        if self._version is not None:
            self._version.stop()

    def _load(self, batch: Batch) -> SingleVersion:
        field = (text_field(batch, self.name),) if self._model.needs_text else ()
        threads = max(1, len(os.sched_getaffinity(0)) // 2)
        launch = Launch(self._model.folder, DeviceOptions(threads=threads).to_json(), threads)
        failure: ConfigError | None = None
        for source in self._model.sources:
            fed = source if not field else Source.from_json(_with_inputs(source, field))
            try:
                return SingleVersion(
                    (self.name, _VERSION), Making(fed), launch, deadline_s=self._deadline_s
                ).loaded()
            except ConfigError as error:
                failure = error
        raise ConfigError(f"{self.name} cannot be loaded: {failure}")

    def _take(
        self,
        version: SingleVersion,
        batch: Batch,
        number: int,
        rows: range,
        gathered: GatheredAnswers,
        *,
        is_talk: bool,
    ) -> bool:
        """Collect a block's answers; False if the model crashed or hung, in which case the block
        is bisected to save the other answers."""
        answer = version.take(number)
        if answer.outputs is None:
            is_end = "process" in answer.failure or "within" in answer.failure
            if is_end and len(rows) > 1 and self._searches > 0:
                self._searches -= 1
                middle = (rows.start + rows.stop) // 2
                halves = (range(rows.start, middle), range(middle, rows.stop))
                is_well = []
                for half in halves:
                    number = _send(version, batch, half)
                    is_well.append(self._take(version, batch, number, half, gathered, is_talk=is_talk))
                if not any(is_well):  # both halves fail: no single record is at fault
                    self._searches = 0
                return False
            gathered.missing(rows, fate_of(answer.failure), answer.failure)
            return not is_end
        outputs = _as_talk(answer.outputs) if is_talk else answer.outputs
        poison = {each.row: each.detail for each in answer.poison}
        kept = np.arange(len(rows))
        if poison:
            kept = np.setdiff1d(kept, [*poison])
            outputs = {name: np.asarray(values)[kept] for name, values in outputs.items()}
        if len(kept):
            gathered.answered(rows.start + kept, outputs)
        for at, detail in poison.items():
            gathered.missing([rows.start + at], "failed", detail)
        return True


def _send(version: SingleVersion, batch: Batch, rows: range) -> int:
    return version.send(batch.slice(rows.start, len(rows)))


def fate_of(failure: str) -> Fate:
    """Outcome of unanswered questions, from the engine's failure message.

    Examples
    --------
    >>> fate_of("no answer within 30 s"), fate_of("its process ended: signal 9")
    ('late', 'failed')
    """
    return "late" if LATE in failure else "failed"


def with_fields(batch: Batch) -> Batch:
    """Add ``prompt``, ``text``, ``system`` and ``messages`` columns, parsed from the requests."""
    if not batch.has(REQUEST):
        return batch
    names = ("prompt", "text", "system", "messages")
    found: dict[str, list[Any]] = {name: [] for name in names}
    for body in batch.arrow(REQUEST).to_pylist():
        request = msgspec.json.decode(body)
        messages = request.get("messages")
        fields = input_fields(messages) if isinstance(messages, list) else {"prompt": request.get("prompt")}
        fields["text"] = fields.get("prompt")
        for name in names:
            value = fields.get(name)
            found[name].append(value if isinstance(value, str) else None)
    return batch.with_columns({f"inputs.{n}": pa.array(v, pa.string()) for n, v in found.items()})


def _as_talk(outputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Add the ``text`` and ``tool_calls`` columns of completions to a local model's outputs."""
    found = dict(outputs)
    name = next((each for each in ("text", "answer", "label", "value") if each in found), None)
    if name is None:
        return found
    text = np.array([None if v is None else str(v) for v in np.asarray(found[name]).tolist()], dtype=object)
    return found | {"text": text, "tool_calls": np.full(len(text), "[]", dtype=object)}


def text_field(batch: Batch, name: str) -> str:
    inputs = [each for each in batch.names if each.startswith("inputs.")]
    texts = [each.removeprefix("inputs.") for each in inputs if pa.types.is_string(batch.arrow(each).type)]
    known = [each for each in ("text", "prompt", "sentence", "content") if each in texts]
    if known or len(texts) == 1:
        return (known or texts)[0]
    raise ConfigError(
        f"{name} reads a text, but the traffic holds {', '.join(inputs)}: call one of them text"
    )


def _with_inputs(source: Source, inputs: Sequence[str]) -> str:
    return json.dumps(json.loads(source.to_json()) | {"inputs": list(inputs)})


def _base_of(path: Path, about: Mapping[str, Any], base: Path | None) -> Path:
    named = str(about.get("base_model_name_or_path") or "")
    places: list[Path | None] = [path / named, Path(named)] if named else []
    for found in [*places, base]:
        if found is not None and (found / "config.json").is_file():
            return found.resolve()
    raise ConfigError(
        f"{path}: its base model {named!r} is no folder here; name the base's folder as --production, or in "
        "base_model_name_or_path of adapter_config.json"
    )


def _task_of(path: Path) -> Task:
    heads = _json(path / "config.json").get("architectures") or []
    return next(
        (task for end, task in _TASKS.items() if any(str(h).endswith(end) for h in heads)), "embedding"
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: JSON expected: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: a JSON object expected")
    return found
