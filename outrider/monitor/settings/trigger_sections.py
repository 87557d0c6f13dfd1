"""Triggers of retraining: ``[models.NAME.retrain.triggers]``."""

from typing import Literal

from pydantic import Field, model_validator

from .gate_sections import Names, Number
from .sections import Section


class FlagRateSettings(Section):
    """Share of flagged records above which an assertion's trigger fires."""

    assertion: str = Field(min_length=1)
    start: Number = Field(gt=0, lt=1, description="fires once it is proven to be above this")
    rearm: Number | None = Field(
        default=None, ge=0, lt=1, description="may fire again once it was below this; default half of start"
    )
    hours: Number = Field(default=24.0, gt=0, le=744, description="of receipt that the share is over")
    min_records: int = Field(default=100, ge=10, description="fewer records in that time say nothing")

    @model_validator(mode="after")
    def _rearms_below(self) -> "FlagRateSettings":
        if self.rearm is not None and self.rearm >= self.start:
            raise ValueError(
                f"{self.assertion}: rearm must be below start, got rearm = {self.rearm:g} and start = "
                f"{self.start:g}; the gap keeps a share that hovers from firing again and again"
            )
        return self

    @property
    def rearms_below(self) -> float:
        """Share below which the trigger may fire again."""
        return self.start / 2 if self.rearm is None else self.rearm


class TriggerSettings(Section):
    """Triggers of retraining in addition to labelled flags; none by default."""

    flag_rates: tuple[FlagRateSettings, ...] = Field(default=(), description="shares of flagged records")
    behavior: bool = Field(
        default=False, description="a behavioral test that the champion passed before fails"
    )
    incidents: Literal["", "warning", "critical"] = Field(
        default="", description="an incident of this level or above is open, whichever rule opened it"
    )
    corrected: int | None = Field(
        default=None, ge=1, description="rows corrected or withdrawn since the version that it learned from"
    )
    every_hours: Number | None = Field(default=None, gt=0, le=87_600, description="time between runs")
    alerts: Names = Field(default=(), description="alerts of Alertmanager (alertname) that start a run")

    @model_validator(mode="after")
    def _named_once(self) -> "TriggerSettings":
        rated = [rule.assertion for rule in self.flag_rates]
        for names, key in ((rated, "flag_rates"), (list(self.alerts), "alerts")):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"{key}: {twice[0]} is named twice; name it once")
        if "" in self.alerts:
            raise ValueError("alerts: names of alerts expected, got an empty one")
        return self

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the triggers that are set."""
        named = {
            "flag_rates": self.flag_rates, "behavior": self.behavior, "incidents": self.incidents,
            "corrected": self.corrected, "schedule": self.every_hours, "alerts": self.alerts,
        }  # fmt: skip
        return tuple(name for name, value in named.items() if value)
