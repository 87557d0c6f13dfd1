"""Registration of configured versions: the first champion, and challengers.

A version stays what it was registered as: a challenger whose section or files changed is retired until it is
renamed, one without a section until it returns. Decisions of people and gate stay.
"""

import logging
from collections.abc import Iterable
from dataclasses import asdict, replace

from sqlalchemy import Connection, Engine

from outrider.dataops.model_kinds.content import ADAPTER, FOLDER, Content, NotThere, content_of
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.models.registry import Model
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.state.database import now_us, write
from outrider.errors import ConfigError
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.sources import challenger_source, challenger_weights, source_of

from .declared_shares import refuse_wrong_shares

log = logging.getLogger(__name__)

GONE = "its section is gone from the configuration"
CHANGED = "it has changed since it was registered"


class Registration:
    """Registrar of configured versions, also of those whose files come later.

    ``problems`` are reasons by model and version.
    """

    def __init__(self, settings: Settings, engine: Engine, objects: ObjectStore) -> None:
        self._settings = settings
        self._engine = engine
        self._objects = objects
        self.unregistered = set(settings.models)
        self.problems: dict[tuple[str, str], str] = {}
        self._missing = {
            (name, version) for name, own in settings.models.items() for version in own.challengers
        }
        with write(engine) as connection:
            for name, own in settings.models.items():
                _retire(connection, name, own.challengers)

    def update(self) -> None:
        for name in sorted(self.unregistered):
            if register_champion(self._engine, self._objects, self._settings, name):
                self.unregistered.discard(name)
        for name, version in sorted(self._missing):
            self._missing.discard((name, version))
            try:
                made = challenger_content(self._engine, self._objects, self._settings, name, version)
                with write(self._engine) as connection:
                    reason = _settle(connection, self._objects, name, version, made)
            except NotThere as error:
                reason = str(error)
                self._missing.add((name, version))
            except ConfigError as error:
                reason = str(error)
            self._note(name, version, reason)

    def _note(self, name: str, version: str, reason: str | None) -> None:
        if reason is None:
            self.problems.pop((name, version), None)
        elif self.problems.get((name, version)) != reason:
            self.problems[name, version] = reason
            log.error("challenger %s of %s does not answer: %s", version, name, reason)


def register_champion(engine: Engine, objects: ObjectStore, settings: Settings, name: str) -> bool:
    """Register the configured champion of a model without one; False where a file is missing.

    A first version follows its changed section, except for weights and folders.
    """
    source = source_of(settings, name)
    if source is None:
        return True
    own = settings.models[name]
    with engine.connect() as connection:
        known = {found.version: found for found in models.all_versions(connection, name)}
    if any(found.status == "champion" for found in known.values()):
        if (first := known.get(own.version)) is not None:
            _follow(engine, first, source)
        return True
    try:
        made = content_of(source, settings.base, settings.path(own.weights) if own.weights else None)
    except NotThere:
        return False
    with write(engine) as connection:
        models.register_initial(
            connection,
            objects,
            model=name,
            version=own.version,
            content=made.kept if made.kept is not None else made.source.to_json().encode(),
            is_weights=made.weights is not None,
            now_us=now_us(),
            source=made.source.to_json(),
            digest=made.digest,
        )
    return True


def challenger_content(
    engine: Engine, objects: ObjectStore, settings: Settings, name: str, version: str
) -> Content:
    """Content of a challenger from its section and files; NotThere where one is missing yet,
    ConfigError where section or shares are wrong."""
    source = challenger_source(settings, name, version)
    weights = challenger_weights(settings, name, version)
    is_inherited = settings.models[name].challengers[version].kind is None
    if weights is None and (source.kind == "torch" or (source.kind == "hf" and is_inherited)):
        return content_of(source, settings.base, _weights_of_base(engine, source))
    made = content_of(source, settings.base, weights)
    if source.shares and source.adapted_from is not None:
        model, _, base = source.adapted_from.rpartition("@")
        kept = _weights_of_base(engine, source)
        stored = {(model, base): None if kept is None else objects.get(kept), (name, version): made.kept}
        refuse_wrong_shares(settings, name, version, source, stored.get)
    return made


def changed_challengers(engine: Engine, objects: ObjectStore, settings: Settings, name: str) -> list[str]:
    problems = []
    for version in settings.models[name].challengers:
        with engine.connect() as connection:
            known = {found.version: found for found in models.all_versions(connection, name)}
        if version not in known:
            continue
        try:
            made = challenger_content(engine, objects, settings, name, version)
        except ConfigError:
            continue  # told by whoever looks at its files
        if (reason := _difference(known[version], made)) is not None:
            problems.append(f"challengers.{version}: {reason}")
    return problems


def _weights_of_base(engine: Engine, source: Source) -> str | None:
    if source.adapted_from is None:
        return None
    model, _, version = source.adapted_from.rpartition("@")
    with engine.connect() as connection:
        known = {found.version: found for found in models.all_versions(connection, model)}
    if version not in known:
        raise NotThere(f"adapted_from: {source.adapted_from} is not registered yet")
    return known[version].weights


def _settle(
    connection: Connection, objects: ObjectStore, name: str, version: str, made: Content
) -> str | None:
    """Register a challenger, or compare it with the one registered under its name; returns why it
    cannot be."""
    known = {found.version: found for found in models.all_versions(connection, name)}
    if version not in known:
        _register(connection, objects, name, version, made)
        return None
    found = known[version]
    if (reason := _difference(found, made)) is not None:
        if found.status == "challenger" and found.note == models.NAMED:
            models.set_status(connection, name, version, "retired", now_us=now_us(), note=CHANGED)
        return reason
    if found.status == "retired" and found.note in (GONE, CHANGED):
        models.set_status(connection, name, version, "challenger", now_us=now_us(), note=models.NAMED)
    return None


def _register(connection: Connection, objects: ObjectStore, name: str, version: str, made: Content) -> None:
    base = made.source.adapted_from
    if made.kept is not None:
        objects.put(made.kept)
    models.register(
        connection,
        model=name,
        version=version,
        status="challenger",
        digest=made.digest,
        weights=made.weights,
        now_us=now_us(),
        note=models.NAMED,
        source=made.source.to_json(),
        made_from=[("model", base, "weights")] if base is not None else [],
    )


def _difference(found: Model, made: Content) -> str | None:
    if found.source == made.source.to_json() and found.digest == made.digest:
        return None
    if found.source == made.source.to_json():
        why = "and its files have changed since"
    else:
        old, new = asdict(Source.from_json(found.source)), asdict(made.source)
        why = f"with other {', '.join(key for key in new if old[key] != new[key])}"
        why += "" if found.note in (models.NAMED, GONE, CHANGED) else f" ({found.note})"
    return f"version {found.version} is registered already, {why}; give the challenger another name"


def _retire(connection: Connection, name: str, named: Iterable[str]) -> None:
    for found in models.all_versions(connection, name):
        if found.status == "challenger" and found.note == models.NAMED and found.version not in named:
            models.set_status(connection, name, found.version, "retired", now_us=now_us(), note=GONE)


def _follow(engine: Engine, first: Model, source: Source) -> None:
    """Update the first version of a model to its section."""
    stored = Source.from_json(first.source)
    pins = {key: stored.options[key] for key in (FOLDER, ADAPTER) if key in stored.options}
    wanted = replace(source, options={**source.options, **pins})
    if wanted == stored or wanted.kind != stored.kind or wanted.adapted_from != stored.adapted_from:
        return
    log.info("%s follows its section of the configuration", first.id)
    with write(engine) as connection:
        models.set_source(connection, first.model, first.version, wanted.to_json())
