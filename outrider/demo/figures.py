"""Figures from sent frames and read-back facts, without the service."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from .cards import FAULTS
from .truth import FrameAnswer, share

OUTPUT_DEPENDENT = ("track", "margin", "test_brightness", "test_shift")
INPUT_ONLY = ("ink", "stuck_column", "bright_block", "mirror")
MIN_GAIN = 0.20
MAX_DROP = 0.01
MIN_CARDS = 300
MIN_FALL = 0.30


@dataclass(frozen=True, slots=True)
class Pair:
    """Accuracy of versions 1 and current on the same frames."""

    before: float
    after: float
    frames: int
    cards: int

    @property
    def gain(self) -> float:
        """Difference; positive is better."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Fires:
    """Fires of an assertion per 1,000 records, with its precision."""

    assertion: str
    kind: Literal["output", "input"]
    before: float
    after: float
    precision_hits: int
    precision_labels: int


@dataclass(frozen=True, slots=True)
class Criterion:
    """Criterion for a closed loop."""

    name: str
    passed: bool
    numbers: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of the service at the end of a run."""

    answers: Sequence[FrameAnswer]
    flags: Mapping[str, Counter[str]]
    """Flags of the champion's slot by phase and assertion."""
    precision: Mapping[str, tuple[int, int]]
    """Per assertion: labelled records on which it fired and the model was wrong, and all of them."""
    judged: int
    duplicates: int
    conflicts: int
    dead_letters: int
    trained_on: Mapping[str, int]
    """Rows that the promoted version was trained on, by dataset version."""
    trained_cards: frozenset[str]
    """The cards of those rows."""
    verdicts: Sequence[Mapping[str, Any]]
    """Of the gate, oldest first."""
    refused_job: Mapping[str, Any] | None
    promoted: str
    serving: str
    labels: Mapping[str, int]
    """``bought`` and ``late`` ones."""
    datasets: Sequence[Mapping[str, Any]]
    deliveries: Mapping[str, Any]
    """Events that production took, by webhook-id."""
    seconds: Mapping[str, float]
    """Of each stage."""
    first_flag_s: float | None
    """From the command to the first flagged record."""
    challengers: Sequence[Mapping[str, Any]] = ()
    """Shadow tests of the challengers that ran beside version 1."""
    corrected: Sequence[Mapping[str, Any]] = ()
    """Dataset rows whose label was corrected, with provenance, labels and record."""
    watches: Sequence[Mapping[str, Any]] = ()
    """Watches over new champions, newest first."""
    history: Sequence[Mapping[str, Any]] = ()
    """Changes of the champion, newest first."""

    @property
    def traced(self) -> Mapping[str, Any] | None:
        """Corrected training row whose provenance is shown; None without any."""
        return next((row for row in self.corrected if leads_back(row)), None)


@dataclass(frozen=True, slots=True)
class WatchedPromotion:
    """Promotion past the gate, rolled back by the watch."""

    version: str
    former: str
    by: str
    """Who promoted."""
    labelled: int
    records: int
    """That both versions had answered when it was proven to be worse."""
    seconds: float
    """From the promotion to the rollback."""
    champion: str
    """Behind the rollback."""

    @property
    def sentence(self) -> str:
        """Records, seconds, champion."""
        return (
            f"version {self.version}, forced by {self.by}, proven worse than version {self.former} after "
            f"{self.records} records ({self.labelled} labelled), rolled back {self.seconds:.1f} s behind the "
            f"promotion; version {self.champion} is champion again"
        )


def watched_promotion(facts: RunFacts) -> WatchedPromotion | None:
    """Last promotion past the gate, rolled back by the watch; else None."""
    watch = next((one for one in facts.watches if one["outcome"] == "rolled_back" and one["by"]), None)
    changes = [change for change in facts.history if change["action"] != "registered"][:2]
    if watch is None or [change["action"] for change in changes] != ["rolled_back", "overridden"]:
        return None
    back, forced = changes
    if (back["by"], forced["version"], back["version"]) != ("watch", watch["version"], watch["former"]):
        return None
    began, ended = (datetime.fromisoformat(watch[when]) for when in ("began", "ended"))
    seconds = round((ended - began).total_seconds(), 1)
    return WatchedPromotion(
        watch["version"], watch["former"], forced["by"], watch["labelled"], watch["records"], seconds,
        back["version"],
    )  # fmt: skip


def leads_back(row: Mapping[str, Any]) -> bool:
    """True where a training row names its record's flags and label."""
    origin, record = row["after"], row["record"]
    if origin is None or origin["part"] != "train" or record["id"] != origin["record_id"]:
        return False
    flags = {
        (flag["assertion"], flag["revision"], flag["severity"])
        for flag in record["flags"]
        if flag["slot"] == "champion"
    }
    named = {(flag["assertion"], flag["revision"], flag["severity"]) for flag in origin["flags"]}
    is_label = record["labels"][0]["source"] == origin["label_source"]
    return bool(named) and named <= flags and is_label


