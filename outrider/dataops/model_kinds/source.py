"""Source of a model version, sufficient to load the version anywhere."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from outrider.errors import ConfigError

Kind = Literal["torch", "hf", "onnx", "function", "endpoint"]
"""A declared ``torch.nn.Module``, a Hugging Face folder, an ONNX file, a function, a model elsewhere."""
KeptRole = Literal["folder", "adapter", "artefacts"]
"""Use of a kept folder: Hugging Face folder, PEFT adapter, or what a function is made from."""
Task = Literal["classification", "tokens", "embedding", "scoring", "generation", "other"]
"""What is read of the answers of a model; see docs/shadow-models.md."""
ALLOWED = "allowed"
"""Option of an uploaded endpoint whose source is opened: place, networks and key_env of the configuration."""
KEY_ENV = "OUTRIDER_MODEL_KEY"
"""Of an endpoint of the configuration that names no other variable."""
RECIPE_STEPS = (
    "bf16",
    "int8_weight_only",
    "int8_dynamic",
    "fp8_weight_only",
    "fp8_dynamic",
    "semi_structured",
    "low_rank",
)
"""What a recipe is made of; how each is done stands in ``recipes.py``, which needs torch."""


@dataclass(frozen=True, slots=True)
class Source:
    kind: Kind
    reference: str
    """``file.py:callable`` (torch, function), folder (hf), file (onnx), or address (endpoint); paths are
    relative to the folder of the configuration."""
    task: Task = "classification"
    inputs: tuple[str, ...] = ()
    """Fields that are fed to the model, in order."""
    classes: tuple[int | str, ...] = ()
    """Value of each output of a classifier."""
    adapter: str | None = None
    """Folder of a PEFT adapter (LoRA or prefix tuning) that is laid over the weights."""
    adapted_from: str | None = None
    """``model@version`` whose weights this one was made from: both run in one trunk group."""
    shares: tuple[str, ...] = ()
    """Submodules (dotted names) whose weights are those of ``adapted_from``, which is checked by digest."""
    recipe: tuple[str, ...] = ()
    """What is done to the module once it is loaded, in order, such as ``bf16`` or ``int8_weight_only``."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What only this kind knows, such as ``max_tokens`` of texts."""
    kept: Mapping[KeptRole, str] = field(default_factory=dict)
    """Digests of kept folders (`outrider.dataops.payloads.folders`) that take the place of ``reference``
    (folder) or ``adapter``, or that a function is made from (artefacts: ``reference`` names a callable that
    takes their folder and returns the function). Paths once the source is opened to be loaded."""
    is_uploaded: bool = False
    """Of an endpoint: an upload named its address. It is asked only once the source is opened, which takes
    what is allowed, key and options from the configuration."""

    @property
    def key_env(self) -> str | None:
        default = None if self.is_uploaded else KEY_ENV
        found: str | None = self.options.get(ALLOWED, self.options).get("key_env", default)
        return found

    def positive(self, name: str, default: float) -> float:
        value = self.options.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ConfigError(f"options.{name}: a number above 0 expected, got {value!r}")
        return float(value)

    def to_json(self) -> str:
        """Equal sources give equal texts."""
        given = dataclasses.asdict(self) | {"options": dict(self.options), "kept": dict(self.kept)}
        for name in ("kept", "is_uploaded"):
            if not given[name]:
                del given[name]
        return json.dumps(given, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Source":
        given: dict[str, Any] = json.loads(text)
        for name in ("inputs", "classes", "shares", "recipe"):
            given[name] = tuple(given[name])
        return cls(**given)
