"""Counters, rates, precision, accuracy, series and health of a model."""

from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, func, select
from sqlalchemy.engine import Connection

from outrider.assertions.flags.quality import Rate, SuspensionRule, rate_of_labels
from outrider.dataops.flags.quality import (
    AssertionFacts,
    LabelledRecord,
    cost_us,
    labelled_records,
    last_strikes,
    precisions,
    read_proposals,
)
from outrider.dataops.labels.estimates import NUMERIC_TARGET
from outrider.dataops.ledger.counters import counts_by_slot, figures_of
from outrider.dataops.ledger.cube import RECORDS
from outrider.dataops.ledger.freshness import ObjectiveStanding, standing
from outrider.dataops.ledger.minutes import DAY_US
from outrider.dataops.ledger.stated_values import OTHERS
from outrider.dataops.models.registry import IN_SERVICE
from outrider.dataops.state.disabled_versions import left_out
from outrider.dataops.state.improvement_tables import ModelVersion
from outrider.dataops.state.tables import Counter, Cursor, DeadLetter, table_of
from outrider.monitor.queries.queries import assertion
from outrider.monitor.views.profiles.reader import ColumnsView, read_columns
from outrider.monitor.views.series.counts import last_minute

MOST_SLICES = 50
DEFAULT_RULE = SuspensionRule()

counter = table_of(Counter)
version = table_of(ModelVersion)
dead_letter = table_of(DeadLetter)
cursor = table_of(Cursor)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertionView(AssertionFacts):
    """Assertion or live test with fire rate and precision."""

    flags: Mapping[str, int]
    """Per slot."""
    per_1000: Mapping[str, float]
    """Flags per 1,000 judged records, per slot."""


@dataclass(frozen=True, slots=True)
class LiveTestView:
    """Outcomes of a live behavioral test in one slot."""

    name: str
    slot: str
    passed: int
    failed: int
    not_applicable: int
    shed: int
    unanswered: int = 0

    @property
    def failure(self) -> Rate:
        """Failures among the questions that were asked and applied."""
        return Rate(self.failed, self.failed + self.passed)


@dataclass(frozen=True, slots=True)
class VersionView:
    """A model version that serves or is judged."""

    version: str
    status: str
    digest: str
    created_us: int
    changed_us: int
    note: str
    records: int
    flags: int
    lag_blocks: int | None
    left_out: str = ""
    """Reason for a disabled shadow; empty for an enabled one."""
    owing: str = ""
    """Reason that it has not answered, and is asked again; empty for one that answers."""


@dataclass(frozen=True, slots=True)
class DeadLetterView:
    """A record that could not be used."""

    record_id: str
    reason: str
    detail: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything the first page shows of one model."""

    model: str
    records: int
    duplicates: int
    conflicts: int
    flags: int
    flagged: int
    """Records with at least one flag."""
    labels: int
    labels_are_all: bool
    """False when there are more labels than are looked at."""
    assertions: tuple[AssertionView, ...]
    live_tests: tuple[LiveTestView, ...]
    versions: tuple[VersionView, ...]
    accuracy: Mapping[str, Mapping[str, Rate]]
    """Slice to judged version to accuracy on labelled records; slice '' is all of them.

    Slices with the most come first, of versions the one with the newest."""
    accuracy_of_all: Rate
    no_accuracy: str
    """Why there are labels and no accuracy; empty otherwise."""
    """Of all versions together."""
    slices: tuple[str, ...]
    last_record_us: int | None
    """Minute of receipt of the newest judged record; None without any."""
    dead_letters: tuple[DeadLetterView, ...]
    freshness: ObjectiveStanding
    """How old records are at their verdict."""
    profile: ColumnsView
    """Columns of the champion's slot in the newest hour."""
    now_us: int = 0

    def accuracy_beside(self, champion: str | None) -> tuple[str | None, Rate]:
        """Version and accuracy to show beside the champion.

        The champion's own where it has labels, else that of the last version that has any.
        """
        by_version = self.accuracy.get("", {})
        named = champion if champion in by_version else next(iter(by_version), None)
        return named, Rate(0, 0) if named is None else by_version[named]

    @property
    def is_busy(self) -> bool:
        """True where records were judged within the last minute. Shedding then is shedding now."""
        latest = self.freshness.latest
        return latest is not None and self.now_us - latest.at_us < 60_000_000


