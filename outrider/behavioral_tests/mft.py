"""Minimum functionality tests: cases whose right answer is known."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from outrider.assertions import Batch, Predictor

from .asking import ask
from .cases import CasesLike, to_batch
from .expect import Expectation, equal, severities
from .outcome import Kind, Outcome, summarise


@dataclass(frozen=True, slots=True, kw_only=True)
class MFT:
    """Minimum functionality test: the model must meet an expectation on given cases.

    Parameters
    ----------
    cases
        Texts, dictionaries, a frame, a file, a template …: see :func:`.cases.to_batch`.
    labels
        Right answer of all cases, or one per case.
    expect
        By default the answer's ``label`` equals the case's.
    capability
        Skill under test, such as ``negation``: suites and reports group by it.
    tolerance
        Largest failure rate that passes, in [0, 1].

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
    cases: CasesLike = field(repr=False)
    labels: Any = field(default=None, repr=False)
    expect: Expectation = field(default=equal("label"), repr=False)
    name: str = ""
    capability: str = "general"
    description: str = ""
    tolerance: float = 0.0
    folder: Path | None = field(default=None, repr=False)
    revision: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.tolerance <= 1.0:
            raise ValueError(f"tolerance is a failure rate in [0, 1], got {self.tolerance}")

    def named(self, name: str, *, folder: Path | None = None, revision: str = "") -> "MFT":
        """Copy that knows where it was found; a name given by its author stays."""
        return replace(self, name=self.name or name, folder=folder, revision=revision)

    def run(self, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> Outcome:  # noqa: ARG002 - one signature for all three kinds
        """Ask the model about every case (``cases`` in place of one's own) and judge the answers."""
        before = to_batch(self.cases, labels=self.labels, folder=self.folder) if cases is None else cases
        after = ask(predictor, before)
        return summarise(
            name=self.name,
            kind=self.kind,
            capability=self.capability,
            description=self.description,
            tolerance=self.tolerance,
            severities=severities(self.expect(before, after), before.rows),
            skipped=0,
            before=before,
            after=after,
        )
