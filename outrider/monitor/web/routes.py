"""The pages: HTTP in, a query, a template out."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from sqlalchemy import Engine
from starlette.responses import RedirectResponse, Response

from outrider.assertions.flags.quality import SuspensionRule
from outrider.dataops.alarms import stored_incidents
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.comparisons import Comparisons
from outrider.dataops.flags import quality
from outrider.dataops.outbox import WebhookTarget
from outrider.dataops.payloads.objects import ObjectStore
from outrider.dataops.payloads.payloads import without_payloads
from outrider.dataops.payloads.store import PayloadStore
from outrider.dataops.state.database import now_us
from outrider.errors import NotFound
from outrider.monitor.http.common import StoredNumber
from outrider.monitor.http.error_page import HEADERS
from outrider.monitor.http.keyring import Keyring
from outrider.monitor.http.refusals import RefusalBook, RefusedKind
from outrider.monitor.http.refused_copies import RefusedCopy
from outrider.monitor.queries import improvement, queries, stories
from outrider.monitor.queries.alarms import AlarmReader
from outrider.monitor.queries.assertion_page import read_assertion
from outrider.monitor.queries.behavior import COLUMNS, STATUSES, read_detail, read_matrix
from outrider.monitor.queries.blocks import BlockCache, BlockReader
from outrider.monitor.queries.cases import cases_of, picture_of, plots_of
from outrider.monitor.queries.dataset_diff import PAGE_ROWS, read_dataset_diff
from outrider.monitor.queries.dataset_page import read_dataset_page
from outrider.monitor.queries.dataset_version import read_dataset_version
from outrider.monitor.queries.drift import DriftReader
from outrider.monitor.queries.fleet import ORDER, read_fleet
from outrider.monitor.queries.learning import MOST_RECORDS, Learner
from outrider.monitor.queries.overview import (
    DEFAULT_RULE,
    list_choices,
    list_descriptions,
    read_overview,
)
from outrider.monitor.queries.payload_views import flatten, picture
from outrider.monitor.queries.suite_cases import CaseWriter
from outrider.monitor.queries.triggers import TriggerList
from outrider.monitor.queries.weak_slices import SliceSearch
from outrider.monitor.settings.reload import ConfigState

from .access_pages import access_pages
from .agreement_page import read_agreement
from .bounds_chart import worse_chart
from .comparison_pages import comparison_pages
from .fairness_page import read_fairness
from .flag_cards import CardMaker
from .forms import PageForms
from .frame import PageFrame
from .growth_chart import growth_chart
from .highlights import fields_of, fields_of_part
from .incident_pages import incident_pages
from .label_form import LabelWriter
from .model_drift_page import model_drift_pages
from .pictures import draw, draw_evidence, make_card, make_cards, record_link, record_pictures
from .rendering import API_HEADERS
from .series_view import COMPARED, RANGES, read_series_view
from .slices_page import slices_pages

VERDICTS = {name: name for name in ORDER} | {"waiting": "no records"}
PAGE_FLAGS = 60
ASSERTION_FLAGS = 24
NEIGHBOURS = 5
REFUSED = 20
"""Kinds of refused records on a page."""
SKIP_DIGITS = 6
TIME_DIGITS = 18
"""Of microseconds that the database can hold."""
"""Of the number of columns that a matrix leaves out."""
_NO_PICTURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#8a8f9c">'
    '<circle cx="12" cy="12" r="5"/><path d="m8.5 15.5 7-7"/></svg>'
)
"""In the place of a picture that cannot be shown; browsers draw what comes with a 404 too."""
_PICTURE_HEADERS = {
    "cache-control": "private, max-age=86400, immutable",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'",
}


@dataclass(frozen=True, slots=True)
class WebPage:
    """Answers of the pages; one method per page."""

    _engine: Engine
    _journal: BlockReader
    _blocks: BlockCache
    _frame: PageFrame
    _health: Callable[[], Mapping[str, bool]]
    _rule: SuspensionRule
    _learner: Learner | None
    _payloads: PayloadStore
    _refusals: RefusalBook
    _labels: LabelWriter | None
    _objects: ObjectStore | None
    _triggers: Callable[[str], TriggerList | None]
    _cards: CardMaker
    _alarm_rule: AlarmRule

    def home(self, request: Request) -> Response:
        """The fleet, or how to get one."""
        models = self._frame.models()
        if models:
            with self._engine.connect() as connection:
                lines = read_fleet(connection, models, self._alarm_rule, now_us=now_us())
            return self._frame.plain(request, "fleet.html", "/", {"lines": lines, "verdicts": VERDICTS})
        text = "No model is configured: add a [models.<name>] section to outrider.toml."
        return self._frame.message("No model yet", text, status=200)

    def static(self, name: str) -> Response:
        """A file of the page's own."""
        return self._frame.pages.static(name) or self._frame.message("Not found", f"There is no file {name}.")

    def api(self, request: Request) -> Response:
        """The HTTP API, to read and to try."""
        token = getattr(request.state, "csrf_token", "")
        return self._frame.pages.render("api.html", {"csrf_token": token}, headers=API_HEADERS)

    def overview(self, request: Request, model: str) -> Response:
        """Rates, series, health."""
        last = self._blocks.last_work_seq()
        view = read_overview(self._engine, model, now_us=now_us(), last_seq=last, rule=self._rule)
        with self._engine.connect() as connection:
            current = stored_incidents.list_incidents(
                connection, now_us=view.now_us, model=model, status="current", limit=20
            )
        champion = next((version for version in view.versions if version.status == "champion"), None)
        challengers = [version.version for version in view.versions if version.status == "challenger"]
        version, accuracy = view.accuracy_beside(champion.version if champion else None)
        known = view.accuracy.get("", {})
        shown = sorted(known, key=lambda one: (one != version, -known[one].trials))[:4]
        trends = read_series_view(self._engine, model, request.query_params, now_us=view.now_us)
        context = {
            "o": view,
            "champion": champion,
            "challengers": challengers,
            "watch": next(iter(improvement.list_watches(self._engine, model, limit=1)), None),
            "triggers": self._triggers(model),
            "accuracy_all": accuracy,
            "accuracy_version": version,
            "trends": trends,
            "last_record_us": view.last_record_us,
            "ranges": RANGES,
            "compared": COMPARED,
            "slices": view.slices,
            "incidents": current,
            "accuracy_versions": shown,
            "accuracy": {part: by for part, by in view.accuracy.items() if not by.keys().isdisjoint(shown)},
            "health": self._health(),
            "rejected": self._rejected(model),
            "most": max([row.per_1000.get("champion", 0.0) for row in view.assertions], default=0.0) or 1.0,
        }
        return self._frame.page(request, "overview.html", model, "", context, refresh=True)

    def flags(
        self,
        request: Request,
        model: str,
        assertion: str = "",
        slot: str = "",
        level: str = "",
        reviewed: str = "",
        after: str = "",
    ) -> Response:
        """Flagged records, filtered and paged."""
        chosen = {"assertion": assertion, "slot": slot, "level": level, "reviewed": reviewed}
        try:
            page = queries.list_flags(
                self._engine,
                model,
                assertion=assertion or None,
                slot=slot or None,
                level=level or None,
                reviewed={"yes": True, "no": False}.get(reviewed),
                limit=PAGE_FLAGS,
                after=after or None,
            )
        except ValueError as error:
            return self._frame.message("Bad address", str(error), status=422)
        address = f"/m/{quote(model, safe='')}/flags"
        kept = {name: value for name, value in chosen.items() if value}
        names, slots = list_choices(self._engine, model)
        about = list_descriptions(self._engine, model)
        context = {
            "cards": [self._cards.shown(card, about) for card in make_cards(page.flags, self._blocks.batch)],
            "chosen": chosen,
            "choices": [
                ("assertion", "Assertion", names),
                ("slot", "Slot", slots),
                ("level", "Level", ["info", "warning", "critical"]),
                ("reviewed", "Reviewed", ["no", "yes"]),
            ],
            "any_filter": bool(kept),
            "exhausted": page.exhausted,
            "first_link": _address(address, kept) if after else None,
            "next_link": _address(address, kept | {"after": page.after}) if page.after else None,
        }
        return self._frame.page(request, "flags.html", model, "/flags", context, refresh=not after)

    def assertion(self, request: Request, model: str, name: str) -> Response:
        """Page of one assertion: meaning, quality, and flagged records."""
        try:
            view = read_assertion(self._engine, model, name, now_us=now_us(), rule=self._rule)
        except NotFound:
            text = f"{model} has no assertion {name!r} now. Its flags stay among the flagged records."
            return self._frame.message("Not found", text, model=model)
        page = queries.list_flags(self._engine, model, assertion=name, limit=ASSERTION_FLAGS)
        about = {name: view.quality.description}
        cards = [self._cards.shown(make_card((flag,), self._blocks.batch), about) for flag in page.flags]
        context = {
            "a": view,
            "q": view.quality,
            "cards": cards,
            "more": page.after is not None,
            "peak": max(view.severities.counts, default=0),
        }
        return self._frame.page(request, "assertion.html", model, "/assertions", context)

    def record(self, request: Request, model: str, record_id: str) -> Response:
        """Page of one record."""
        view = queries.read_record(self._engine, model, record_id)
        if view is None and (why := queries.why_gone(self._engine, model, record_id)):
            return self._frame.message(
                "Gone", f"Record {record_id!r} of {model} {why}.", status=410, model=model
            )
        if view is None:
            return self._frame.message("Not found", f"{model} has no record {record_id!r}.", model=model)
        payload = self._blocks.record(view.seq, view.row)
        batch = self._blocks.batch(view.seq)
        outputs = "Outputs"
        if payload is not None and not payload.get("outputs"):
            outputs = "Outputs of the replica"
            payload = payload | {"outputs": self._cards.answer(view, view.id)}
        about = list_descriptions(self._engine, model)
        fields, _ = fields_of(payload, view.flags, about, most=sys.maxsize)
        marked = {one.name: one for one in fields}
        labelled = "labelled" in request.query_params
        context: dict[str, Any] = {
            "r": view,
            "payload": payload,
            "pictures": record_pictures(batch, model, record_id, view.row),
            "cards": [make_card((flag,), self._blocks.batch) for flag in view.flags],
            "neighbours": self._neighbours(view),
            "labels": self._labels,
            "labelled": labelled,
            "can_label": self._labels is not None and model in self._frame.configured,
            "parts": [
                (title, fields_of_part((payload or {}).get(part, {}), part, marked))
                for part, title in (
                    ("inputs", "Inputs"),
                    ("outputs", outputs),
                    ("label", "Label sent with it"),
                    ("attrs", "Attributes"),
                )
            ],
        }
        return self._frame.page(request, "record.html", model, "/records", context, refresh=labelled)

    def lineage(self, request: Request, model: str, start: str = "") -> Response:
        """Page of the champion's ancestors, or another node's."""
        context = {
            "root": improvement.read_lineage(self._engine, model, start=start or None),
            "start": start,
        }
        return self._frame.page(request, "lineage.html", model, "/lineage", context)

    def retrains(self, request: Request, model: str, before: str = "") -> Response:
        """Stories of retrainings and verdicts, and the line of champions."""
        before_us = int(before) if before.isdecimal() and len(before) <= TIME_DIGITS else None
        told, older = stories.list_stories(self._engine, model, before_us=before_us)
        context = {
            "stories": told,
            "older": older,
            "is_newest": before_us is None,
            "champions": stories.champion_line(self._engine, model, now_us=now_us()),
            "watches": improvement.list_watches(self._engine, model) if before_us is None else [],
            "triggers": self._triggers(model) if before_us is None else None,
            "chart": worse_chart,
        }
        return self._frame.page(request, "retrains.html", model, "/retrains", context, refresh=True)

    def behavior(
        self, request: Request, model: str, capability: str = "", status: str = "", skip: str = ""
    ) -> Response:
        """The matrix of behavioral tests over model versions."""
        first = int(skip) if skip.isdecimal() and len(skip) <= SKIP_DIGITS else 0
        matrix = read_matrix(self._engine, model, capability=capability, status=status, skip=first)
        address = f"/m/{quote(model, safe='')}/behavior"
        kept = {"capability": capability, "status": status}
        context = {
            "matrix": matrix,
            "groups": [
                (name, list(rows)) for name, rows in groupby(matrix.rows, key=lambda row: row.capability)
            ],
            "chosen": kept,
            "statuses": STATUSES,
            "any_filter": any(kept.values()),
            "newer_link": _address(address, kept | {"skip": str(max(0, first - COLUMNS) or "")})
            if first
            else None,
            "older_link": _address(address, kept | {"skip": str(first + COLUMNS)}) if matrix.older else None,
        }
        return self._frame.page(request, "behavior.html", model, "/behavior", context)

    def outcome(self, request: Request, model: str, version: str, suite: str, test: str) -> Response:
        """Page of one test's outcome for a version, with failing cases."""
        found = read_detail(self._engine, model, version, suite, test)
        if found is None:
            text = f"No outcome of {test} ({suite}) is stored for version {version}."
            return self._frame.message("Not found", text, model=model)
        before = found.before.measures if found.before else ()
        context = {
            "d": found,
            "o": found.outcome,
            "status": found.outcome["status"],
            "measured": bool(found.outcome["measures"]),
            "plots": plots_of(found.outcome["measures"], before),
            "cases": cases_of(found.outcome),
            "pictures": "/m/{}/images/behavior/{}/{}/{}".format(
                *(quote(part, safe="") for part in (model, version, suite, test))
            ),
        }
        return self._frame.page(request, "outcome.html", model, "/behavior", context)

    def case_image(
        self, model: str, version: str, suite: str, test: str, case: int, name: str, part: str
    ) -> Response:
        """PNG of a failing case's input, before or after its change."""
        found = read_detail(self._engine, model, version, suite, test)
        return self._png(picture_of(found.outcome, case, name, part) if found else None)

    def datasets(self, request: Request, model: str) -> Response:
        """Dataset versions and refused rows."""
        context = {
            "datasets": improvement.list_datasets(self._engine, model),
            "refused": improvement.list_quarantine(self._engine, model),
            "rejected": self._rejected(model),
        }
        return self._frame.page(request, "datasets.html", model, "/datasets", context)

    def dataset_growth(
        self, request: Request, model: str, name: str, upto: StoredNumber | None = None
    ) -> Response:
        """Dataset: growth, provenance of its labels, quarantine, versions."""
        found = read_dataset_page(self._engine, model, name, upto=upto)
        context = {"v": found, "chart": growth_chart(found.growth)}
        return self._frame.page(request, "dataset_growth.html", model, "/datasets", context)

    def dataset_diff(
        self,
        request: Request,
        model: str,
        name: str,
        old: StoredNumber,
        new: StoredNumber,
        first: StoredNumber = 0,
    ) -> Response:
        """Difference of two dataset versions: rows, reasons, columns."""
        if self._objects is None:
            return self._frame.message("Not found", "Rows of datasets are not shown here.", model=model)
        found = read_dataset_diff(self._engine, self._objects, model, name, old, new, first=first)
        context = {"v": found, "page_rows": PAGE_ROWS}
        return self._frame.page(request, "dataset_diff.html", model, "/datasets", context)

    def dataset(self, request: Request, model: str, name: str, number: StoredNumber) -> Response:
        """Dataset version: facts, class mix, sample rows, difference from its parent."""
        if self._objects is None:
            return self._frame.message("Not found", "Rows of datasets are not shown here.", model=model)
        found = read_dataset_version(self._engine, self._objects, model, name, number)
        return self._frame.page(request, "dataset.html", model, "/datasets", {"v": found, "d": found.version})

    def fairness(self, request: Request, model: str) -> Response:
        """Selection and error rates by group, over time."""
        found = read_fairness(self._engine, model, request.query_params, now_us=now_us())
        context = {"f": found, "ranges": RANGES, "compared": COMPARED}
        return self._frame.page(request, "fairness.html", model, "/fairness", context)

    def agreement(self, request: Request, model: str, version: str = "") -> Response:
        """Challengers beside the champion."""
        found = read_agreement(self._engine, model, version=version)
        return self._frame.page(request, "agreement.html", model, "/agreement", {"a": found}, refresh=True)

    def named_agreement(self, model: str) -> Response:
        """Redirect to the same page by its descriptive address."""
        address = f"/m/{quote(model, safe='')}/agreement"
        return RedirectResponse(address, status_code=303, headers=HEADERS)

    def proposals(self, request: Request, model: str) -> Response:
        """Assertions that stored traffic speaks for."""
        if self._learner is None:
            return self._frame.message("Not found", "Nothing can be learned here.")
        now = self._learner.read(model, quality.active_revisions(self._engine, model))
        context = {
            "l": now,
            "file": now.file.name if now.file else None,
            "free": sum(state in ("proposed", "changed") for state in now.states.values()),
            "waiting": any(state == "accepted" for state in now.states.values()),
            "most": MOST_RECORDS,
        }
        is_running = now.status == "learning"
        return self._frame.page(request, "proposals.html", model, "/proposals", context, refresh=is_running)

    def record_image(self, model: str, column: str, record_id: str) -> Response:
        """PNG of a record's tensor column, or its encoded image."""
        view = queries.read_record(self._engine, model, record_id)
        batch = self._blocks.batch(view.seq) if view else None
        if batch is None or view is None:
            return self._png(None)
        if (found := picture(batch, view.row, column, self._payloads)) is not None:
            return Response(found[0], media_type=found[1], headers=_PICTURE_HEADERS)
        return self._png(draw(batch, view.row, column))

    def flag_image(self, model: str, flag_id: str, name: str) -> Response:
        """PNG of a part of a flag's evidence."""
        flag = queries.read_flag(self._engine, model, flag_id)
        return self._png(draw_evidence(flag.evidence, name) if flag else None)

    def _png(self, image: bytes | None) -> Response:
        if image is None:
            return Response(_NO_PICTURE, 404, media_type="image/svg+xml", headers=HEADERS)
        return Response(image, media_type="image/png", headers=_PICTURE_HEADERS)

    def _rejected(self, model: str) -> list[RefusedKind]:
        return self._refusals.listed(model, self._frame.configured)[:REFUSED]

    def _neighbours(self, view: queries.RecordView) -> list[tuple[str, str, str, bool]]:
        """Pictures around a record: of its entity when it has one, else of the stream."""
        batch = self._blocks.batch(view.seq)
        if batch is None:
            return []
        rows = list(range(batch.rows))
        if view.entity is not None:
            entities = batch.column("entity")
            rows = [row for row in rows if entities[row] == view.entity]
        before = [row for row in rows if row < view.row][-NEIGHBOURS:]
        shown = [*before, view.row, *[row for row in rows if row > view.row][:NEIGHBOURS]]
        outputs = without_payloads(batch.slice(min(shown), max(shown) - min(shown) + 1)).to_records()
        pictures = []
        for row in shown if len(shown) > 1 else []:
            identity = str(batch.keys[row])
            outputs_of_row = outputs[row - min(shown)].get("outputs", {})
            caption = ", ".join(text for _, text in list(flatten(outputs_of_row))[:1]) or identity
            for source, _ in record_pictures(batch, view.model, identity, row)[:1]:
                pictures.append((source, caption, record_link(view.model, identity), row == view.row))
        return pictures


