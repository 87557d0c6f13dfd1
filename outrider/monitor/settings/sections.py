"""Sections of ``outrider.toml`` for the service as a whole."""

import dataclasses
import ipaddress
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

T = TypeVar("T")


class Section(BaseModel):
    """A table of the file: immutable, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def fill(self, row: type[T]) -> T:
        """Build a dataclass from the settings that are named like its fields; other fields keep
        their defaults."""
        named: Any = row
        own = {field.name for field in dataclasses.fields(named)} & type(self).model_fields.keys()
        return row(**{name: getattr(self, name) for name in own})


def networks_of(value: tuple[str, ...]) -> tuple[str, ...]:
    """Check that every entry is a network (CIDR)."""
    for text in value:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise ValueError(f"a network such as 10.0.0.0/8 expected, got {text!r}: {error}") from None
    return value


class ServerSettings(Section):
    """Address of the API and the web pages."""

    host: str = "127.0.0.1"
    port: int = Field(default=8470, ge=0, le=65535, description="0 picks a free port")
    log_format: Literal["text", "json"] = Field(default="text", description="of every process, on stderr")
    metrics_open: bool = Field(default=True, description="serve /metrics without a key (loopback only)")
    names: tuple[str, ...] = Field(
        default=(),
        description="names for browsers, in addition to localhost, host and bare addresses",
    )
    trusted_proxies: tuple[str, ...] = Field(
        default=(), description="networks (CIDR) of proxies whose X-Forwarded-Proto and -For are believed"
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return networks_of(value)


PRESSURE_SHARE = 0.8
"""Share of ``storage.journal_max_bytes`` above which the oldest payloads expire, whatever their age."""


class StorageSettings(Section):
    """Data folder, and limits on the data that it keeps."""

    folder: str = Field(default="outrider-data", description="data folder, relative to the file")
    journal_max_bytes: int = Field(default=20_000_000_000, ge=65_536)
    keep_days: float = Field(default=7.0, gt=0, description="unneeded payloads expire after it")
    keep_around_rows: int = Field(
        default=5, ge=0, le=1000, description="neighbours of a flagged record that stay with it, on each side"
    )
    keep_around_s: float = Field(default=5.0, ge=0, description="and how far away they may be")
    keep_rows_days: float = Field(
        default=90.0, gt=0, description="unneeded rows of records in state.db are deleted after it"
    )
    keep_ids_days: float = Field(
        default=90.0,
        ge=0,
        description="and are known for so long by a hash of their id",
    )
    keep_minute_profiles_hours: float = Field(
        default=3.0, gt=0, description="profiles of minutes are joined to hours after it"
    )
    keep_hour_profiles_days: float = Field(default=14.0, gt=0, description="and those of hours to days")
    keep_day_profiles_days: float = Field(default=730.0, gt=0, description="and those of days go")
    min_free_bytes: int = Field(default=67_108_864, ge=0, description="below this, intake answers 507")
    keep_comparisons: int = Field(
        default=200, ge=1, description="reports of `outrider compare`; the oldest without labels go first"
    )


class LimitSettings(Section):
    """Limits on a request, checked before its content is built in memory."""

    body_bytes: int = Field(default=10_485_760, ge=1024, description="after decompression")
    ratio: int = Field(default=100, ge=2, description="decompressed / compressed bytes")
    depth: int = Field(default=16, ge=2, description="nesting of a JSON body")
    records: int = Field(default=100_000, ge=1, description="records in one request")
    columns: int = Field(
        default=512, ge=1, description="columns of one model; every field of a list of objects is one"
    )
    elements: int = Field(default=100_000, ge=1, description="elements of one list")
    queue_bytes: int = Field(
        default=268_435_456, ge=1_048_576, description="waiting for the journal; beyond: 429"
    )
    dataset_bytes: int = Field(default=268_435_456, ge=1024, description="imported dataset, on disk")
    upload_bytes: int = Field(
        default=17_179_869_184, ge=1024, description="one file of an uploaded version, on disk"
    )
    uploads: int = Field(default=16, ge=1, description="unfinished uploads of versions of a key")
    upload_s: float = Field(
        default=86_400.0, gt=0, description="without a byte until an unfinished upload is removed"
    )
    request_bytes: int = Field(default=1_048_576, ge=1024, description="body of any other route")
    parsed_bytes: int = Field(
        default=201_326_592, ge=1_048_576, description="objects of a JSON body in memory, by its punctuation"
    )


class ConnectionSettings(Section):
    """Limits on connections, checked before the API key."""

    total: int = Field(default=1024, ge=8, description="at once, if the descriptors of the process suffice")
    per_address: int = Field(default=512, ge=4, description="of one address; of one /64 network of IPv6")
    bodies_per_key: int = Field(
        default=256, ge=1, description="bodies under way with one key, and at most half of the connections"
    )
    header_bytes: int = Field(default=65_536, ge=1024, description="of one request, its line included")
    header_fields: int = Field(default=100, ge=10, description="of one request")
    header_s: float = Field(default=10.0, gt=0, description="until the header is complete")
    idle_s: float = Field(default=30.0, gt=0, description="between requests, and for an unread answer")
    body_s: float = Field(default=30.0, gt=0, description="for a body, and more at bytes_per_s")
    bytes_per_s: int = Field(default=16_384, ge=1, description="slowest pace of bodies and answers")


class IntakeSettings(Section):
    """Intake of requests from senders other than Outrider's client."""

    join_s: float = Field(
        default=30.0, gt=0, le=86_400, description="wait for the other side of a request or response"
    )
    max_ahead_s: float = Field(
        default=300.0,
        ge=1,
        description="event time further ahead of receipt is receipt in windows; less waits",
    )
    keyless_networks: tuple[str, ...] = Field(
        default=(), description="networks (CIDR) that may send mirrored traffic and events without the key"
    )

    @field_validator("keyless_networks")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return networks_of(value)


