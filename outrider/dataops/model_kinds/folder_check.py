"""Problems of a model folder, from its JSON files alone."""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .content import ADAPTER, FOLDER

HEADS = {
    "classification": "ForSequenceClassification",
    "other": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "scoring": "ForCausalLM",
    "generation": "ForCausalLM",
}
"""Suffix of the class that a task needs; GPT-2's is called LMHeadModel."""
OPTIONS = ("max_tokens", "dtype", "attention", FOLDER, ADAPTER)
TASK_OPTIONS = {"embedding": ("pooling", "normalize"), "generation": ("max_new_tokens", "chat", "output")}
TOKENIZERS = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
_PART = re.compile(r"[\w-][\w.-]*\.safetensors").fullmatch
PATTERNS = ("alpha_pattern", "rank_pattern")
"""Values by layer in a PEFT configuration; PEFT reads regular expressions, here only literal names."""
_MOST = sys.float_info.max
_REGEX = frozenset("\\^$*+?{}[]|()")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "adapter_model.bin")


def folder_problems(path: Path, task: str, *, has_weights: bool = False) -> list[str]:
    """Problems with remedies; ``has_weights`` if weights are elsewhere."""
    if not path.is_dir():
        return [f"{path} is no folder; train.py of the project may write it"]
    if (path / "MLmodel").is_file():
        return [_of_mlflow(path)]
    config, problem = _json(path / "config.json")
    if problem:
        is_adapter = (path / "adapter_config.json").is_file()
        hint = (
            "; it is a PEFT adapter: name the model as folder, and this one as adapter" if is_adapter else ""
        )
        return [problem + hint]
    problems = []
    if "auto_map" in config and not config.get("model_type"):
        problems.append(f"{path / 'config.json'} needs code of the folder, which is never run")
    if not any((path / name).is_file() for name in TOKENIZERS):
        problems.append(f"{path} has no tokenizer: save_pretrained of the tokenizer writes tokenizer.json")
    if not has_weights:
        problems += _without_weights(path)
    if wrong := _wrong_head(config, task):
        problems.append(f"{path / 'config.json'}: {wrong}")
    return problems


def _of_mlflow(path: Path) -> str:
    if (path / "model" / "config.json").is_file():
        return f'{path}: MLmodel found: name the folder of the model in it: folder = "{path / "model"}"'
    return (
        f"{path}: MLmodel found: a model of MLflow; write a function that loads it by "
        'mlflow.pyfunc.load_model and answers, and name that: predictor = "model.py:predict". '
        "`outrider convert` makes an ONNX file of a scikit-learn model"
    )


_LABELS = re.compile(
    r"_?name_or_path|tokenizer_file|special_tokens_map_file|chat_template|tokenizer_class|model_type"
    r"|.*token(s|s_decoder)?|label2id|id2label"
).fullmatch
"""Members whose texts are never opened."""
_PLACE = re.compile(r"(^|:)[/\\~]|(^|[/\\])\.\.([/\\]|$)|^file:").search
_CONFIGS = (
    "config.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
    "byte_maps.json",
)  # fmt: skip


def foreign_files(path: Path) -> str:
    """Configuration member that names a file elsewhere, as libraries open some."""
    for name in _CONFIGS:
        config, _ = _json(path / name)
        for member in ("vocab", "merges"):
            if isinstance(config.get(member), str):
                return f"{name}: {member}: the words themselves expected, got the name of a file"
        if config.get("init_inputs"):
            return f"{name}: init_inputs: nothing expected"
        if member := _foreign(config):
            return f"{name}: {member}: a value of this folder expected, got a place elsewhere"
    return ""


def _foreign(config: dict[str, Any]) -> str:
    """Member with a text that may be opened outside the folder."""
    left: list[tuple[str, Any]] = list(config.items())
    while left:
        member, value = left.pop()
        if _LABELS(member):
            continue
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += [(member, item) for item in value]
        elif isinstance(value, str) and _leads_elsewhere(member, value):
            return member[:200]
    return ""


def _leads_elsewhere(member: str, value: str) -> bool:
    if member.endswith(("_file", "_files", "attn_implementation")):
        return "/" in value or "\\" in value
    return _PLACE(value) is not None


