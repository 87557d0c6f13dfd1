"""Hugging Face folders, read from this disk alone.

No code of a folder is run (``trust_remote_code`` stays off) and no pickle is read.
"""

import importlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import load_file as load_tensor_file

from outrider.assertions import Batch
from outrider.errors import ConfigError
from outrider.parts import install_command

from .folder_check import folder_problems, option_problem
from .hf_tasks import Classification, Embedding, Generation, Scoring, TaskReader, TokenClasses, Value
from .runner import EncodedRows, Tensors
from .source import Source
from .texts import LONGEST, TextEncoder

DTYPES = ("auto", "float32", "bfloat16", "float16")
HEAD = re.compile(r"(^|\.)(classifier|score|out_proj)\.weight$")
MORE = (TokenClasses, Scoring)
"""Tasks that are fed more than the tokens of a text."""
LOCAL: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}


class HfRunner:
    def __init__(self, module: torch.nn.Module, encoder: TextEncoder, reader: TaskReader) -> None:
        self.module = module.eval()
        self.device = torch.device("cpu")
        self.encoder = encoder
        self.reader = reader
        self.encoding = f"text {type(reader).__name__ if type(reader) in MORE else ''} {encoder.digest}"

    def encode(self, batch: Batch, /) -> EncodedRows:
        return self.reader.encode(self.encoder, batch)

    def run(self, tensors: Tensors, /) -> Tensors:
        return self.reader.run(self.module, tensors)

    def decode(self, answers: Tensors, /) -> dict[str, NDArray[Any]]:
        return self.reader.decode(answers)