def pairs(answers: Iterable[FrameAnswer]) -> dict[str, Pair]:
    """Both versions' accuracy by fault in the final phase; ``faulty`` is all."""
    final = [answer for answer in answers if answer.phase == "final"]
    groups: dict[str, list[str]] = {"healthy": ["healthy"], "faulty": list(FAULTS)}
    groups |= {fault: [fault] for fault in FAULTS}
    found = {}
    for name, faults in groups.items():
        rows = [answer for answer in final if answer.fault in faults]
        found[name] = Pair(
            before=share(answer.first == answer.digit for answer in rows),
            after=share(answer.is_right for answer in rows),
            frames=len(rows),
            cards=len({answer.card for answer in rows}),
        )
    return found


def fires(facts: RunFacts) -> list[Fires]:
    """Flags per 1,000 records by assertion: cameras failing, then after the promotion."""
    sent = Counter(answer.phase for answer in facts.answers)
    found = []
    for kind, names in (("output", OUTPUT_DEPENDENT), ("input", INPUT_ONLY)):
        for name in names:
            before, after = (
                1000 * facts.flags.get(phase, Counter())[name] / max(1, sent[phase])
                for phase in ("faulty", "final")
            )
            hits, labels = facts.precision.get(name, (0, 0))
            found.append(Fires(name, "output" if kind == "output" else "input", before, after, hits, labels))
    return found


def fall(found: Iterable[Fires]) -> float:
    """By which share the fires of the output-dependent assertions went down."""
    rows = [row for row in found if row.kind == "output"]
    before = sum(row.before for row in rows)
    return 1 - sum(row.after for row in rows) / before if before else float("nan")


def criteria(facts: RunFacts) -> list[Criterion]:
    """Criteria of a closed loop, one line each."""
    by = pairs(facts.answers)
    healthy, faulty = by["healthy"], by["faulty"]
    went_down = fall(fires(facts))
    final_cards = {answer.card for answer in facts.answers if answer.phase == "final"}
    sent = len({answer.id for answer in facts.answers})
    promoted = [v for v in facts.verdicts if v["promoted"]]
    refused, watched = facts.refused_job, watched_promotion(facts)
    return [
        Criterion(
            f"accuracy on faulty traffic up by at least {100 * MIN_GAIN:.0f} points",
            faulty.gain >= MIN_GAIN,
            f"{_percent(faulty.before)} to {_percent(faulty.after)}, {_points(faulty.gain)} "
            f"on {faulty.frames} frames",
        ),
        Criterion(
            "every fault up",
            all(by[fault].gain > 0 for fault in FAULTS),
            ", ".join(f"{fault} {_points(by[fault].gain)}" for fault in FAULTS),
        ),
        Criterion(
            f"healthy traffic down by at most {100 * MAX_DROP:.0f} point (paired)",
            healthy.gain >= -MAX_DROP and healthy.cards >= MIN_CARDS,
            f"{_percent(healthy.before)} to {_percent(healthy.after)}, {_points(healthy.gain)} "
            f"on {healthy.cards} cards",
        ),
        Criterion(
            f"fires of output-dependent assertions down by at least {100 * MIN_FALL:.0f} %",
            went_down >= MIN_FALL,
            f"down by {_percent(went_down)}",
        ),
        Criterion(
            "the fine-tuned candidate was promoted, and serves",
            len(promoted) == 1 and facts.serving == facts.promoted == promoted[0]["candidate"],
            f"version {facts.promoted} is champion, version {facts.serving} answers",
        ),
        Criterion(
            "the candidate trained for one epoch from scratch was refused",
            refused is not None and refused["status"] == "refused",
            refused["result"]["reasons"][0].partition("\n")[0]
            if refused and refused["result"].get("reasons")
            else "no verdict",
        ),
        Criterion(
            "the watch rolled the refused candidate, promoted by force, back by itself",
            watched is not None
            and refused is not None
            and watched.version == refused["result"].get("candidate")
            and watched.champion == facts.promoted,
            watched.sentence if watched else "no rollback by the watch",
        ),
        Criterion(
            "corrected labels changed their rows in the next dataset version",
            0 < len(facts.corrected) == facts.labels.get("corrected"),
            f"{facts.labels.get('corrected', 0)} labels corrected, {len(facts.corrected)} rows changed",
        ),
        Criterion(
            "a training row leads back to its record and the assertions that flagged it",
            facts.traced is not None,
            _origin(facts.traced),
        ),
        Criterion(
            "no final card was trained on",
            bool(facts.trained_cards) and not final_cards & facts.trained_cards,
            f"{len(final_cards)} final cards, {len(facts.trained_cards)} cards in training data, "
            f"{len(final_cards & facts.trained_cards)} in both",
        ),
        Criterion(
            "every record was judged exactly once",
            facts.judged == sent == len(facts.answers)
            and not (facts.duplicates or facts.conflicts or facts.dead_letters),
            f"{sent} sent, {facts.judged} judged, {facts.duplicates + facts.conflicts} again, "
            f"{facts.dead_letters} unusable",
        ),
    ]


def _origin(row: Mapping[str, Any] | None) -> str:
    """Record, flags and labels of a row, in words."""
    if row is None:
        return "no row"
    origin = row["after"]
    flags = ", ".join(f"{flag['assertion']} {flag['severity']:.2g}" for flag in origin["flags"])
    before, after = (next(iter(row[f"labels_{side}"].values())) for side in ("before", "after"))
    return f"{row['id']}: version {origin['model_version']} flagged by {flags}; label {before} → {after}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _points(value: float) -> str:
    return f"{100 * value:+.1f} points"
