"""Report of a model: champion, challengers, shadow tests, flags, suites, labels."""

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypeAlias

from sqlalchemy import Connection, Engine, func, select
from typing_extensions import TypedDict

from outrider.assertions.comparison import DELTA_EDGES
from outrider.dataops.comparisons import DifferenceLook, Word
from outrider.dataops.improvement import shadow_tests
from outrider.dataops.improvement.recommendation import DiscordantPairs
from outrider.dataops.improvement.shadow_tests import Trial
from outrider.dataops.ledger.counters import counts_by_slot, figures_of
from outrider.dataops.models import registry as models
from outrider.dataops.state.tables import SuiteOutcome, table_of
from outrider.monitor.http.common import RateFigures, iso
from outrider.monitor.http.declared import FieldsOf, Time
from outrider.monitor.stream.answer_costs import AnswerCost, read_costs
from outrider.monitor.views.fairness.reader import GroupGaps, newest_gaps
from outrider.monitor.views.overview.reader import read_overview

_OUTCOME = table_of(SuiteOutcome)


class ShareBounds(TypedDict):
    """A share of rows with bounds that hold at all times together."""

    value: float
    low: float
    high: float
    rows: int


class AgreementFigures(TypedDict):
    """Agreement of challenger and champion by one measure and slice. Beyond their own noise."""

    measure: str
    slice: str
    rows: int
    raw: ShareBounds
    noise: ShareBounds | None
    challenger_noise: ShareBounds | None
    beyond: ShareBounds
    verdict: str


class ScoreDistances(TypedDict):
    """Records by distance of scores, with the noise of each model.

    Challenger from champion, and each from itself asked again.
    """

    edges: list[float]
    challenger: list[float]
    noise: list[float]


class FlagsOfBoth(TypedDict):
    """Flags of champion and challenger by one assertion."""

    champion: int
    challenger: int


LabelSides: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(DiscordantPairs, "LabelSides", about="Labelled records that only one of the two gets wrong."),
]
FlagSides: TypeAlias = Annotated[
    dict[str, Any],
    FieldsOf(
        DiscordantPairs,
        "FlagSides",
        about="Records flagged for one of the two alone, and flags. Flags by assertion.",
        more={"assertions": dict[str, FlagsOfBoth]},
    ),
]


class CostOfBoth(TypedDict):
    """Time per record of both."""

    champion: AnswerCost | None
    challenger: AnswerCost | None


class DisagreementExample(TypedDict):
    """A record on which the two differ."""

    id: str
    seq: int
    slice: str
    champion: Any
    champion_score: float | None
    challenger: Any
    challenger_score: float | None
    apart: float | None


class TrialVerdict(TypedDict):
    """Verdict on a challenger; ``more`` records settle an undecided one."""

    word: Word
    sentence: str
    more: int | None


class TrialFigures(TypedDict):
    """A shadow test: agreement per slice, labels, flags, cost, advice and reasons."""

    version: str
    champion: str
    began: Time | None
    ends: Time | None
    ends_rows: int | None
    ended: Time | None
    ended_because: str | None
    recommendation: str | None
    advice: str
    reasons: list[str]
    verdict: TrialVerdict | None
    history: list[DifferenceLook]
    records: int
    required: float | None
    agreement: list[AgreementFigures]
    score_distances: ScoreDistances
    labels: LabelSides | None
    flags: FlagSides | None
    regressions: list[str]
    cost: CostOfBoth | None
    smaller: float | None
    examples: list[DisagreementExample]


class VersionReport(TypedDict):
    """Version with its suites, cost and flags. Cost and flags once records were judged."""

    version: str
    status: str
    note: str
    suites: dict[str, int]
    cost_us: float | None
    judged: NotRequired[int]
    flags_per_1000: NotRequired[float]
    created: Time | None
    changed: Time | None


class AssertionRates(TypedDict):
    """Flags of one assertion by slot."""

    name: str
    level: str
    flags: dict[str, int]
    per_1000: dict[str, float]