def web_routes(
    engine: Engine,
    journal: BlockReader,
    *,
    models: tuple[str, ...],
    health: Callable[[], Mapping[str, bool]] = dict,
    rule: SuspensionRule = DEFAULT_RULE,
    targets: Sequence[WebhookTarget] = (),
    learner: Learner | None = None,
    cases: CaseWriter | None = None,
    config: Callable[[], ConfigState] = ConfigState,
    payloads: PayloadStore | None = None,
    refusals: RefusalBook | None = None,
    labels: LabelWriter | None = None,
    keyring: Keyring | None = None,
    refused: Callable[[], Sequence[RefusedCopy]] = tuple,
    comparisons: Comparisons | None = None,
    objects: ObjectStore | None = None,
    triggers: Callable[[str], TriggerList | None] = lambda _: None,
    slices: SliceSearch | None = None,
    drift: DriftReader | None = None,
    alarms: AlarmReader | None = None,
    alarm_rule: AlarmRule | None = None,
) -> APIRouter:
    """Routes of the pages, behind the application's gate.

    Parameters
    ----------
    health
        Process name to whether it reports, as ``ProcessesCollector.health``.
    rule
        When an assertion is proposed for suspension.
    targets
        Who is told when a person resolves an incident.
    learner
        Proposes assertions; None leaves that page out.
    cases
        Writes flagged records into suite files; None leaves its buttons out.
    payloads
        Reads what payloads refer to, as far as it is at hand.
    refusals
        Counts of what intake refused.
    labels
        Takes labels that people give on a record's page; None leaves the form out.
    keyring
        Keys and sessions; None leaves the pages of access out.
    refused
        Copies of requests that were refused lately.
    comparisons
        Kept comparisons; None leaves their pages out.
    objects
        Files of dataset versions; None leaves the pages of versions out.
    triggers
        Triggers of retraining of a model; None for one that is not configured.
    slices
        Searches weak slices; None leaves that page out.
    drift
        Reads drift; None leaves that page out.
    alarms
        Reads watched streams; None leaves them out of the page of alarms.
    alarm_rule
        Guarantee of alarms, by which the fleet says what could be found.
    """
    frame = PageFrame(
        engine, models, config, refused, can_learn=learner is not None, can_add=cases is not None
    )
    store = payloads or PayloadStore(max_bytes=0)
    blocks = BlockCache(journal)
    cards = CardMaker(engine, blocks)
    page = WebPage(
        engine,
        journal,
        blocks,
        frame,
        health,
        rule,
        learner,
        store,
        refusals or RefusalBook(),
        labels,
        objects,
        triggers,
        cards,
        alarm_rule or AlarmRule(),
    )
    forms = PageForms(engine, frame, targets, learner, cases, labels)
    router = APIRouter(include_in_schema=False)
    router.add_api_route("/static/{name:path}", page.static)
    for path, answer in (
        ("/", page.home),
        ("/docs", page.api),
        ("/m/{model}", page.overview),
        ("/m/{model}/flags", page.flags),
        ("/m/{model}/lineage", page.lineage),
        ("/m/{model}/retrains", page.retrains),
        ("/m/{model}/datasets", page.datasets),
        ("/m/{model}/datasets/{name}", page.dataset_growth),
        ("/m/{model}/datasets/{name}/diff", page.dataset_diff),
        ("/m/{model}/datasets/{name}/{number}", page.dataset),
        ("/m/{model}/behavior", page.behavior),
        ("/m/{model}/behavior/{version}/{suite}/{test:path}", page.outcome),
        ("/m/{model}/fairness", page.fairness),
        ("/m/{model}/agreement", page.agreement),
        ("/models/{model}/agreement", page.named_agreement),
        ("/m/{model}/proposals", page.proposals),
        ("/m/{model}/records/{record_id:path}", page.record),
        ("/m/{model}/images/records/{column}/{record_id:path}", page.record_image),
        ("/m/{model}/images/flags/{flag_id}/{name:path}", page.flag_image),
        ("/m/{model}/images/behavior/{version}/{suite}/{test:path}", page.case_image),
        ("/assertions/{model}/{name:path}", page.assertion),
    ):
        router.add_api_route(path, answer, methods=["GET"])
    for path, change in (
        ("/assertions/{model}/{name:path}/suspend", forms.suspend),
        ("/assertions/{model}/{name:path}/resume", forms.resume),
        ("/m/{model}/proposals/learn", forms.learn),
        ("/m/{model}/proposals/accept", forms.accept),
        ("/m/{model}/cases", forms.add_case),
        ("/m/{model}/jobs", forms.job),
        ("/m/{model}/quarantine", forms.quarantine),
        ("/m/{model}/labels", forms.label),
        ("/m/{model}/rollback", forms.rollback),
        ("/reviews", forms.review),
        ("/incidents/{incident}", forms.incident),
    ):
        router.add_api_route(path, change, methods=["POST"])
    router.include_router(incident_pages(engine, cards, frame, alarms))
    if keyring is not None:
        router.include_router(access_pages(keyring, frame))
    if slices is not None:
        router.include_router(slices_pages(engine, slices, frame))
    if drift is not None:
        router.include_router(model_drift_pages(engine, drift, frame))
    if comparisons is not None:
        router.include_router(comparison_pages(comparisons, frame))
    return router


def _address(path: str, query: Mapping[str, str | None]) -> str:
    pairs = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(pairs)}" if pairs else path