def option_problem(given: Iterable[str], task: str) -> str:
    """Option unknown to a folder's task; empty for none."""
    known = (*OPTIONS, *TASK_OPTIONS.get(task, ()))
    unknown = sorted(set(given) - {*known})
    return f"options.{unknown[0]}: {task} of a folder knows {', '.join(known)}" if unknown else ""


def adapter_problems(path: Path) -> list[str]:
    if not path.is_dir():
        return [f"{path} is no folder"]
    config, problem = _json(path / "adapter_config.json")
    if problem:
        return [problem]
    problems = []
    if not config.get("peft_type"):
        problems.append(f"{path / 'adapter_config.json'}: peft_type expected, got none")
    if problem := pattern_problem(config):
        problems.append(f"{path / 'adapter_config.json'}: {problem}")
    if not (path / "adapter_model.safetensors").is_file():
        problems.append(f"{path} has no adapter_model.safetensors{_pickled(path)}")
    return problems


def pattern_problem(config: Mapping[str, Any]) -> str:
    """Problem of a PEFT configuration's values by layer; empty for none.

    Examples
    --------
    >>> pattern_problem({"alpha_pattern": {"encoder.layer.1.query": 4, "^decoder": 2}})
    ''
    >>> pattern_problem({"alpha_pattern": {"(.*)*X": 1}})  # doctest: +ELLIPSIS
    "alpha_pattern: '(.*)*X' is a regular expression, which is never run: name the layer, or its end, ..."
    """
    for field in PATTERNS:
        given = config.get(field) or {}
        if not isinstance(given, dict):
            return f"{field}: an object of layers expected, got {type(given).__name__}"
        for key, value in given.items():
            if not _REGEX.isdisjoint(key.removeprefix("^")) or not key.removeprefix("^"):
                return (
                    f"{field}: {key[:200]!r} is a regular expression, which is never run: name the layer, or "
                    "its end, such as 'layer.1.query' (behind ^ the whole name)"
                )
            if problem := number_problem(value):
                return f"{field}: {key[:200]!r}: {problem}"
    return ""


def number_problem(value: object) -> str:
    is_number = type(value) in (int, float) and -_MOST <= value <= _MOST  # type: ignore[operator]
    return "" if is_number else f"a finite number expected, got {type(value).__name__}"


def _without_weights(path: Path) -> list[str]:
    if (path / "model.safetensors").is_file():
        return []
    index, problem = _json(path / "model.safetensors.index.json")
    if problem:
        return [f"{path} has no model.safetensors{_pickled(path)}"]
    named = index.get("weight_map")
    parts = sorted({str(part) for part in named.values()}) if isinstance(named, dict) else []
    where = path / "model.safetensors.index.json"
    if not parts:
        return [f"{where}: weight_map expected, of names of .safetensors files"]
    if strange := [part for part in parts if not _PART(part)]:
        return [
            f"{where}: {strange[0]!r} is no name of a .safetensors file in this folder, and is not opened"
        ]
    return [f"{path / part} does not exist" for part in parts if not (path / part).is_file()]


def _pickled(path: Path) -> str:
    found = next((name for name in PICKLES if (path / name).is_file()), None)
    if found is None:
        return ""
    return f"; {found} is a pickle, which runs whatever code is in it: save the model as safetensors"


def _wrong_head(config: dict[str, Any], task: str) -> str:
    names = [str(name) for name in config.get("architectures") or ()]
    wanted = HEADS.get(task)
    if not names or wanted is None or any(_fits(name, wanted) for name in names):
        return ""
    return f"a {wanted} model expected for task {task!r}, got {', '.join(names)}"


def _fits(name: str, wanted: str) -> bool:
    return name.endswith(wanted) or (wanted == "ForCausalLM" and name.endswith("LMHeadModel"))


def _json(path: Path) -> tuple[dict[str, Any], str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, f"{path} does not exist"
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path} cannot be read: {error}"
    return (found, "") if isinstance(found, dict) else ({}, f"{path}: a JSON object expected")
