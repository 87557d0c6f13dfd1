"""Live metamorphic tests of one model: sampling, asking, noting.

The caller has the replica, or the endpoint, that answers all copies of a unit at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Findings
from outrider.behavioral_tests.sampling import sample_rows
from outrider.dataops.ledger.commit import Effects, LiveVerdicts
from outrider.dataops.payloads.payloads import without_bytes
from outrider.monitor.engine.asks import Outputs
from outrider.monitor.host.client import Offered, PerturbedCopies
from outrider.monitor.stream.units import Unit

from .ledger_rows import RecordLocations
from .live_budget import LiveBudget

Verdicts = Mapping[str, tuple[NDArray[np.bool_], NDArray[np.float64]]]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Asking:
    blocks: Mapping[int, Mapping[str, float]]
    may_ask: bool = True


@dataclass(frozen=True, slots=True)
class QuestionSample:
    """Sampled records of each test, and the probability of every record, shape (rows,)."""

    rows: dict[str, Rows] = field(default_factory=dict)
    probability: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.rows.values()))

    @property
    def asked(self) -> dict[str, Rows]:
        return {name: rows for name, rows in self.rows.items() if len(rows)}

    def only(self, which: NDArray[np.bool_]) -> "QuestionSample":
        rows = {name: picked[which[picked]] for name, picked in self.rows.items()}
        return QuestionSample(rows, self.probability)


@dataclass(frozen=True, slots=True)
class Copies:
    batch: Batch
    spans: Mapping[str, slice]


@dataclass(frozen=True, slots=True)
class CaseAnswers:
    """Answers of one test: the records' first, then their copies'."""

    rows: Rows
    before: Batch
    after: Batch


def probabilities(budget: LiveBudget, unit: Unit) -> dict[int, Mapping[str, float]]:
    blocks, rows = np.unique(unit.seq, return_counts=True)
    return {
        seq: budget.advance(unit.received.get(seq, unit.received_us), n)
        for seq, n in zip(blocks.tolist(), rows.tolist(), strict=True)
    }


def draw(tests: Sequence[str], asking: Asking, place: RecordLocations, *, seed: int) -> QuestionSample:
    """Draw the records of each test by a hash of seed, test and id."""
    sample = QuestionSample()
    blocks, inverse = np.unique(place.seq, return_inverse=True)
    for test in tests:
        per_block = np.array([asking.blocks[seq][test] for seq in blocks.tolist()], dtype=np.float64)
        sample.probability[test] = per_block[inverse]
        picked = sample_rows(test, place.keys, rate=sample.probability[test], seed=seed)
        sample.rows[test] = np.flatnonzero(picked).astype(np.int64)
    return sample


def together(questions: Mapping[str, PerturbedCopies]) -> list[Copies]:
    """Copies of all tests, one batch per schema."""
    groups: dict[Any, list[tuple[str, Batch]]] = {}
    for name, asked in questions.items():
        if asked.batch is not None:
            groups.setdefault(asked.batch.schema_digest, []).append((name, asked.batch))
    found = []
    for members in groups.values():
        stops = np.cumsum([batch.rows for _, batch in members]).tolist()
        spans = {
            name: slice(stop - batch.rows, stop) for (name, batch), stop in zip(members, stops, strict=True)
        }
        found.append(Copies(Batch.concat([batch for _, batch in members]), spans))
    return found


def answered(
    judged: Batch,
    questions: Mapping[str, PerturbedCopies],
    copies: Copies,
    outputs: Outputs,
    unanswered: Iterable[int] = (),
) -> dict[str, CaseAnswers]:
    """Answers of each test with the original records; ``unanswered`` are rows of the copies."""
    well = np.ones(copies.batch.rows, dtype=np.bool_)
    well[list(unanswered)] = False
    replies = copies.batch.with_outputs(outputs)
    found = {}
    for name, span in copies.spans.items():
        good = np.flatnonzero(well[span])
        if len(good):
            rows = questions[name].rows[good]
            found[name] = CaseAnswers(rows, judged.take(rows), replies.take(good + span.start))
    return found


def note_unasked(effects: Effects, place: RecordLocations, sample: QuestionSample, status: str) -> None:
    for name, rows in sample.rows.items():
        _note(effects, place, sample, name, {status: rows})


def note(
    effects: Effects,
    place: RecordLocations,
    sample: QuestionSample,
    questions: Mapping[str, PerturbedCopies],
    answers: Mapping[str, CaseAnswers],
    verdicts: Verdicts,
    offered: Mapping[str, Offered],
    weight: NDArray[np.float64],
) -> None:
    """Note outcomes, flags with inputs and answers, and verdicts for the rate; ``weight`` is 1 /
    capture probability, shape (rows,)."""
    for name, sampled in sample.rows.items():
        asked = questions[name].rows if name in questions else sampled
        rows, failed, severity = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_), np.zeros(0)
        if name in verdicts:
            rows, (failed, severity) = answers[name].rows, verdicts[name]
        applies = ~np.isnan(severity)
        skipped = np.union1d(np.setdiff1d(sampled, asked), rows[~applies])
        outcome = {
            "failed": rows[failed],
            "passed": rows[applies & ~failed],
            "not_applicable": skipped,
            "unanswered": np.setdiff1d(asked, rows),
        }
        _note(effects, place, sample, name, outcome)
        if not len(rows):
            continue
        known, fails = rows[applies], failed[applies]
        weights = weight[known] / sample.probability[name][known]
        effects.live_verdicts += _verdicts(offered[name], place, known, fails, weights)
        if failed.any():
            evidence = _evidence(answers[name].before.take(failed), answers[name].after.take(failed))
            severe = np.maximum(severity[failed], np.finfo(np.float64).tiny)
            place.note(effects, offered[name], Findings(rows[failed], severe, evidence=evidence))


def _note(
    effects: Effects, place: RecordLocations, sample: QuestionSample, name: str, outcome: Mapping[str, Rows]
) -> None:
    for status, rows in outcome.items():
        place.note_live_answers(effects, name, status, rows, sample.probability[name])
        effects.counts[f"live:{name}:{status}"] += len(rows)


def _verdicts(
    test: Offered, place: RecordLocations, rows: Rows, failed: NDArray[np.bool_], weight: NDArray[np.float64]
) -> list[LiveVerdicts]:
    versions = np.array([place.versions[row] or "" for row in rows.tolist()], dtype=object)
    return [
        LiveVerdicts(
            test=test.name,
            revision=test.revision,
            level=test.level,
            tolerance=test.tolerance,
            confidence=test.confidence,
            version=version,
            seq=place.seq[rows[here]],
            failed=failed[here],
            weight=weight[here],
            keys=place.keys[rows[here]],
        )
        for version in dict.fromkeys(versions.tolist())
        for here in [versions == version]
    ]


def _evidence(original: Batch, perturbed: Batch) -> list[dict[str, Any] | None]:
    """Per failed question: the perturbed inputs without encoded payloads, and both answers."""
    original, perturbed = without_bytes(original), without_bytes(perturbed)
    return [
        {
            "inputs": after.get("inputs", {}),
            "outputs": after.get("outputs", {}),
            "original": before.get("outputs", {}),
        }
        for before, after in zip(original.to_records(), perturbed.to_records(), strict=True)
    ]
