"""Settings of a model's intake: ``[models.<name>.intake]``."""

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from outrider.dataops.payloads.roots import parse_roots
from outrider.errors import ConfigError

from .sections import Section

_SECRET_HEADERS = ("authorization", "cookie", "proxy-authorization", "x-api-key", "api-key")


class ModelIntakeSettings(Section):
    """Intake of a model's requests and events."""

    join_s: float | None = Field(
        default=None, gt=0, le=86_400, description="wait for the other side; default that of [intake]"
    )
    answers: Literal["replica", "joined"] | None = Field(
        default=None,
        description="who answers a request that came alone: the champion's replica, or a response that is "
        "joined; default the replica of a model that has one, else joined",
    )
    request_models: tuple[str, ...] = Field(
        default=(), description="further names of the model in requests; * matches any text"
    )
    otel_service: str | None = Field(
        default=None, description="service.name whose traced calls are the model's, and no other model's"
    )
    batched: bool = Field(
        default=True,
        description="the first size of a V2 tensor is the number of records; else a request is one",
    )
    tensors: dict[str, tuple[str, ...] | dict[str, tuple[str, ...]]] = Field(
        default_factory=dict,
        description="names for a V2 tensor, of both sides or in a table inputs or outputs: one renames it, "
        "several are its columns along the last axis",
    )
    missing_inputs: Literal["refuse", "flag"] = Field(
        default="refuse",
        description="a V2 request without one of the declared inputs, any other record with none of them: "
        "refuse it, or take it and raise the flag missing_inputs",
    )
    entity_header: str | None = Field(
        default=None, description="request header whose value is the entity of a mirrored request"
    )
    keep_request: bool = Field(
        default=False,
        description="keep the whole body of a mirrored request of completions as inputs.request, so that "
        "outrider compare can ask it again as it came",
    )
    body_bytes: int | None = Field(
        default=None, ge=1024, description="of one request, after decompression; default limits.body_bytes"
    )
    payload_bytes: int = Field(default=16_777_216, ge=1, description="of one image, sound or long text")
    payload_pixels: int = Field(default=25_000_000, ge=1, description="of one image as it is encoded")
    payload_roots: tuple[str, ...] = Field(
        default=(), description="folders and buckets that the worker may fetch payloads from; none by default"
    )
    fetch_s: float = Field(default=10.0, gt=0, le=300, description="for the fetch of one payload")

    @field_validator("tensors")
    @classmethod
    def _names(
        cls, value: dict[str, tuple[str, ...] | dict[str, tuple[str, ...]]]
    ) -> dict[str, tuple[str, ...] | dict[str, tuple[str, ...]]]:
        for tensor, given in value.items():
            if isinstance(given, dict) and tensor not in ("inputs", "outputs"):
                raise ValueError(
                    f"{tensor}: a list of names, or a table inputs or outputs of tensors, expected"
                )
            for name, names in (given if isinstance(given, dict) else {tensor: given}).items():
                if not names or "" in names or len(set(names)) < len(names):
                    raise ValueError(
                        f"{name}: one name or several different ones expected, got {list(names)}"
                    )
        return value

    def tensors_of(self, side: Literal["inputs", "outputs"]) -> dict[str, tuple[str, ...]]:
        """Column names by tensor; names for ``side`` override those for both sides."""
        both = {tensor: names for tensor, names in self.tensors.items() if isinstance(names, tuple)}
        own = self.tensors.get(side, {})
        return both | own if isinstance(own, dict) else both

    @field_validator("entity_header")
    @classmethod
    def _no_secret(cls, value: str | None) -> str | None:
        if value is not None and value.lower() in _SECRET_HEADERS:
            raise ValueError(f"{value} carries a secret, which is never stored: name another header")
        return None if value is None else value.lower()

    @field_validator("payload_roots")
    @classmethod
    def _are_roots(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            parse_roots(value, Path("/base"), timeout_s=1.0)
        except ConfigError as error:
            raise ValueError(str(error).removeprefix("payload_roots: ")) from None
        return value
