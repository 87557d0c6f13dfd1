"""Minimum functionality tests: cases with known right answers."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from outrider.assertions import Batch, Predictor
from outrider.assertions.statistics.bets import check_confidence

from .cases import CasesLike, to_cases
from .examples import Examples
from .expect import Expectation, equal
from .judging import Aggregate
from .outcome import Kind, Outcome
from .running import Stop, check_aggregate, check_rates, check_stop, run


@dataclass(frozen=True, slots=True, kw_only=True)
class MFT:
    """Minimum functionality test: an expectation on given cases.

    Parameters
    ----------
    cases
        Texts, dictionaries, a frame, a file, a template …: see :func:`.cases.to_batch`. None: the test runs
        only on labelled rows of a dataset version.
    labels
        Right answer of all cases, or one per case.
    expect
        By default the answer's ``label`` equals the case's.
    capability
        Skill under test, such as ``negation``: suites and reports group by it.
    tolerance
        Largest failure rate that passes, in [0, 1].
    aggregate
        How the examples of one case are combined into its verdict; see :data:`.judging.Aggregate`.
    stop
        ``"decided"`` asks the cases in random order and stops once the verdict on all of them is certain at
        ``confidence``; ``"never"`` asks all. See :func:`.statistics.decided`.
    confidence
        Confidence of the interval, and of a verdict given early.

    Examples
    --------
    >>> import numpy as np
    >>> def predict(batch):
    ...     return {"label": np.array(["good" in text for text in batch.column("inputs.text")], dtype=int)}
    >>> test = MFT(cases=["good", "not good"], labels=[1, 0], capability="negation", name="test_not")
    >>> test.run(predict).failures
    1

    References
    ----------
    Ribeiro et al., "Beyond Accuracy: Behavioral Testing of NLP Models with CheckList", ACL 2020, section 2.2.
    """

    kind: ClassVar[Kind] = "MFT"
    cases: "CasesLike | None" = field(default=None, repr=False)
    labels: Any = field(default=None, repr=False)
    expect: Expectation = field(default=equal("label"), repr=False)
    name: str = ""
    capability: str = "general"
    description: str = ""
    tolerance: float = 0.0
    aggregate: Aggregate = "all"
    stop: Stop = "never"
    confidence: float = 0.95
    folder: Path | None = field(default=None, repr=False)
    suite: str = ""
    revision: str = ""

    def __post_init__(self) -> None:
        check_rates(tolerance=self.tolerance)
        check_confidence(self.confidence)
        check_aggregate(self.aggregate)
        check_stop(self.stop, self.expect)
        if self.cases is None and self.labels is not None:
            raise ValueError(
                "labels= needs cases=: a test without cases takes labels from its dataset version"
            )

    def named(self, name: str, *, folder: Path | None = None, suite: str = "", revision: str = "") -> "MFT":
        """Copy with the place where the test was found. A name given by its author is kept."""
        return replace(self, name=self.name or name, folder=folder, suite=suite, revision=revision)

    def examples(self, *, cases: Batch | None = None, seed: int = 0) -> Examples:  # noqa: ARG002 - as INV and DIR
        """Examples to ask: the test's own cases, or ``cases`` instead."""
        if cases is not None:
            return Examples.alone(cases)
        if self.cases is None:
            raise ValueError(
                f"{self.name} has no cases of its own (it runs on a dataset version); pass cases="
            )
        return Examples.of_written(
            to_cases(self.cases, labels=self.labels, folder=self.folder), has_original=False
        )

    def run(self, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> Outcome:
        """Ask the model about ``cases``, or its own, and judge."""
        return run(self, predictor, cases=cases, seed=seed)
