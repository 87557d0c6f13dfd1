"""Verdicts from human labels of pairs of differing answers."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from outrider.assertions.comparison.judged import JudgedVerdict
from outrider.assertions.comparison.verdict import ERROR, PARTS
from outrider.assertions.statistics.difference_sequence import DifferenceSequence

from .judge import judged_pairs

Right = Literal["production", "candidate", "both", "neither"]
"""Side with the right answer in a labelled pair."""
_BETTER: Mapping[Right, float] = {"production": -1.0, "candidate": 1.0, "both": 0.0, "neither": 0.0}
Word = Literal["same", "close", "different", "worse", "better", "undecided"]


@dataclass(frozen=True, slots=True)
class Conclusion:
    word: Word
    sentence: str

    @property
    def is_open(self) -> bool:
        """True if labels can still turn the verdict into better or worse."""
        return self.word in ("different", "undecided")


@dataclass(frozen=True, slots=True)
class PairLabels:
    """Human labels of one candidate's pairs by question id, and the judge's preferences in order of
    judging (None: no judge)."""

    labels: Mapping[str, Right]
    judged: Mapping[str, float] | None
    seed: int

    def conclusion(self, unlabelled: Conclusion, name: str, candidates: int) -> Conclusion:
        """Verdict with these labels; the error probability is split among ``candidates``."""
        if not unlabelled.is_open:
            return unlabelled
        found = self._by_labels(name, candidates) if self.judged is None else self._by_judge(name, candidates)
        return found or unlabelled

    def judge_verdict(self, candidates: int) -> JudgedVerdict | None:
        if not self.judged:
            return None
        labels = {question: _BETTER[right] for question, right in self.labels.items()}
        return judged_pairs(self.judged, labels, self.seed).verdict(candidates=candidates)

    def _by_labels(self, name: str, candidates: int) -> Conclusion | None:
        """Verdict from labels of randomly sampled differing pairs; None if neither side is proven better."""
        values = np.array([_BETTER[right] for right in self.labels.values()])
        if not len(values):
            return None
        confidence = 1.0 - ERROR * PARTS["judge"] / candidates
        low, high = DifferenceSequence.of(values, np.ones(len(values))).interval(confidence)
        if low <= 0.0 <= high:
            return None
        word: Word = "better" if low > 0.0 else "worse"
        right, wrong = (int((values == side).sum()) for side in (1.0, -1.0))
        why = f"right in {right} of {len(values)} labelled pairs that differ, production in {wrong}"
        return Conclusion(word, f"{name} is {word}: {why}")

    def _by_judge(self, name: str, candidates: int) -> Conclusion | None:
        """Verdict from the judge's preferences, corrected by labels; None if neither side is
        proven better."""
        found = self.judge_verdict(candidates)
        if found is None or found.direction not in ("worse", "better"):
            return None
        bounds = f"{found.value:+.2f} ({found.low:+.2f} to {found.high:+.2f})"
        why = f"{found.records:,} judged pairs that differ, corrected by {found.labels:,} labels: {bounds}"
        return Conclusion(found.direction, f"{name} is {found.direction} by {why}")


def relabelled(
    report: Mapping[str, Any], candidate: str, question: str, right: Right
) -> dict[str, Any] | None:
    """Copy of the report with a label added and the verdict updated; None if the report has no such pair."""
    candidates: Sequence[Mapping[str, Any]] = report["candidates"]
    found = next((each for each in candidates if each["name"] == candidate), None)
    if found is None or all(pair["id"] != question for pair in found["to_label"]):
        return None
    pairs = [pair | {"right": right} if pair["id"] == question else pair for pair in found["to_label"]]
    known = {pair["id"]: pair["right"] for pair in pairs if pair["right"] is not None}
    labels = PairLabels(known, found["preferences"], report["plan"]["seed"])
    unlabelled = Conclusion(**found["unlabelled"])
    concluded = labels.conclusion(unlabelled, candidate, len(candidates))
    judge = labels.judge_verdict(len(candidates))
    changed = {
        **found,
        "verdict": concluded.word,
        "sentence": concluded.sentence,
        "judge": None if judge is None else asdict(judge),
        "to_label": pairs,
    }
    return {**report, "candidates": [changed if each is found else each for each in candidates]}