def read_overview(
    engine: Engine,
    model: str,
    *,
    now_us: int,
    last_seq: int | None = None,
    rule: SuspensionRule = DEFAULT_RULE,
) -> Overview:
    """Model's first page; ``last_seq`` is the journal's newest work."""
    with engine.connect() as connection:
        counts = counts_by_slot(connection, model)
        labelled = labelled_records(connection, model)
        champion = counts.get("champion", {})
        return Overview(
            model=model,
            records=champion.get("records", 0),
            duplicates=champion.get("duplicates", 0),
            conflicts=champion.get("conflicts", 0),
            flags=sum(value for name, value in champion.items() if name.startswith("flags:")),
            flagged=champion.get("flagged", 0),
            labels=len(labelled.records),
            labels_are_all=labelled.is_all,
            assertions=_assertions(connection, model, counts, labelled.judged, now_us, rule),
            live_tests=_live_tests(counts),
            versions=_versions(connection, model, counts, last_seq),
            accuracy=_accuracy(labelled.judged),
            accuracy_of_all=_right(labelled.judged),
            no_accuracy=NUMERIC_TARGET if labelled.is_numeric else "",
            slices=_slices(connection, model),
            last_record_us=last_minute(connection, model, now_us=now_us),
            dead_letters=_dead_letters(connection, model),
            freshness=standing(connection, model),
            profile=read_columns(connection, model),
            now_us=now_us,
        )


def list_assertions(
    engine: Engine, model: str, *, now_us: int, rule: SuspensionRule = DEFAULT_RULE
) -> tuple[AssertionView, ...]:
    """The model's active assertions and live tests, with rates and precision."""
    with engine.connect() as connection:
        labelled = labelled_records(connection, model).judged
        return _assertions(connection, model, counts_by_slot(connection, model), labelled, now_us, rule)


def _assertions(
    connection: Connection,
    model: str,
    counts: Mapping[str, Mapping[str, int]],
    labelled: Sequence[LabelledRecord],
    now_us: int,
    rule: SuspensionRule,
) -> tuple[AssertionView, ...]:
    precision = precisions(connection, model, labelled)
    rows = connection.execute(
        select(assertion).where(assertion.c.model == model, assertion.c.active).order_by(assertion.c.name)
    ).all()
    strikes = last_strikes(connection, model)
    proposals = read_proposals(connection, model, precision, now_us=now_us, rule=rule)
    views = []
    for row in rows:
        fired = {
            slot: names.get(f"flags:{row.name}", 0) for slot, names in counts.items() if names.get("records")
        }
        suspended = row.suspended_until_us if row.suspended_until_us > now_us else 0
        views.append(
            AssertionView(
                name=row.name,
                kind=row.kind,
                level=row.level,
                description=row.description,
                owner=row.owner,
                revision=row.revision,
                flags=fired,
                per_1000={slot: 1000 * n / counts[slot]["records"] for slot, n in fired.items()},
                precision=precision.get(row.name, Rate(0, 0)),
                cost_us=cost_us(counts.get("champion", {}), row.name),
                suspended_until_us=suspended,
                suspension=row.suspension if suspended else "",
                last_strike=strikes.get(row.name),
                proposal=proposals.get(row.name, ()),
            )
        )
    return tuple(sorted(views, key=lambda view: -view.flags.get("champion", 0)))