class ModelReport(TypedDict):
    """Versions, agreement, flags, suites and shadow tests of a model."""

    model: str
    champion: str | None
    versions: list[VersionReport]
    records: int
    flagged: int
    accuracy: RateFigures
    """Of one version, that of ``accuracy_version``."""
    accuracy_version: str | None
    """The champion where it has labels, else the last version that has any; None for none."""
    assertions: list[AssertionRates]
    groups: list[GroupGaps]
    """Of the last day, for the rarest answer."""
    shadow_tests: list[TrialFigures]


class _Rates(TypedDict, total=False):
    judged: int
    flags_per_1000: float


def trial_json(trial: Trial) -> TrialFigures:
    found = trial.findings
    progress: Mapping[str, Any] = found.get("progress", {})
    comparison: Mapping[str, Any] = progress.get("comparison", {})
    return {
        "version": trial.version,
        "champion": trial.champion,
        "began": iso(trial.began_us),
        "ends": iso(trial.ends_us),
        "ends_rows": trial.ends_rows,
        "ended": iso(trial.ended_us),
        "ended_because": found.get("ended_because"),
        "recommendation": trial.recommendation or None,
        "advice": found.get("advice", "undecided"),
        "reasons": found.get("reasons", []),
        "verdict": found.get("verdict"),
        "history": progress.get("looks", []),
        "records": found.get("records", 0),
        "required": found.get("required"),
        "agreement": found.get("agreement", []),
        "score_distances": {
            "edges": DELTA_EDGES.tolist(),
            "challenger": comparison.get("apart", []),
            "noise": comparison.get("noise_apart", []),
        },
        "labels": found.get("labels"),
        "flags": found.get("flags"),
        "regressions": found.get("regressions", []),
        "cost": found.get("cost"),
        "smaller": found.get("smaller"),
        "examples": progress.get("examples", []),
    }


def report_json(engine: Engine, model: str, *, now_us: int) -> ModelReport:
    with engine.connect() as connection:
        versions = models.all_versions(connection, model)
        champion = models.champion(connection, model)
        trials = [trial_json(trial) for trial in shadow_tests.newest(connection, model)]
        suites = _suites(connection, model)
        counts = counts_by_slot(connection, model)
        costs = read_costs(connection, model)
        groups = newest_gaps(connection, model, now_us=now_us)
    view = read_overview(engine, model, now_us=now_us)
    version, accuracy = view.accuracy_beside(None if champion is None else champion.version)
    return {
        "model": model,
        "champion": None if champion is None else champion.version,
        "versions": [
            {
                "version": found.version,
                "status": found.status,
                "note": found.note,
                "suites": suites.get(found.version, {}),
                "cost_us": cost.p50_us if (cost := costs.get(found.version)) else None,
                **_rates(counts, found),
                "created": iso(found.created_us),
                "changed": iso(found.changed_us),
            }
            for found in versions
        ],
        "records": view.records,
        "flagged": view.flagged,
        "accuracy": accuracy,
        "accuracy_version": version,
        "assertions": [
            {
                "name": each.name,
                "level": each.level,
                "flags": dict(each.flags),
                "per_1000": dict(each.per_1000),
            }
            for each in view.assertions
        ],
        "groups": groups,
        "shadow_tests": trials,
    }


def _suites(connection: Connection, model: str) -> dict[str, dict[str, int]]:
    query = select(_OUTCOME.c.version, _OUTCOME.c.status, func.count().label("tests")).where(
        _OUTCOME.c.model == model
    )
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(query.group_by(_OUTCOME.c.version, _OUTCOME.c.status)):
        found.setdefault(row.version, {})[row.status] = row.tests
    return found


def _rates(counts: Mapping[str, Mapping[str, int]], found: models.Model) -> _Rates:
    own = figures_of(counts, found.version, is_champion=found.status == "champion")
    return {"judged": own.records, "flags_per_1000": own.flags_per_1000} if own.records else {}
