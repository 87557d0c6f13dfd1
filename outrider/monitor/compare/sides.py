"""Counts of one system: fates of questions, latency, tokens."""

import re
from collections import Counter
from typing import Any

import numpy as np

from .answers import Answers

WARM_UP = 10
"""First questions of a system whose latency is ignored, since connections and caches are cold."""
MOST_NAMED = 5
"""Maximum number of reasons for missing answers, and of model names, in a report."""

_NO_ENTRY = re.compile(r"status (?:401|403|404|405)\b")
"""HTTP statuses that point to a wrong address, model or key."""


class Side:
    def __init__(self, name: str) -> None:
        self.name = name
        self.fates: Counter[str] = Counter()
        self._why: Counter[str] = Counter()
        self._unasked: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._latency: list[np.ndarray[Any, np.dtype[np.float64]]] = []
        self._asked = 0
        self._tokens = np.zeros(2, dtype=np.int64)
        self._counted = 0
        self._models: set[str] = set()
        self.cached = 0
        self.retries = 0
        self.silent = 0
        """Consecutive unanswered questions up to now."""

    def add(self, answers: Answers) -> None:
        there, rows = np.flatnonzero(answers.is_answered), len(answers.fate)
        self.silent = rows - 1 - int(there[-1]) if len(there) else self.silent + rows
        self.fates.update({"answered": len(there)} if len(there) else {})
        missing = np.flatnonzero(~answers.is_answered)
        self.fates.update(answers.fate[missing].tolist())
        self._why.update(str(why) for why in answers.why[missing] if why)
        self._unasked.update(str(why) for why in answers.why[~answers.is_asked])
        refused = map(_NO_ENTRY.match, map(str, answers.why[answers.fate == "refused"]))
        self._refused.update(found[0] for found in refused if found)
        timed = answers.latency_s[max(0, WARM_UP - self._asked) :]
        self._asked += len(answers.fate)
        self._latency.append(timed[np.isfinite(timed)])
        known = (answers.tokens >= 0).all(axis=1)
        self._tokens += answers.tokens[known].sum(axis=0)
        self._counted += int(known.sum())
        self.cached += int(answers.is_cached.sum())
        if len(self._models) < MOST_NAMED:
            self._models |= answers.models

    @property
    def most_often(self) -> str:
        """Most frequent reason for a missing answer."""
        return next((why for why, _ in self._why.most_common(1)), "")

    @property
    def why_unasked(self) -> str:
        return next((why for why, _ in self._unasked.most_common(1)), "")

    @property
    def is_unasked(self) -> bool:
        """True if no question was sent."""
        return self._asked > 0 and self.fates["unasked"] == self._asked

    @property
    def is_refused(self) -> bool:
        """True if every question was refused with the same status of ``_NO_ENTRY``."""
        return self._asked > 0 and self._asked - self.fates["unasked"] in self._refused.values()

    @property
    def refusal(self) -> str:
        refused = f"refused all {self._asked - self.fates['unasked']:,} questions: {self.most_often}"
        return f"{refused}; check its address, model and key"

    def to_dict(self) -> dict[str, Any]:
        """JSON object; ``tokens`` sums only the answers that report both counts."""
        latency = np.concatenate(self._latency) if self._latency else np.zeros(0)
        p50, p99 = np.quantile(latency, [0.5, 0.99]).tolist() if len(latency) else (None, None)
        return {
            "name": self.name,
            "asked": self._asked,
            "fates": dict(self.fates),
            "why": [{"reason": why, "count": count} for why, count in self._why.most_common(MOST_NAMED)],
            "latency_s": {"p50": p50, "p99": p99, "count": len(latency)},
            "tokens": {
                "input": int(self._tokens[0]),
                "output": int(self._tokens[1]),
                "answers": self._counted,
            },
            "models": sorted(self._models)[:MOST_NAMED],
            "cached": self.cached,
            "retries": self.retries,
        }
