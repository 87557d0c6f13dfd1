"""What INV and DIR share: change the input, ask again, compare the two answers.

Live, the same happens in two phases, because the process that runs user code owns no model:
:meth:`Metamorphic.questions` makes the changed copies, somebody asks, :meth:`Metamorphic.judge` compares.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Level, Predictor

from .asking import ask
from .cases import CasesLike, to_batch
from .expect import Expectation, severities
from .outcome import Kind, Outcome, summarise
from .perturb.perturbation import Perturbation, apply
from .sampling import generator


@dataclass(frozen=True, slots=True)
class Questions:
    """Changed copies of some records of a block.

    ``rows`` are the row numbers (in the block) of the records that could be changed, shape (n,);
    ``batch`` their copies, aligned, with ids ``<id>~<test>`` and without outputs.
    """

    rows: NDArray[np.intp]
    batch: Batch


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts on changed copies, shape (n,): ``failed``, and ``severity`` (NaN: not applicable)."""

    failed: NDArray[np.bool_]
    severity: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metamorphic:
    """A test that compares the answer to a changed input with the answer to the input; use INV or DIR."""

    kind: ClassVar[Kind]
    perturb: Perturbation = field(repr=False)
    expect: Expectation = field(repr=False)
    cases: CasesLike | None = field(default=None, repr=False)
    name: str = ""
    capability: str = "general"
    description: str = ""
    tolerance: float = 0.0
    live: float = 0.0
    level: Level = "warning"
    owner: str = ""
    folder: Path | None = field(default=None, repr=False)
    revision: str = ""

    def __post_init__(self) -> None:
        for name in ("tolerance", "live"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} is a rate in [0, 1], got {value}")

    def named(self, name: str, *, folder: Path | None = None, revision: str = "") -> Self:
        """Copy that knows where it was found; a name given by its author stays."""
        return replace(self, name=self.name or name, folder=folder, revision=revision)

    def questions(self, batch: Batch, *, rng: np.random.Generator) -> Questions:
        """Changed copies of the records of ``batch`` that the perturbation can change.

        Sampling is the caller's: pass the rows that :func:`sample_rows` picked.
        """
        perturbed = apply(self.perturb, batch, rng)
        rows = np.flatnonzero(perturbed.changed)
        copies = perturbed.batch.take(rows).with_outputs({})
        ids = [f"{key}~{self.name}" for key in copies.keys.tolist()]
        return Questions(rows, copies.with_columns({"id": np.array(ids, dtype=object)}))

    def judge(self, before: Batch, after: Batch) -> Judgement:
        """Compare answers.

        Parameters
        ----------
        before
            Unchanged records with the answers to them, aligned: ``batch.take(questions.rows)``.
        after
            The changed copies with the answers to them.

        Raises
        ------
        ValueError
            If the two are not aligned, or the expectation returns something else than one value per record.
        """
        if before.rows != after.rows:
            raise ValueError(f"aligned answers expected, got {before.rows} before and {after.rows} after")
        if before.rows == 0:  # nobody was asked, so there are no answer columns to look at
            return Judgement(np.zeros(0, dtype=np.bool_), np.zeros(0))
        severity = severities(self.expect(before, after), before.rows)
        return Judgement(severity > 0, severity)

    def run(self, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> Outcome:
        """Ask the model about every case and its changed copy, and compare.

        Raises
        ------
        ValueError
            If there are no cases: the test has none of its own and none were passed.
        """
        if cases is None:
            if self.cases is None:
                raise ValueError(f"{self.name} has no cases of its own (it runs live); pass cases=")
            cases = to_batch(self.cases, folder=self.folder)
        questions = self.questions(cases, rng=generator(seed, self.name))
        before = ask(predictor, cases.take(questions.rows))
        after = ask(predictor, questions.batch)
        return summarise(
            name=self.name,
            kind=self.kind,
            capability=self.capability,
            description=self.description,
            tolerance=self.tolerance,
            severities=self.judge(before, after).severity,
            skipped=cases.rows - len(questions.rows),
            before=before,
            after=after,
        )