def load_hf(
    source: Source,
    folder: Path,
    weights: Path | bytes | None,
    *,
    replaced: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> HfRunner:
    """``replaced`` are an adapter's own weights, which the folder may lack."""
    path = (folder / source.reference).resolve()
    if problems := folder_problems(path, source.task, has_weights=weights is not None):
        raise ConfigError("; ".join(problems))
    config, encoder, reader = _opened(source, path, replaced)
    head = getattr(_transformers(), reader.auto)
    module = _module(head, config, path, weights, source.options, replaced)
    return HfRunner(module, encoder, reader)


@dataclass(frozen=True, slots=True)
class DeclaredWeights:
    mismatched: tuple[tuple[str, list[int], list[int]], ...]
    """Name, shape in the file and shape by the configuration."""
    missing: tuple[str, ...]
    other_bytes: int


def declared_weights(source: Source, path: Path) -> DeclaredWeights:
    """Compare without allocating weights, and try the tokenizer."""
    config, encoder, reader = _opened(source, path, {})
    fields = {
        f"inputs.{field}": np.array(["A text.", "Another one!"], dtype=object) for field in source.inputs
    }
    reader.encode(encoder, Batch.from_columns(fields, model="m"))
    how = {"device_map": "meta", "output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        head = getattr(_transformers(), reader.auto)
        module, report = head.from_pretrained(path, config=config, use_safetensors=True, **LOCAL, **how)
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise ConfigError(f"{path}: {_first_line(error)}") from error
    mismatched = tuple((name, list(by_file), list(own)) for name, by_file, own in report["mismatched_keys"])
    missing = tuple(sorted(set(report["missing_keys"]) - {name for name, *_ in mismatched}))
    others = sum(buffer.nbytes for buffer in module.buffers())
    return DeclaredWeights(mismatched, missing, others)


def _opened(
    source: Source, path: Path, replaced: Mapping[str, torch.Tensor]
) -> tuple[Any, TextEncoder, TaskReader]:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # one thread for each model, as torch has
    transformers = _transformers()
    try:
        config = transformers.AutoConfig.from_pretrained(path, **LOCAL)
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, **LOCAL)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(f"{path}: {_first_line(error)}") from error
    _take_head(config, replaced)
    return config, *_reader(source, config, tokenizer)


def _transformers() -> Any:
    try:
        found = importlib.import_module("transformers")
        found.utils.logging.disable_progress_bar()  # a service has no terminal
        return found
    except ImportError as error:
        raise ConfigError(
            f"Hugging Face models need transformers: {install_command(['hf'])} ({error})"
        ) from error


def _reader(source: Source, config: Any, tokenizer: Any) -> tuple[TextEncoder, TaskReader]:
    options = source.options
    if not source.inputs or len(source.inputs) > 2:
        raise ConfigError(f"{source.reference}: inputs: one field with a text, or two, expected")
    most = options.get("max_tokens") or _longest(config, tokenizer)
    if source.task == "generation":
        tokenizer.truncation_side = "left"
        if not options.get("max_tokens"):
            most = max(1, most - int(options.get("max_new_tokens", 32)))
    reader = _task(source, config, tokenizer)
    if problem := option_problem(options, source.task):
        raise ConfigError(problem)
    encoder = TextEncoder(
        tokenizer,
        inputs=source.inputs,
        max_tokens=most,
        names=tokenizer.model_input_names,
        chat=bool(options.get("chat", False)),
    )
    return encoder, reader


def _task(source: Source, config: Any, tokenizer: Any) -> TaskReader:
    match source.task:
        case "classification":
            return Classification(_classes(source, config))
        case "tokens":
            return TokenClasses(_classes(source, config))
        case "embedding":
            return Embedding(source.options)
        case "scoring":
            return Scoring()
        case "generation":
            return Generation(tokenizer, source.options)
        case _:
            return Value(())


def _classes(source: Source, config: Any) -> tuple[int | str, ...]:
    named = tuple(config.id2label[number] for number in range(config.num_labels))
    if source.classes and len(source.classes) != len(named):
        raise ConfigError(
            f"{source.reference}: classes: {len(named)} expected ({', '.join(named)}), "
            f"got {len(source.classes)}"
        )
    return source.classes or named


def _longest(config: Any, tokenizer: Any) -> int:
    """Most tokens of a text by tokenizer and positions of the model."""
    limits = [tokenizer.model_max_length, getattr(config, "max_position_embeddings", None)]
    known = [int(length) for length in limits if length and length < 1_000_000]
    return min(known, default=LONGEST)


def _take_head(config: Any, replaced: Mapping[str, torch.Tensor]) -> None:
    """The configuration gets as many classes as an adapter's head."""
    heads = [t for name, t in replaced.items() if HEAD.search(name) and t.ndim == 2]
    if heads and len(heads[-1]) != config.num_labels:
        config.num_labels = len(heads[-1])  # this also names them


def _module(
    head: Any,
    config: Any,
    path: Path,
    weights: Path | bytes | None,
    options: Mapping[str, Any],
    replaced: Mapping[str, torch.Tensor],
) -> torch.nn.Module:
    dtype = options.get("dtype", "auto")
    if dtype not in DTYPES:
        raise ConfigError(f"options.dtype: {', '.join(DTYPES)} expected, got {dtype!r}")
    how = {"dtype": dtype, "output_loading_info": True, "ignore_mismatched_sizes": bool(replaced)}
    if "attention" in options:
        how["attn_implementation"] = options["attention"]
    try:
        if weights is None:
            module, report = head.from_pretrained(path, config=config, use_safetensors=True, **LOCAL, **how)
        else:
            with torch.device("meta"):
                kind = type(head.from_config(config))
            module, report = kind.from_pretrained(None, config=config, state_dict=_state(weights), **how)
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise ConfigError(f"{path}: {_first_line(error)}") from error
    others = {key for key, *_ in report["mismatched_keys"]}
    if missing := sorted({*report["missing_keys"], *others} - replaced.keys()):
        raise ConfigError(
            f"{path}: its weights lack {missing[0]} and {len(missing) - 1} more: it would answer at random; "
            "train it for this task, or name the task that it is for"
        )
    found: torch.nn.Module = module
    return found


def _state(weights: Path | bytes) -> dict[str, torch.Tensor]:
    try:
        state: dict[str, torch.Tensor] = (
            load_tensors(weights) if isinstance(weights, bytes) else load_tensor_file(weights)
        )
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"weights: not a safetensors file: {error}") from error
    return state


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