def _live_tests(counts: Mapping[str, Mapping[str, int]]) -> tuple[LiveTestView, ...]:
    """From the counters ``live:<test>:<status>``."""
    tests: dict[tuple[str, str], dict[str, int]] = {}
    for slot, names in counts.items():
        for name, value in names.items():
            if name.startswith("live:"):
                test, _, status = name.removeprefix("live:").rpartition(":")
                tests.setdefault((test, slot), {})[status] = value
    return tuple(
        LiveTestView(
            name=test,
            slot=slot,
            passed=outcome.get("passed", 0),
            failed=outcome.get("failed", 0),
            not_applicable=outcome.get("not_applicable", 0),
            shed=outcome.get("shed", 0),
            unanswered=outcome.get("unanswered", 0),
        )
        for (test, slot), outcome in sorted(tests.items())
    )


def _versions(
    connection: Connection, model: str, counts: Mapping[str, Mapping[str, int]], last_seq: int | None
) -> tuple[VersionView, ...]:
    rows = connection.execute(
        select(version).where(version.c.model == model).order_by(version.c.created_us.desc()).limit(50)
    ).all()
    cursors = {row.slot: row.seq for row in connection.execute(select(cursor).where(cursor.c.model == model))}
    views, out, owing = [], left_out(connection, model), left_out(connection, model, why="owing")
    for row in rows:
        slot = "champion" if row.status == "champion" else row.version
        figures = figures_of(counts, row.version, is_champion=row.status == "champion")
        lag = max(0, last_seq - cursors[slot]) if last_seq is not None and slot in cursors else None
        views.append(
            VersionView(
                version=row.version,
                status=row.status,
                digest=row.digest,
                created_us=row.created_us,
                changed_us=row.changed_us,
                note=row.note,
                records=figures.records,
                flags=figures.flags,
                lag_blocks=lag,
                left_out=out.get(row.version, "") if row.status in IN_SERVICE else "",
                owing=owing.get(row.version, "") if row.status in IN_SERVICE else "",
            )
        )
    order = {status: place for place, status in enumerate(IN_SERVICE)}
    return tuple(sorted(views, key=lambda view: order.get(view.status, len(order))))


def _accuracy(labelled: Sequence[LabelledRecord]) -> dict[str, dict[str, Rate]]:
    groups: dict[str, dict[str, list[LabelledRecord]]] = {}
    for one in labelled:
        for part in dict.fromkeys(("", one.slice or "")):
            groups.setdefault(part, {}).setdefault(one.version or "", []).append(one)
    sizes = Tally(one.slice or "" for one in labelled)
    newest: dict[str, int] = {}
    for one in labelled:
        newest[one.version or ""] = max(one.seq, newest.get(one.version or "", one.seq))
    return {
        part: {
            name: _right(groups[part][name])
            for name in sorted(groups[part], key=lambda name: (name == OTHERS, -newest[name], name))
        }
        for part in sorted(groups, key=lambda part: (part != "", -sizes[part], part))
    }


def _right(labelled: Sequence[LabelledRecord]) -> Rate:
    return rate_of_labels([not one.wrong for one in labelled], [one.asked for one in labelled])


def _slices(connection: Connection, model: str) -> tuple[str, ...]:
    """Largest slices of the newest day, by name."""
    since_us = (RECORDS.last(connection, model) or 0) - DAY_US
    record_count = RECORDS.table
    query = RECORDS.query(model, "slice", since_us=since_us).where(record_count.c.slice != "")
    most = query.order_by(func.sum(record_count.c.records).desc(), record_count.c.slice).limit(MOST_SLICES)
    return tuple(sorted(connection.scalars(most)))


def _dead_letters(connection: Connection, model: str) -> tuple[DeadLetterView, ...]:
    newest = (
        select(dead_letter).order_by(dead_letter.c.seq.desc(), dead_letter.c.row.desc()).limit(500).subquery()
    )
    rows = connection.execute(
        select(newest)
        .where(newest.c.model == model)
        .order_by(newest.c.seq.desc(), newest.c.row.desc())
        .limit(8)
    )
    return tuple(DeadLetterView(row.record_id, row.reason, row.detail, row.at_us) for row in rows)
