"""Method by which a version is trained here, or reasons against any. Without torch."""

from collections.abc import Mapping
from typing import Any, Literal

from outrider.dataops.model_kinds.source import Source

Method = Literal["full", "lora", "chat", "distill", "user"]
"""All weights, an adapter, an adapter of a language model, another architecture, a user's function."""
_ANSWERS = ("classification", "other")
_ELSEWHERE = "name your own code as retrain.trainer, or train it elsewhere with trainer = 'external'"


def method_of(source: Source, options: Mapping[str, Any]) -> Method:
    """By kind of the source and the settings ``[models.*.retrain]``."""
    if options.get("trainer") not in (None, "here", "external"):
        return "user"
    if options.get("method") == "distill":
        return "distill"
    if source.task == "generation":
        return "chat"
    if options.get("method") == "lora" or (options.get("method") is None and _has_adapter(source)):
        return "lora"
    return "full"


def why_untrained(source: Source | None, options: Mapping[str, Any]) -> str:
    """Empty if the version can be trained here."""
    if options.get("trainer") == "external":
        return "retrain.trainer is 'external': whoever answers retrain.requested trains it"
    if source is None:
        return f"a model that is declared expected, got none: {_ELSEWHERE}"
    method = method_of(source, options)
    if method == "user":
        return ""
    if method == "distill":
        return "" if source.task in _ANSWERS else _wrong_task(source, "distill")
    if source.kind not in ("torch", "hf"):
        return f"a torch module or a Hugging Face folder expected, got {source.kind}: {_ELSEWHERE}"
    if method == "chat":
        is_lora = options.get("method") in (None, "lora")
        return "" if is_lora else "retrain.method: 'lora' expected of a model that writes texts, got 'full'"
    if source.kind == "hf" and source.task not in _ANSWERS:
        return _wrong_task(source, method)
    if method == "full" and _has_adapter(source):
        return (
            "retrain.method: 'lora' expected, got 'full': the champion is an adapter over a base that others "
            "share"
        )
    return ""


def _has_adapter(source: Source) -> bool:
    return source.adapter is not None or "adapter" in source.kept


def _wrong_task(source: Source, method: str) -> str:
    return (
        f"task {' or '.join(_ANSWERS)} expected by retrain.method = {method!r}, got {source.task!r}: "
        f"{_ELSEWHERE}"
    )
