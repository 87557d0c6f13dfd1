"""Prompt and version of an LLM judge, from configuration and files."""

import json
from hashlib import blake2b

from outrider.errors import ConfigError

from .config import Settings
from .model_sections import JudgeSettings


def judge_digest(settings: Settings, judge: JudgeSettings) -> str:
    """Version of a judge: hash of every setting that can change its answers."""
    source = ""
    if judge.predictor is not None:
        source = _read(settings, judge.predictor.rpartition(":")[0])
    asked = {
        "url": judge.url,
        "model": judge.model,
        "predictor": judge.predictor,
        "source": source,
        "prompt": prompt_of(settings, judge),
        "reads": judge.reads,
        "answer": judge.answer,
        "max_tokens": judge.max_tokens,
        "constrain": judge.constrain,
    }
    return digest_of(json.dumps(asked, sort_keys=True), size=8)


def prompt_of(settings: Settings, judge: JudgeSettings) -> str:
    """Prompt template from the configuration or a file; empty if there is none."""
    return judge.prompt or (_read(settings, judge.prompt_file) if judge.prompt_file else "")


def digest_of(text: str, size: int = 16) -> str:
    """BLAKE2 hash of a text, in ``2 * size`` hex digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def _read(settings: Settings, file: str) -> str:
    try:
        return settings.path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{settings.path(file)} cannot be read: {error}") from error
