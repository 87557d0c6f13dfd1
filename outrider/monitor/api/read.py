"""JSON of flags, records, assertions, suites, overview, by the pages' queries."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any, NotRequired, TypeAlias, get_type_hints

import msgspec
from fastapi import APIRouter, Depends, Query
from sqlalchemy import Engine
from starlette.responses import Response
from typing_extensions import TypedDict

from outrider.assertions.flags.quality import SuspensionRule
from outrider.dataops.alarms.rate_alarms import AlarmRule
from outrider.dataops.datasets.versions import Provenance, RowFlag
from outrider.dataops.flags.live_rates import LiveRateView, list_rates
from outrider.dataops.state.database import now_us
from outrider.monitor.http.common import RateFigures, rate_json
from outrider.monitor.http.declared import Declared, FieldsOf
from outrider.monitor.http.problem import ProblemError, problem
from outrider.monitor.queries.blocks import BlockCache, BlockReader
from outrider.monitor.queries.fleet import FleetFacts, fleet_json, read_fleet
from outrider.monitor.queries.overview import (
    DEFAULT_RULE,
    AssertionView,
    LiveTestView,
    Overview,
    list_assertions,
    list_models,
    read_overview,
)
from outrider.monitor.queries.profiles import ColumnReport, column_report
from outrider.monitor.queries.queries import (
    DatasetStay,
    FlagView,
    RecordView,
    list_flags,
    read_answer,
    read_flag,
    read_record,
    why_gone,
)

AssertionFacts: TypeAlias = Annotated[
    dict[str, Any], FieldsOf(AssertionView, "WatchedAssertion", more={"precision": RateFigures})
]
LiveTestFacts: TypeAlias = Annotated[
    dict[str, Any], FieldsOf(LiveTestView, "LiveTestOutcomes", more={"failure": RateFigures})
]
OverviewFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        Overview,
        "ModelOverview",
        more={
            "assertions": list[AssertionFacts],
            "live_tests": list[LiveTestFacts],
            "accuracy": dict[str, dict[str, RateFigures]],
            "accuracy_of_all": RateFigures,
            "columns": list[ColumnReport],
        },
        without=("profile",),
    ),
]
StayFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        DatasetStay,
        "DatasetStay",
        without=("origin",),
        more=get_type_hints(Provenance) | {"flags": list[RowFlag]},
    ),
]
RecordFacts: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        RecordView,
        "StoredRecord",
        more={
            "record": dict[str, Any] | None,
            "payload_expired": bool,
            "replica_outputs": NotRequired[dict[str, Any]],
            "datasets": list[StayFacts],
        },
    ),
]


class FlagList(TypedDict):
    """Flags, newest first. ``after`` is the cursor of the next page, null on the last."""

    flags: list[FlagView]
    after: str | None


class AssertionList(TypedDict):
    """Active assertions and live tests of a model."""

    assertions: list[AssertionFacts]


class LiveSuite(TypedDict):
    """A live behavioral test: outcomes by slot, rates by revision and version."""

    name: str
    description: str
    level: str
    live: list[LiveTestFacts]
    rates: list[LiveRateView]


class LiveSuites(TypedDict):
    """Live behavioral tests of a model."""

    suites: list[LiveSuite]


class Fleet(TypedDict):
    """A line per model, worst first."""

    models: list[FleetFacts]


class Overviews(TypedDict):
    """Overview of each model, and which processes run."""

    models: list[OverviewFacts]
    processes: dict[str, bool]


class ReadApi:
    """Answers of the read API; one method per route."""

    def __init__(
        self,
        engine: Engine,
        journal: BlockReader,
        *,
        models: tuple[str, ...],
        health: Callable[[], Mapping[str, bool]],
        rule: SuspensionRule = DEFAULT_RULE,
        alarms: AlarmRule | None = None,
    ) -> None:
        self._rule, self._alarms = rule, alarms or AlarmRule()
        self._engine = engine
        self._blocks = BlockCache(journal)
        self._configured = models
        self._health = health

    def flags(
        self,
        model: str,
        assertion: str | None = None,
        slot: str | None = None,
        level: str | None = None,
        reviewed: bool | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: str | None = None,
    ) -> Response:
        """Flags of a model, newest first. Pass ``after`` of the answer to get the next page."""
        self._check(model)
        try:
            page = list_flags(
                self._engine,
                model,
                assertion=assertion,
                slot=slot,
                level=level,
                reviewed=reviewed,
                limit=limit,
                after=after,
            )
        except ValueError as error:
            raise ProblemError(problem(422, str(error), field="after")) from error
        return _json({"flags": page.flags, "after": page.after})

    def flag(self, model: str, flag_id: str) -> Response:
        """Flag by its id."""
        self._check(model)
        found = read_flag(self._engine, model, flag_id)
        if found is None:
            raise ProblemError(problem(404, f"model {model!r} has no flag {flag_id!r}"))
        return _json(found)

    def record(self, model: str, record_id: str) -> Response:
        """A record with its payload, flags, labels, live tests and dataset versions."""
        self._check(model)
        view = read_record(self._engine, model, record_id)
        if view is None and (why := why_gone(self._engine, model, record_id)):
            raise ProblemError(problem(410, f"record {record_id!r} of model {model!r} {why}"))
        if view is None:
            raise ProblemError(problem(404, f"model {model!r} has no record {record_id!r}"))
        body = asdict(view)
        for stay, told in zip(view.datasets, body["datasets"], strict=True):
            told |= stay.origin.told()
            del told["origin"]
        stored = self._blocks.record(view.seq, view.row)
        body["record"] = stored
        body["payload_expired"] = stored is None
        if stored is not None and not stored.get("outputs"):  # a mirrored request: the replica answered
            body["replica_outputs"] = read_answer(self._engine, model, None, seq=view.seq, record_id=view.id)
        return _json(body)

    def assertions(self, model: str) -> Response:
        """Active assertions and live tests with counts, rates and precision."""
        self._check(model)
        rows = list_assertions(self._engine, model, now_us=now_us(), rule=self._rule)
        return _json({"assertions": [assertion_json(row) for row in rows]})

    def suites(self, model: str) -> Response:
        """Live behavioral tests. Outcomes of their questions by slot, rates by revision and version."""
        self._check(model)
        view = read_overview(self._engine, model, now_us=now_us())
        with self._engine.connect() as connection:
            rates = list_rates(connection, model)
        kinds = {row.name: row for row in view.assertions if row.kind == "live_test"}
        return _json(
            {
                "suites": [
                    {
                        "name": row.name,
                        "description": row.description,
                        "level": row.level,
                        "live": [live_json(test) for test in view.live_tests if test.name == row.name],
                        "rates": [asdict(rate) for rate in rates if rate.test == row.name],
                    }
                    for row in kinds.values()
                ]
            }
        )

    def fleet(self) -> Fleet:
        """Verdict on each model, with onset, slice and next step."""
        names = list_models(self._engine, self._configured)
        with self._engine.connect() as connection:
            lines = read_fleet(connection, names, self._alarms, now_us=now_us())
        return {"models": fleet_json(lines)}

    def overview(self, model: str | None = None) -> Response:
        """Overview page's data, for one model or for all."""
        names = list_models(self._engine, self._configured) if model is None else [model]
        if model is not None:
            self._check(model)
        last = self._blocks.last_work_seq()
        views = [
            read_overview(self._engine, name, now_us=now_us(), last_seq=last, rule=self._rule)
            for name in names
        ]
        bodies = []
        for view in views:
            body = asdict(view)
            body["assertions"] = [assertion_json(row) for row in view.assertions]
            body["live_tests"] = [live_json(test) for test in view.live_tests]
            body["accuracy"] = {
                part: {version: rate_json(rate) for version, rate in by.items()}
                for part, by in view.accuracy.items()
            }
            body["accuracy_of_all"] = rate_json(view.accuracy_of_all)
            body["columns"] = [column_report(column) for column in view.profile.columns]
            del body["profile"]
            bodies.append(body)
        return _json({"models": bodies, "processes": self._health()})

    def _check(self, model: str) -> None:
        known = list_models(self._engine, self._configured)
        if model not in known:
            there = ", ".join(known) or "none"
            raise ProblemError(problem(404, f"there is no model {model!r}; there is {there}", field="model"))


