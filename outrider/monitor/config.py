"""``outrider.toml``: what each setting means, its default, and clear errors when one is wrong.

Precedence: command line > environment ``OUTRIDER_SECTION__KEY`` > file > default.
"""

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from outrider.errors import ConfigError


class Section(BaseModel):
    """A table of the file: immutable, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSettings(Section):
    """Where the API and the page listen."""

    host: str = "127.0.0.1"
    port: int = Field(default=8470, ge=0, le=65535, description="0 picks a free port")
    metrics_open: bool = Field(default=True, description="serve /metrics without a key (loopback only)")


class StorageSettings(Section):
    """What is kept on disk, and how much."""

    folder: str = Field(default="outrider-data", description="data folder, relative to the file")
    journal_max_bytes: int = Field(default=20_000_000_000, ge=65_536)
    min_free_bytes: int = Field(default=67_108_864, ge=0, description="below this, intake answers 507")


class LimitSettings(Section):
    """Bounds on what a request may carry, checked before anything is built from it."""

    body_bytes: int = Field(default=10_485_760, ge=1024, description="after decompression")
    ratio: int = Field(default=100, ge=2, description="decompressed / compressed bytes")
    depth: int = Field(default=16, ge=2, description="nesting of a JSON body")
    records: int = Field(default=100_000, ge=1, description="records in one request")
    columns: int = Field(default=512, ge=1, description="columns of one model")
    queue_bytes: int = Field(
        default=268_435_456, ge=1_048_576, description="waiting for the journal; beyond: 429"
    )
    dataset_body_bytes: int = Field(default=268_435_456, ge=1024, description="imported dataset")


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


class LabelSettings(Section):
    """Which flagged records are put up for labelling."""

    budget: int = Field(default=200, ge=0, description="labels a request buys unless it says otherwise")
    policy: Literal["uniform", "uncertainty", "random"] = "uniform"


class RetrainSettings(Section):
    """When and how a challenger is fine-tuned; off unless asked for."""

    enabled: bool = False
    labelled_flags: int = Field(default=200, ge=1, description="labelled flagged records that start a job")
    cooldown_s: float = Field(default=3600.0, ge=0)
    daily_budget: int = Field(default=4, ge=1, description="automatic jobs in 24 hours")
    replay: str | None = Field(default=None, description="dataset replayed beside the fresh rows")
    epochs: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    replay_ratio: float = Field(default=2.0, ge=0, description="replayed rows per fresh row")
    batch_rows: int = Field(default=64, ge=1)
    held_out_share: float = Field(default=0.2, ge=0, lt=1, description="fresh rows kept for the gate")
    rows: Literal["flagged", "labelled"] = Field(
        default="flagged", description="which labelled records are learned from: the flagged ones, or all"
    )
    weak_confidence: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="corrections by assertions of at least this confidence are learned from too; 0 is none",
    )
    augment: str | None = Field(
        default=None, description="file.py:callable, (inputs, generator) -> inputs, on every training batch"
    )
    average: float = Field(
        default=0.0, ge=0, lt=1, description="share of the last steps whose weights are averaged"
    )
    seed: int = Field(default=0, ge=0)


class GateSettings(Section):
    """What a challenger must show before it may become champion."""

    held_out: str | None = Field(default=None, description="dataset on which it may not be worse")
    max_drop: float = Field(default=0.01, ge=0, le=1, description="allowed accuracy drop on it")
    min_gain: float = Field(default=0.0, ge=-1, le=1, description="needed gain on held-out flagged rows")
    shadow_rows: int = Field(default=0, ge=0, description="live rows judged before the verdict")
    shadow_timeout_s: float = Field(default=30.0, gt=0)
    auto_promote: bool = True


class ModelSettings(Section):
    """One model under watch."""

    architecture: str | None = Field(default=None, description="file.py:callable returning nn.Module")
    predictor: str | None = Field(default=None, description="file.py:callable, Batch -> outputs")
    weights: str | None = Field(default=None, description="safetensors of the first version")
    version: str = "1"
    task: Literal["classification", "other"] = "classification"
    inputs: tuple[str, ...] = Field(default=(), description="columns fed to the module, in order")
    target: str = "label"
    classes: tuple[int | str, ...] = ()
    assertions: tuple[str, ...] = ()
    behavior: tuple[str, ...] = ()
    slice_by: str | None = None
    columns: dict[str, str] = Field(default_factory=dict, description="declared column types")
    expectations: tuple[dict[str, Any], ...] = ()
    labels: LabelSettings = LabelSettings()
    retrain: RetrainSettings = RetrainSettings()
    gate: GateSettings = GateSettings()

    @model_validator(mode="after")
    def _consistent(self) -> "ModelSettings":
        if self.architecture and self.predictor:
            raise ValueError("architecture and predictor exclude each other: name one")
        if self.architecture and not self.weights:
            raise ValueError("architecture needs weights: the safetensors file of version 1")
        if self.architecture and not self.inputs:
            raise ValueError("architecture needs inputs: the columns fed to the module")
        if self.architecture and self.task == "classification" and not self.classes:
            raise ValueError("task = 'classification' needs classes: the value of each output of the module")
        return self


class WebhookSettings(Section):
    """Where events are posted, signed as in Standard Webhooks."""

    url: str
    events: tuple[str, ...] = ("retrain.requested", "gate.refused", "model.promoted", "model.rolled_back")
    secret: str | None = None
    secret_file: str | None = None
    allow_private: bool = Field(default=False, description="allow loopback and private addresses")


class Settings(BaseSettings):
    """All of ``outrider.toml``."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="OUTRIDER_", env_nested_delimiter="__"
    )

    server: ServerSettings = ServerSettings()
    storage: StorageSettings = StorageSettings()
    limits: LimitSettings = LimitSettings()
    host: HostSettings = HostSettings()
    worker: WorkerSettings = WorkerSettings()
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    webhooks: tuple[WebhookSettings, ...] = ()
    base: Path = Field(default=Path(), exclude=True, description="folder of the file")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment above what the file said (which comes in as init arguments)."""
        return env_settings, init_settings

    @property
    def data_folder(self) -> Path:
        """Absolute path of the data folder."""
        return (self.base / self.storage.folder).resolve()

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL of ``state.db``."""
        return f"sqlite:///{self.data_folder / 'state.db'}"

    @property
    def journal_path(self) -> Path:
        """Path of ``journal.db``."""
        return self.data_folder / "journal.db"

    def path(self, relative: str) -> Path:
        """Resolve a path named in the file against the folder of the file."""
        return (self.base / relative).resolve()


