"""Service that views read from: its stores, settings and processes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from sqlalchemy import Engine

from outrider.assertions.flags.quality import SuspensionRule
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.payloads.store import PayloadStore
from outrider.dataops.state.database import open_database
from outrider.monitor.http.common import known_model
from outrider.monitor.http.keyring import Keyring
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.http.refusals import RefusalBook, RefusedKind
from outrider.monitor.http.refused_copies import RefusedCopy
from outrider.monitor.queries.blocks import BlockCache
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.settings.payloads import near_payloads
from outrider.monitor.settings.reload import read_state
from outrider.monitor.web.flag_cards import CardMaker
from outrider.monitor.web.frame import PageFrame
from outrider.monitor.web.label_form import LabelWriter

T = TypeVar("T")
REFUSED = 20


@dataclass(frozen=True)
class Service:
    """First argument of every view.

    Attributes
    ----------
    health
        Process name to whether it reports, as ``ProcessesCollector.health``.
    refusals
        Counts of what intake refused.
    labels
        Takes labels that people give on a record's page; None leaves the form out.
    refused
        Copies of requests that were refused lately.
    """

    engine: Engine
    journal: SqliteJournal
    settings: Settings
    keyring: Keyring
    health: Callable[[], Mapping[str, bool]] = dict
    refusals: RefusalBook = field(default_factory=RefusalBook)
    labels: LabelWriter | None = None
    refused: Callable[[], Sequence[RefusedCopy]] = tuple
    _readers: dict[Callable[["Service"], Any], Any] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        settings: Settings,
        keyring: Keyring,
        *,
        health: Callable[[], Mapping[str, bool]] = dict,
        refusals: RefusalBook | None = None,
        labels: LabelWriter | None = None,
        refused: Callable[[], Sequence[RefusedCopy]] = tuple,
    ) -> "Service":
        """Service over a data folder, with a journal connection of its own."""
        journal = SqliteJournal(settings.journal_path, max_bytes=None, read_only=True)
        engine = open_database(settings.database_url)
        refusals = refusals or RefusalBook()
        return cls(engine, journal, settings, keyring, health, refusals, labels, refused)

    def one(self, reader: Callable[["Service"], T]) -> T:
        """Reader that all requests share."""
        if reader not in self._readers:
            self._readers[reader] = reader(self)
        made: T = self._readers[reader]
        return made

    def model(self, name: str) -> ModelSettings:
        """Settings of a model, or NotFound."""
        return known_model(self.settings, name)

    def known(self, name: str) -> None:
        """Refuse a model that neither the configuration nor any record names."""
        models = self.frame.models()
        if name not in models:
            there = ", ".join(models) or "none"
            raise ProblemError(problem(404, f"there is no model {name!r}; there is {there}", field="model"))

    def rejected(self, model: str) -> list[RefusedKind]:
        """Kinds of refused records on a page."""
        return self.refusals.listed(model, tuple(self.settings.models))[:REFUSED]

    @cached_property
    def payloads(self) -> PayloadStore:
        """Reads what payloads refer to, as far as it is at hand."""
        return near_payloads(self.settings)

    @cached_property
    def objects(self) -> LocalObjects:
        """Files of datasets and weights."""
        return LocalObjects(self.settings.data_folder / "objects")

    @cached_property
    def blocks(self) -> BlockCache:
        """Decoded blocks of the journal."""
        return BlockCache(self.journal)

    @cached_property
    def frame(self) -> PageFrame:
        """Frame around every page."""
        return PageFrame(
            self.engine,
            tuple(self.settings.models),
            lambda: read_state(self.settings.data_folder),
            self.refused,
        )

    @cached_property
    def cards(self) -> CardMaker:
        """Cards of records."""
        return CardMaker(self.engine, self.blocks)

    @cached_property
    def rule(self) -> SuspensionRule:
        """Rule for proposing an assertion's suspension."""
        return self.settings.quality.fill(SuspensionRule)

    @cached_property
    def alarm_rule(self) -> AlarmRule:
        """Guarantee of alarms."""
        return self.settings.flags.fill(AlarmRule)