def assertion_json(row: AssertionView) -> dict[str, Any]:
    """Assertion as JSON."""
    return asdict(row) | {"precision": rate_json(row.precision)}


def live_json(test: LiveTestView) -> dict[str, Any]:
    """Outcomes of a live test as JSON."""
    return asdict(test) | {"failure": rate_json(test.failure)}


def _json(body: Mapping[str, Any] | FlagView) -> Response:
    return Response(
        msgspec.json.encode(body), media_type="application/json", headers={"cache-control": "no-store"}
    )


def read_routes(
    engine: Engine,
    journal: BlockReader,
    *,
    models: tuple[str, ...],
    require_reader: Callable[..., Any] | None = None,
    health: Callable[[], Mapping[str, bool]] = dict,
    rule: SuspensionRule = DEFAULT_RULE,
    alarms: AlarmRule | None = None,
) -> APIRouter:
    """Routes of the read API; parameters as in ``web_routes``."""
    api = ReadApi(engine, journal, models=models, health=health, rule=rule, alarms=alarms)
    guards = [] if require_reader is None else [Depends(require_reader)]
    router = APIRouter(prefix="/v1", tags=["read"])
    for path, answer, body in (
        ("/flags", api.flags, Declared[FlagList]),
        ("/flags/{model}/{flag_id}", api.flag, Declared[FlagView]),
        ("/records/{model}/{record_id:path}", api.record, Declared[RecordFacts]),
        ("/assertions", api.assertions, Declared[AssertionList]),
        ("/suites", api.suites, Declared[LiveSuites]),
        ("/overview", api.overview, Declared[Overviews]),
        ("/fleet", api.fleet, Declared[Fleet]),
    ):
        router.add_api_route(path, answer, methods=["GET"], dependencies=guards, response_model=body)
    return router
