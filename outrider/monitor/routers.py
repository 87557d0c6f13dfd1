"""Routers of queries, commands and pages for the intake process.

Imported after intake answers: taking records must not wait for SQL and templates.
"""

from collections.abc import Callable, Mapping

from fastapi import APIRouter

from outrider.dataops.database import open_database
from outrider.dataops.journal import SqliteJournal
from outrider.dataops.objects import LocalObjects

from .api_common import suspension_rule, targets_of
from .config import Settings
from .learning import Learner
from .payload_settings import near_payloads
from .reload import read_state
from .routes_agreement import agreement_routes
from .routes_data import data_routes
from .routes_export import export_routes
from .routes_fairness import fairness_routes
from .routes_judges import judge_routes
from .routes_pauses import pause_routes
from .routes_proposals import proposal_routes
from .routes_read import read_routes
from .routes_suites import suite_routes
from .routes_weak_labels import weak_label_routes
from .suite_cases import CaseWriter
from .web.routes import web_routes


def all_routers(settings: Settings, health: Callable[[], Mapping[str, bool]]) -> list[APIRouter]:
    """Routers over this data folder.

    They read the journal through a connection of their own.
    """
    engine = open_database(settings.database_url)
    journal = SqliteJournal(settings.journal_path, max_bytes=None, read_only=True)
    objects = LocalObjects(settings.data_folder / "objects")
    models = tuple(settings.models)
    learner = Learner(settings)
    cases = CaseWriter(engine, journal, settings)
    return [
        read_routes(engine, journal, models=models, health=health, rule=suspension_rule(settings)),
        data_routes(engine, settings, objects, journal),
        export_routes(journal, settings),
        agreement_routes(engine, settings),
        judge_routes(engine, settings),
        pause_routes(engine, settings),
        fairness_routes(engine, settings, objects, journal),
        weak_label_routes(engine, settings),
        proposal_routes(engine, settings, learner),
        suite_routes(cases),
        web_routes(
            engine,
            journal,
            models=models,
            health=health,
            rule=suspension_rule(settings),
            targets=targets_of(settings),
            learner=learner,
            cases=cases,
            config=lambda: read_state(settings.data_folder),
            payloads=near_payloads(settings),
        ),
    ]
