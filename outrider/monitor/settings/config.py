"""Settings of ``outrider.toml``; precedence: command line > environment ``OUTRIDER_SECTION__KEY`` > file >
default."""

import os
import tomllib
from pathlib import Path
from urllib.parse import quote

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from outrider.errors import ConfigError, check_name

from . import sections
from .explanations import explain
from .gate_policy import with_file
from .model_sections import ModelSettings
from .reload import accepted_copy

INCIDENTS = "behavior/incidents.suite.json"
"""Default incident suite (cases made from flagged records) if there is only one model."""
SAMPLES = (".jsonl", ".json", ".csv", ".parquet")
"""File extensions of ``data/sample.*``, in order of precedence."""


class Settings(BaseSettings):
    """All of ``outrider.toml``."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="OUTRIDER_", env_nested_delimiter="__"
    )

    server: sections.ServerSettings = sections.ServerSettings()
    storage: sections.StorageSettings = sections.StorageSettings()
    limits: sections.LimitSettings = sections.LimitSettings()
    connections: sections.ConnectionSettings = sections.ConnectionSettings()
    intake: sections.IntakeSettings = sections.IntakeSettings()
    host: sections.HostSettings = sections.HostSettings()
    worker: sections.WorkerSettings = sections.WorkerSettings()
    trainer: sections.TrainerSettings = sections.TrainerSettings()
    flags: sections.FlagSettings = sections.FlagSettings()
    quality: sections.QualitySettings = sections.QualitySettings()
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    webhooks: tuple[sections.WebhookSettings, ...] = ()
    alerts: sections.AlertSettings = sections.AlertSettings()
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
        """Environment before file; the values of the file are passed as init arguments."""
        return env_settings, init_settings

    @field_validator("models")
    @classmethod
    def _model_names(cls, models: dict[str, ModelSettings]) -> dict[str, ModelSettings]:
        for name, own in models.items():
            if "@" in name:
                raise ValueError(f"model {name!r}: a name expected without '@', which a version follows")
            check_name(name, "model")
            check_name(own.version, f"models.{name}.version:", has_parts=True)
        return models

    @model_validator(mode="after")
    def _names_of_requests(self) -> "Settings":
        owners = dict.fromkeys(self.models, "")
        for model, own in self.models.items():
            for name in own.intake.request_models:
                other = owners.setdefault(name, model)
                if other != model and name != model:
                    owner = f"model {other}'s too" if other else "another model"
                    raise ValueError(f"models.{model}.intake.request_models: {name!r} is {owner}")
        return self

    @model_validator(mode="after")
    def _keys_of_uploads(self) -> "Settings":
        """Refuse an uploaded endpoint's key variable that another endpoint or setting uses, too."""
        owners: dict[str, str] = {}
        for model, own in self.models.items():
            owners |= {name: f"models.{model}.{key}" for key, name in own.key_variables.items()}
        for model, own in self.models.items():
            for origin, name in own.uploads.key_envs.items():
                place = origin.partition("://")[2]
                if (owner := owners.setdefault(name, place)) != place:
                    raise ValueError(
                        f"models.{model}.uploads.key_envs: {origin}: a variable of its own expected, got "
                        f"{name}, which is the key of {owner}"
                    )
        return self

    @property
    def data_folder(self) -> Path:
        return (self.base / self.storage.folder).resolve()

    @property
    def database_url(self) -> str:
        return f"sqlite:///{self.data_folder / 'state.db'}"

    @property
    def journal_path(self) -> Path:
        return self.data_folder / "journal.db"

    def join_s(self, model: str) -> float:
        """Seconds that a model's request or response waits for its counterpart."""
        own = self.models[model].intake.join_s
        return self.intake.join_s if own is None else own

    @property
    def sample_file(self) -> Path | None:
        """Sample records in ``data/sample.*``; None without a file, or with several models."""
        files = [self.path(f"data/sample{ending}") for ending in SAMPLES]
        return next((file for file in files if file.is_file()), None) if len(self.models) == 1 else None

    def path(self, relative: str) -> Path:
        """Resolve a configured path relative to the configuration file."""
        return (self.base / relative).resolve()

    def incident_suite(self, model: str) -> Path:
        """Suite file for cases made from a model's flagged records; it may not exist yet."""
        named = self.models[model].incident_suite
        return self.path(named or (INCIDENTS if len(self.models) == 1 else _incidents_of(model)))

    def behavior_files(self, model: str) -> list[Path]:
        """Configured suite files of a model, and its incident suite if that exists."""
        incidents = self.incident_suite(model)
        named = [self.path(file) for file in self.models[model].behavior]
        return named + ([incidents] if incidents.is_file() and incidents not in named else [])

    def left_incidents(self) -> Path | None:
        """Default incident suite that became unused when models were added or removed, or None."""
        used = {self.path(file) for own in self.models.values() for file in own.behavior}
        used |= {self.incident_suite(model) for model in self.models}
        names = map(self.path, (INCIDENTS, *map(_incidents_of, self.models)))
        return next((p for p in names if p.is_file() and used.isdisjoint((p, *p.parents))), None)


def _incidents_of(model: str) -> str:
    """Default incident suite of a model if there are several models."""
    return f"behavior/{quote(model, safe='')}.incidents.suite.json"


def load_settings(path: Path | str = "outrider.toml", *, copy: Path | None = None) -> Settings:
    """Read and check a configuration file; ``copy`` is read in its place, by default the copy that a
    running service accepted."""
    path = Path(path)
    try:
        raw = tomllib.loads((copy or accepted_copy(path) or path).read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(
            f"{path} does not exist; `outrider init` writes one, --config names another"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        settings = Settings(**raw, base=path.resolve().parent)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for _, line in explain(error, Settings))) from error
    if (left := settings.left_incidents()) is not None:
        name = left.relative_to(settings.base)
        raise ConfigError(
            f"{path}: {name} holds cases of incidents, but since models were added or removed it is no "
            f'model\'s: write incident_suite = "{name}" under the model that it is of'
        )
    gates = {name: with_file(own.gate, settings.base) for name, own in settings.models.items()}
    named = {name: own.model_copy(update={"gate": gates[name]}) for name, own in settings.models.items()}
    return settings.model_copy(update={"models": named})


def accepted_settings(path: Path) -> Settings:
    """Settings of the file or, if it is invalid, of the copy that a service last accepted."""
    try:
        return load_settings(path)
    except ConfigError:
        copy = path.resolve().parent / sections.StorageSettings().folder / "run" / "outrider.toml"
        if not copy.is_file():
            raise
        return load_settings(path, copy=copy)


def find_config(explicit: Path | None = None) -> Path:
    """Path of the configuration: ``explicit``, else ``OUTRIDER_CONFIG``, else ``outrider.toml`` here."""
    return explicit or Path(os.environ.get("OUTRIDER_CONFIG", "outrider.toml"))
