"""Shadow test findings: labels, flags, behavioral tests, cost, size."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from outrider.assertions.comparison.matching import matches
from outrider.assertions.comparison.typed_text import read_typed
from outrider.assertions.comparison.verdict import CandidateVerdict, stream_verdict
from outrider.assertions.comparison.verdict_sentence import details_sentence, verdict_sentence
from outrider.dataops.flags.shadow_flags import ShadowStretch, count_by_assertion, flagged_by_slot
from outrider.dataops.improvement.recommendation import DiscordantPairs, ShadowTestFindings, recommend
from outrider.dataops.improvement.shadow_tests import Trial
from outrider.dataops.improvement.suite_outcomes import list_outcomes
from outrider.dataops.labels.estimates import evenly_drawn, newest_labels
from outrider.dataops.ledger.answers import read_values
from outrider.dataops.ledger.targets import is_number
from outrider.dataops.state.disabled_versions import left_out
from outrider.monitor.settings.model_sections import ModelSettings
from outrider.monitor.stream.answer_costs import read_costs

from .agreement import ComparisonProgress, agreement_rows

MOST_LABELS = 5_000
MOST_FLAGS = 50_000


def gather(
    connection: Connection,
    trial: Trial,
    progress: ComparisonProgress,
    settings: ModelSettings,
    *,
    smaller: float | None = None,
) -> dict[str, Any]:
    """Findings of a test so far and recommendation; ``smaller`` is the ratio of weight bytes."""
    margin, agree = 1.0 - settings.shadow.agreement, settings.shadow.agree
    has_rows = bool(progress.comparison.measures)
    verdict = stream_verdict(progress.comparison, margin=margin, agree=agree) if has_rows else None
    cost = read_costs(connection, trial.model)
    one, other = cost.get(trial.champion), cost.get(trial.version)
    stretch = ShadowStretch(trial.model, trial.champion, trial.version, trial.after_seq, progress.seq)
    found = ShadowTestFindings(
        agreement=verdict,
        has_common=has_rows or not progress.blocks,
        labels=_labels(connection, trial, progress.seq, settings.target),
        flags=_flags(connection, stretch, progress),
        regressions=_regressions(connection, trial),
        smaller=smaller,
        out=left_out(connection, trial.model).get(trial.version, ""),
    )
    advice, reasons = recommend(found, margin=margin)
    if verdict is not None:
        progress.look(verdict.deciding)
    return {
        "verdict": None if verdict is None else _told(verdict, trial, margin),
        "progress": progress.to_dict(),
        "records": progress.rows,
        "agreement": agreement_rows(progress.comparison, margin=margin, agree=agree),
        "required": settings.shadow.agreement,
        "labels": asdict(found.labels),
        "flags": asdict(found.flags) | {"assertions": count_by_assertion(connection, stretch)},
        "regressions": list(found.regressions),
        "cost": {
            "champion": None if one is None else asdict(one),
            "challenger": None if other is None else asdict(other),
        },
        "smaller": found.smaller,
        "advice": advice,
        "reasons": reasons,
    }


def _told(verdict: CandidateVerdict, trial: Trial, margin: float) -> dict[str, Any]:
    names, measure = (f"Version {trial.version}", f"version {trial.champion}"), verdict.decided_by or ""
    return {
        "word": verdict.word,
        "sentence": verdict_sentence(*names, verdict.deciding, measure, verdict.word, margin)
        + details_sentence(verdict),
        "more": verdict.more,
    }


@dataclass(frozen=True, slots=True)
class LabelledAnswers:
    """Labelled records that both answered, and which answers are right; none where answers are numbers."""

    keys: Sequence[str] = ()
    champion: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    challenger: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


def labelled_answers(connection: Connection, trial: Trial, until: int, target: str) -> LabelledAnswers:
    """Labelled records that both answered up to a block.

    Of labels asked for, only uniformly drawn ones count, because the others hold more of the champion's
    errors.
    """
    drawn = evenly_drawn(connection, trial.model)
    truth = newest_labels(connection, trial.model, after=trial.after_seq, until=until, limit=MOST_LABELS)
    keys: list[str] = []
    values: list[Any] = []
    answers: tuple[list[Any], list[Any]] = [], []
    for seq, labels in truth.items():
        one, other = (
            read_values(connection, trial.model, version, seq, target)
            for version in (trial.champion, trial.version)
        )
        known = [key for key in labels if key in one and key in other and drawn.get(key, True)]
        keys += known
        values += [read_typed(labels[key]) for key in known]
        answers[0].extend(one[key] for key in known)
        answers[1].extend(other[key] for key in known)
    if not keys or is_number(connection, trial.model, *answers):
        return LabelledAnswers()  # near or far, but neither right nor wrong
    return LabelledAnswers(keys, *(matches(each, values) for each in answers))


def _labels(connection: Connection, trial: Trial, until: int, target: str) -> DiscordantPairs:
    found = labelled_answers(connection, trial, until, target)
    old, new = found.champion, found.challenger
    return DiscordantPairs(len(found.keys), int((new & ~old).sum()), int((old & ~new).sum()))


def _flags(connection: Connection, stretch: ShadowStretch, progress: ComparisonProgress) -> DiscordantPairs:
    """Records on which assertions fire for one of the two; live tests ask the champion alone."""
    fired = flagged_by_slot(connection, stretch, limit=MOST_FLAGS)
    one, other = fired["champion"], fired[stretch.challenger]
    return DiscordantPairs(progress.rows, len(one - other), len(other - one))


def _regressions(connection: Connection, trial: Trial) -> list[str]:
    found = list_outcomes(connection, trial.model, (trial.champion, trial.version))
    status = {(one.version, one.suite, one.test): one.status for one in found}
    return sorted(
        test
        for (version, suite, test), outcome in status.items()
        if version == trial.version
        and outcome in ("failed", "error")
        and status.get((trial.champion, suite, test)) == "passed"
    )