def load_settings(path: Path | str = "outrider.toml") -> Settings:
    """Read and check a configuration file.

    Raises
    ------
    ConfigError
        Naming the key, what was expected, what came, and the nearest known key.
    """
    path = Path(path)
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist; `outrider init` writes one, --config names another"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        return Settings(**raw, base=path.resolve().parent)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in _explain(error))) from error


def _explain(error: ValidationError) -> list[str]:
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"]) or "(file)"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(problem["loc"][-1]), _known_keys(problem["loc"]), n=1)
            message = "unknown key" + (
                f"; did you mean {near[0]!r}?" if near else "; see docs/configuration.md"
            )
        elif problem["type"] not in ("missing", "value_error"):
            message += f", got {problem['input']!r}"
        lines.append(f"{key}: {message}")
    return lines


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    """Keys that may stand where ``location`` points."""
    section: type[BaseModel] = Settings
    for part in location[:-1]:
        if isinstance(part, str) and part in section.model_fields:
            kinds = [section.model_fields[part].annotation, *get_args(section.model_fields[part].annotation)]
            found = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
            section = found[0] if found else section
    return sorted(set(section.model_fields) - {"base"})


def find_config(explicit: Path | None = None) -> Path:
    """Path of the configuration: ``explicit``, else ``OUTRIDER_CONFIG``, else ``outrider.toml`` here."""
    return explicit or Path(os.environ.get("OUTRIDER_CONFIG", "outrider.toml"))
