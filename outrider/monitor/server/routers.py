"""Routers of queries, commands and pages for the intake process.

Imported after intake answers: taking records must not wait for SQL and templates.
"""

from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter

from outrider.dataops.comparisons import Comparisons
from outrider.dataops.journal.journal import SqliteJournal
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.state.database import now_us, open_database
from outrider.monitor.api.access import access_routes
from outrider.monitor.api.agreement import agreement_routes
from outrider.monitor.api.comparisons import comparison_routes
from outrider.monitor.api.data import data_routes
from outrider.monitor.api.erasures import erasure_routes
from outrider.monitor.api.export import export_routes
from outrider.monitor.api.jobs import job_routes
from outrider.monitor.api.judges import judge_routes
from outrider.monitor.api.outside.external_jobs import external_job_routes
from outrider.monitor.api.outside.uploads import upload_routes
from outrider.monitor.api.pauses import pause_routes
from outrider.monitor.api.proposals import proposal_routes
from outrider.monitor.api.read import read_routes
from outrider.monitor.api.rejected import rejected_routes
from outrider.monitor.api.suites import suite_routes
from outrider.monitor.api.traffic.alarms import alarm_routes
from outrider.monitor.api.traffic.drift import drift_routes
from outrider.monitor.api.traffic.fairness import fairness_routes
from outrider.monitor.api.traffic.profiles import profile_routes
from outrider.monitor.api.traffic.series import series_routes
from outrider.monitor.api.traffic.weak_slices import weak_slice_routes
from outrider.monitor.api.triggers import trigger_routes
from outrider.monitor.api.watches import watch_routes
from outrider.monitor.api.weak_labels import weak_label_routes
from outrider.monitor.http.common import suspension_rule, targets_of
from outrider.monitor.http.keyring import Keyring
from outrider.monitor.http.refusals import RefusalBook
from outrider.monitor.http.refused_copies import RefusedCopy
from outrider.monitor.queries.alarms import AlarmReader
from outrider.monitor.queries.drift import DriftReader
from outrider.monitor.queries.learning import Learner
from outrider.monitor.queries.suite_cases import CaseWriter
from outrider.monitor.queries.triggers import TriggerList, list_triggers
from outrider.monitor.queries.weak_slices import SliceSearch
from outrider.monitor.settings.alarm_rule import alarm_rule
from outrider.monitor.settings.config import Settings
from outrider.monitor.settings.payloads import near_payloads
from outrider.monitor.settings.reload import read_state
from outrider.monitor.web.data_docs_page import data_docs_routes
from outrider.monitor.web.label_form import LabelWriter
from outrider.monitor.web.routes import web_routes


def all_routers(
    settings: Settings,
    health: Callable[[], Mapping[str, bool]],
    keyring: Keyring,
    refusals: RefusalBook | None = None,
    labels: LabelWriter | None = None,
    *,
    refused: Callable[[], Sequence[RefusedCopy]] = tuple,
) -> list[APIRouter]:
    refusals = refusals or RefusalBook()
    engine = open_database(settings.database_url)
    journal = SqliteJournal(settings.journal_path, max_bytes=None, read_only=True)
    objects = LocalObjects(settings.data_folder / "objects")
    models = tuple(settings.models)
    learner, slices = Learner(settings), SliceSearch(engine, settings)
    drift, alarms = DriftReader(engine, settings), AlarmReader(engine, settings)
    cases = CaseWriter(engine, journal, settings)

    def triggers(model: str) -> TriggerList | None:
        own = settings.models.get(model)
        return None if own is None else list_triggers(engine, model, own, now_us=now_us())

    comparisons = Comparisons(settings.data_folder, most=settings.storage.keep_comparisons)
    return [
        read_routes(
            engine,
            journal,
            models=models,
            health=health,
            rule=suspension_rule(settings),
            alarms=alarm_rule(settings),
        ),
        data_routes(engine, settings, objects, journal),
        upload_routes(engine, settings, objects),
        external_job_routes(engine, settings, objects),
        erasure_routes(engine, settings),
        export_routes(journal, settings),
        agreement_routes(engine, settings),
        series_routes(engine, settings),
        job_routes(engine, settings),
        watch_routes(engine, settings),
        trigger_routes(engine, settings),
        comparison_routes(comparisons),
        judge_routes(engine, settings),
        pause_routes(engine, settings),
        rejected_routes(settings, refusals),
        fairness_routes(engine, settings, objects),
        weak_slice_routes(settings, slices),
        drift_routes(settings, drift),
        alarm_routes(alarms),
        profile_routes(engine, settings),
        weak_label_routes(engine, settings),
        proposal_routes(engine, settings, learner),
        suite_routes(cases),
        access_routes(keyring),
        data_docs_routes(engine, objects),
        web_routes(
            engine,
            journal,
            models=models,
            health=health,
            rule=suspension_rule(settings),
            alarm_rule=alarm_rule(settings),
            targets=targets_of(settings),
            learner=learner,
            cases=cases,
            config=lambda: read_state(settings.data_folder),
            payloads=near_payloads(settings),
            refusals=refusals,
            labels=labels,
            keyring=keyring,
            refused=refused,
            comparisons=comparisons,
            objects=objects,
            triggers=triggers,
            slices=slices,
            drift=drift,
            alarms=alarms,
        ),
    ]
