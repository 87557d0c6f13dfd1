"""Gate policy: ``[models.NAME.gate]``, or a file."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from .sections import Section

_LOSSES = ("error", "absolute", "squared", "token_f1", "log", "macro_f1", "average_precision")
"""Names in `comparison.losses` and `statistics.set_figures`, repeated here to keep the import light."""


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"a number expected, got {str(value).lower()}")
    return value


class _Finite(Section):
    """Section without infinity and NaN, because verdicts and jobs store it as JSON."""

    model_config = ConfigDict(allow_inf_nan=False)


Number = Annotated[float, BeforeValidator(_no_truth)]
Names = tuple[str, ...]


class SliceSettings(_Finite):
    """Slice on which a challenger must be shown to be no worse."""

    name: str = Field(min_length=1, description="as verdicts call it")
    where: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="values of attributes; without, all rows of its own held_out"
    )
    held_out: str | None = Field(default=None, description="dataset of its own; default the policy's")
    max_drop: Number | None = Field(default=None, ge=0, le=1, description="default the policy's")

    @model_validator(mode="after")
    def _names_rows(self) -> "SliceSettings":
        if not self.where and self.held_out is None:
            raise ValueError(f"{self.name}: where or held_out expected, which say what rows it has")
        return self


class FlagLimitSettings(_Finite):
    """Maximum share of live records that an assertion may flag with the challenger."""

    assertion: str
    max_share: Number = Field(gt=0, lt=1, description="of the live records that both were judged on")


class LatencyLimitSettings(_Finite):
    """Limits on the challenger's time per record."""

    p99_ms: Number | None = Field(
        default=None, gt=0, le=3.6e6, description="within which 99 % of the live records are answered"
    )
    max_ratio: Number | None = Field(
        default=None, gt=0, le=1000, description="of its time to the champion's on the same rows, in turn"
    )


class MemoryLimitSettings(_Finite):
    """Limits on the size of the challenger's weights."""

    max_mb: Number | None = Field(default=None, gt=0, le=1e9, description="millions of bytes")
    max_ratio: Number | None = Field(default=None, gt=0, le=1e6, description="of its bytes to the champion's")


class RollingSettings(_Finite):
    """Comparison of all versions with the champion on the latest labelled rows."""

    rows: int = Field(
        default=2000,
        ge=40,
        le=10_000,
        description="latest labelled live rows that neither was trained on; a quarter of them is a look",
    )
    p: Number = Field(
        default=0.01,
        gt=0,
        le=0.1,
        description="of the sign test, over all versions, below which one is better",
    )


class GateSettings(_Finite):
    """Conditions for a challenger to become champion."""

    policy: str | None = Field(
        default=None, description="TOML file with the other keys of this table, which then stay away"
    )
    held_out: str | None = Field(default=None, description="dataset on which it may not be worse")
    max_drop: Number = Field(default=0.02, ge=0, le=1, description="loss beyond the champion's allowed on it")
    min_gain: Number = Field(default=0.0, ge=-1, le=1, description="needed gain on held-out flagged rows")
    loss: str = Field(
        default="auto",
        description="error, absolute, squared, token_f1, log, macro_f1, average_precision, file.py:callable, "
        "or auto by the target",
    )
    scores: str | None = Field(
        default=None, description="output with the probabilities, for log and average_precision"
    )
    scorer_deadline_s: Number = Field(default=60.0, gt=0, le=86_400, description="for a loss of one's own")
    requires: tuple[Literal["labels", "suites", "shadow"], ...] = Field(
        default=("labels",), description="evidence without which nothing is promoted"
    )
    suites: Names = Field(default=(), description="suites of which a test must have been judged")
    tests: Names = Field(default=(), description="behavioral tests that must have been judged")
    shadow_rows: int = Field(default=0, ge=0, description="live rows judged before the verdict")
    shadow_timeout_s: Number = Field(default=30.0, gt=0)
    agreement: Literal["same", "close", "not worse"] | None = Field(
        default=None, description="what its answers to live records must be shown to be to the champion's"
    )
    auto_promote: bool = True
    slices: tuple[SliceSettings, ...] = ()
    flags: tuple[FlagLimitSettings, ...] = ()
    latency: LatencyLimitSettings = LatencyLimitSettings()
    memory: MemoryLimitSettings = MemoryLimitSettings()
    rolling: RollingSettings | None = None

    @property
    def judging(self) -> Names:
        """References of all datasets on which candidates are judged."""
        named = (self.held_out, *(one.held_out for one in self.slices))
        return tuple(dict.fromkeys(one for one in named if one))

    @field_validator("loss")
    @classmethod
    def _known_loss(cls, loss: str) -> str:
        known = ("auto", *_LOSSES)
        if loss not in known and not re.fullmatch(r".+\.py:\w+", loss):
            raise ValueError(f"one of {', '.join(known)}, or file.py:callable, expected, got {loss!r}")
        return loss

    @field_validator("policy")
    @classmethod
    def _is_toml(cls, policy: str | None) -> str | None:
        if policy is not None and not policy.endswith(".toml"):
            raise ValueError(f"a file NAME.toml expected, got {policy!r}")
        return policy

    @model_validator(mode="after")
    def _consistent(self) -> "GateSettings":
        others = sorted(self.model_fields_set - {"policy"})
        if self.policy is not None and others:
            raise ValueError(
                f"policy and {', '.join(others)} exclude each other: with a file, all of the policy stands "
                f"in it; move {'them' if len(others) > 1 else 'it'} to {self.policy}"
            )
        live = {"agreement": self.agreement, "flags": self.flags, "latency.p99_ms": self.latency.p99_ms}
        of_live = [key for key, value in live.items() if value]
        if of_live and not self.shadow_rows:
            raise ValueError(f"{', '.join(of_live)}: set shadow_rows, without live records nothing passes")
        names = [one.name for one in self.slices]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"slices: a name for each expected, got {', '.join(twice)} twice")
        for one in self.slices:
            if one.held_out is None and self.held_out is None:
                raise ValueError(f"slices: {one.name} needs held_out, of its own or of the policy")
        if self.rolling is not None and self.loss in ("macro_f1", "average_precision"):
            raise ValueError(
                f"rolling: a loss of each row expected, {self.loss} is a figure of all; set loss"
            )
        limited = [one.assertion for one in self.flags]
        if len(set(limited)) < len(limited):
            raise ValueError("flags: one limit for each assertion expected")
        return self


class FrozenPolicy(GateSettings):
    """Policy with its source, unchanged while a candidate is judged."""

    file: str = ""
    """Name of the file; empty if the policy is in the configuration itself."""
    digest: str = ""
    """SHA-256 of ``text``, in hex."""
    text: str = ""
    """Content of the file; without one, JSON of the keys."""
    fault: str = ""
    """Error in the policy file, with its line; the gate then refuses every candidate."""