class HostSettings(Section):
    """The process that runs user assertions."""

    deadline_s: float = Field(default=2.0, gt=0, description="per assertion and block")
    memory_bytes: int = Field(
        default=2_147_483_648, ge=268_435_456, description="address space beyond start-up"
    )
    strikes: int = Field(default=3, ge=1)
    strike_window_s: float = Field(default=300.0, gt=0)


class WorkerSettings(Section):
    """The process that runs shadow models."""

    seed: int = Field(default=0, ge=0)
    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:N")
    threads: int = Field(default=1, ge=1, description="torch threads per model")
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="of weights on a GPU")
    compile: bool = Field(default=False, description="try torch.compile on modules on a GPU")
    duty: float = Field(default=1.0, gt=0, le=1, description="share of the time that the device may be busy")
    low_priority: bool = Field(default=False, description="let other processes go first under CUDA MPS")


class TrainerSettings(Section):
    """The process that starts one process per job."""

    trainings: int = Field(default=1, ge=1, description="trainings of different models that run at once")


class FlagSettings(Section):
    """Limit on stored flags, and limit on false alarms."""

    per_minute: int = Field(default=1000, ge=1, description="kept of one assertion in one minute")
    alpha: float = Field(default=0.01, gt=0, lt=1, description="chance of any false alarm in a horizon")
    horizon_s: float = Field(default=604_800.0, ge=3600, description="time for which that holds")
    odds: float = Field(default=1.5, ge=1, description="times the usual odds of a flag that are no news")
    loss_points: float = Field(default=0.01, ge=0, lt=1, description="rise of the loss that is no news")
    baseline_s: float = Field(default=86_400.0, ge=600, description="time in which a share is usual")
    quiet_s: float = Field(default=900.0, gt=0, description="silence or usual share that ends an incident")
    drift_window_s: Literal[60, 3600] = Field(default=3600, description="window that drift is decided by")
    drift_reference: Literal["traffic", "dataset"] = Field(
        default="traffic", description="what inputs are held against"
    )


class QualitySettings(Section):
    """Rule for proposing to suspend an assertion; a person decides."""

    min_precision: float = Field(default=0.2, ge=0, le=1)
    min_outcomes: int = Field(default=20, ge=1, description="reviewed or labelled flags needed to judge it")
    max_fire_rate: float = Field(default=0.3, gt=0, le=1, description="share of the records it fires on")


class WebhookSettings(Section):
    """Receivers of events, signed as in Standard Webhooks."""

    url: str
    events: tuple[str, ...] = (
        "dataset.committed",
        "retrain.requested",
        "retrain.suggested",
        "retrain.failed",
        "gate.refused",
        "gate.undecided",
        "gate.waiting",
        "model.promoted",
        "model.rolled_back",
        "rollback.proposed",
        "incident.opened",
        "incident.resolved",
        "shadow.ended",
    )
    secret: str | None = None
    secret_file: str | None = None
    allow_private: bool = Field(default=False, description="allow loopback and private addresses")


class AlertSettings(Section):
    """Alerts that Alertmanager posts to ``/v1/alerts``."""

    secret: str | None = Field(default=None, description="of signatures that every body must carry")
    secret_file: str | None = Field(default=None, description="file with that secret")
