"""Invariance and directional tests: change, ask again, compare.

On live traffic this takes two phases, because the process that runs user code has no model:
:meth:`Metamorphic.questions` makes the changed copies, the caller asks the model, :meth:`Metamorphic.judge`
compares.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Level, Predictor
from outrider.assertions.statistics.bets import check_confidence

from .cases import CasesLike, to_cases
from .examples import Examples, input_digests
from .expect import Expectation, same, severities
from .expect.rule import scope_of
from .judging import Aggregate
from .outcome import Kind, Outcome
from .perturb.perturbation import Perturbation, apply
from .running import Stop, check_aggregate, check_rates, check_stop, run
from .sampling import generator


@dataclass(frozen=True, slots=True)
class Questions:
    """Changed copies of some records of a batch.

    ``rows`` are the row numbers of the records that could be changed, shape (n,); ``batch`` holds their
    copies in the same order, with ids ``<id>~<test>`` and without outputs.
    """

    rows: NDArray[np.intp]
    batch: Batch


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdicts on changed copies. ``failed`` and ``severity`` (NaN: not applicable) have shape (n,)."""

    failed: NDArray[np.bool_]
    severity: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metamorphic:
    """Test that compares answers to changed and original inputs: INV or DIR."""

    kind: ClassVar[Kind]
    perturb: Perturbation | None = field(default=None, repr=False)
    expect: Expectation = field(repr=False)
    cases: "CasesLike | None" = field(default=None, repr=False)
    name: str = ""
    capability: str = "general"
    description: str = ""
    tolerance: float = 0.0
    copies: int = 1
    aggregate: Aggregate = "all"
    stop: Stop = "never"
    confidence: float = 0.95
    live: float = 0.0
    live_rows_per_s: float | None = None
    level: Level = "warning"
    owner: str = ""
    folder: Path | None = field(default=None, repr=False)
    suite: str = ""
    revision: str = ""

    def __post_init__(self) -> None:
        check_rates(tolerance=self.tolerance, live=self.live)
        check_confidence(self.confidence)
        check_aggregate(self.aggregate)
        check_stop(self.stop, self.expect)
        if self.copies < 1:
            raise ValueError(f"copies must be >= 1, got {self.copies}; it is the changed copies of each case")
        if self.perturb is None and self.cases is None:
            raise ValueError("perturb= expected, or cases= that are written with their variants")
        if self.live_rows_per_s is not None and self.live_rows_per_s <= 0:
            raise ValueError(f"live_rows_per_s must be > 0, got {self.live_rows_per_s}")
        if self.is_live and (self.perturb is None or scope_of(self.expect) != "row"):
            raise ValueError(
                "a live test needs perturb= and an expectation of rows: it sees one record at a time"
            )

    @property
    def is_live(self) -> bool:
        """True if the service also runs the test on live records."""
        return self.live > 0 or self.live_rows_per_s is not None

    @property
    def live_rate(self) -> float:
        """Maximum share of live records asked about, in [0, 1]."""
        return self.live if self.live > 0 or self.live_rows_per_s is None else 1.0

    def named(self, name: str, *, folder: Path | None = None, suite: str = "", revision: str = "") -> Self:
        """Copy with the place where the test was found. A name given by its author is kept."""
        return replace(self, name=self.name or name, folder=folder, suite=suite, revision=revision)

    def questions(self, batch: Batch, *, rng: np.random.Generator) -> Questions:
        """Changed copies of the records that the perturbation can change.

        All records of ``batch`` are tried; sample before with :func:`sample_rows`.
        """
        if self.perturb is None:
            raise ValueError(f"{self.name} has no perturbation: its cases are written with their variants")
        perturbed = apply(self.perturb, batch, rng)
        rows = np.flatnonzero(perturbed.changed)
        copies = perturbed.batch.take(rows).with_outputs({})
        ids = [f"{key}~{self.name}" for key in copies.keys.tolist()]
        return Questions(rows, copies.with_columns({"id": np.array(ids, dtype=object)}))

    def judge(self, before: Batch, after: Batch) -> Judgement:
        """Compare answers to changed copies with answers to originals.

        Parameters
        ----------
        before
            Original records with their answers, in the order of the copies: ``batch.take(questions.rows)``.
        after
            Changed copies with their answers.

        Raises
        ------
        ValueError
            If the two are not aligned, or the expectation does not return one value per record.
        """
        if before.rows != after.rows:
            raise ValueError(f"aligned answers expected, got {before.rows} before and {after.rows} after")
        if before.rows == 0:  # no answer columns to look at
            return Judgement(np.zeros(0, dtype=np.bool_), np.zeros(0))
        severity = severities(self.expect(before, after), before.rows)
        return Judgement(severity > 0, severity)

    def examples(self, *, cases: Batch | None = None, seed: int = 0) -> Examples:
        """Examples to ask: originals, each with ``copies`` distinct changed copies.

        Raises
        ------
        ValueError
            If neither the test nor the caller gives cases.
        """
        if self.perturb is None:
            assert self.cases is not None
            found = to_cases(self.cases, folder=self.folder)
            return Examples.of_written(found, has_original=True, lone=scope_of(self.expect) == "pairwise")
        if cases is None:
            if self.cases is None:
                raise ValueError(f"{self.name} has no cases of its own (it runs live); pass cases=")
            cases = to_cases(self.cases, folder=self.folder).batch
        rng = generator(seed, self.name)
        rounds = [self.questions(cases, rng=rng) for _ in range(self.copies)]
        parents = np.concatenate([each.rows for each in rounds])
        copies = Batch.concat([each.batch for each in rounds])
        if self.copies > 1:  # a perturbation with few choices repeats itself
            pairs = [parents, input_digests(copies).view(np.int64)]
            first = np.sort(np.unique(pairs, axis=1, return_index=True)[1])
            parents, copies = parents[first], copies.take(first)
        kept = np.unique(parents)
        return Examples.of_copies(
            cases.take(kept).with_outputs({}),
            copies,
            np.searchsorted(kept, parents),
            skipped=cases.rows - len(kept),
        )

    def run(self, predictor: Predictor, *, cases: Batch | None = None, seed: int = 0) -> Outcome:
        """Ask the model about all cases and their changed copies, and compare.

        Raises
        ------
        ValueError
            If neither the test nor the caller gives cases.
        """
        return run(self, predictor, cases=cases, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class INV(Metamorphic):
    """Invariance test: ``perturb`` must not change the answer (``label``).

    Parameters
    ----------
    perturb
        Change of the input: one of :mod:`outrider.behavioral_tests.perturb`, or any function of (batch, rng)
        that returns the changed batch. None if the cases are written with their variants: ``cases=[["good
        film", "good movie"], …]``, the original first.
    expect
        See :mod:`outrider.behavioral_tests.expect`.
    cases
        As for :class:`MFT`; None for a test that runs only live or on a dataset version.
    tolerance
        Largest failure rate that passes.
    copies
        Number of distinct changed copies per case; ``aggregate`` combines their verdicts.
    aggregate, stop, confidence
        As for :class:`MFT`.
    live
        Share of live records on which the service also runs the test, in [0, 1].
    live_rows_per_s
        Budget of live questions in additional rows per second; ``live`` is then an upper limit.
    level
        Level of the flags that live failures raise.

    Examples
    --------
    >>> import numpy as np
    >>> from outrider.behavioral_tests import perturb
    >>> def predict(batch):
    ...     return {"label": np.array([text.islower() for text in batch.column("inputs.text")], dtype=int)}
    >>> test = INV(cases=["fine", "Fine"], perturb=perturb.text.case(to="upper"), name="test_shout")
    >>> outcome = test.run(predict)
    >>> outcome.failures, outcome.cases
    (1, 2)
    """

    kind: ClassVar[Kind] = "INV"
    expect: Expectation = field(default=same("label"), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DIR(Metamorphic):
    """Directional test: ``perturb`` must change the answer as ``expect`` says.

    Parameters are as for :class:`INV`.

    Examples
    --------
    >>> from outrider.behavioral_tests import expect, perturb
    >>> def predict(batch):
    ...     return {"price": 100.0 * batch.column("inputs.rooms")}
    >>> test = DIR(
    ...     name="test_a_room_more_costs_more",
    ...     cases=[{"rooms": 2}, {"rooms": 3}],
    ...     perturb=perturb.column("rooms", lambda rooms, rng: rooms + 1),
    ...     expect=expect.monotone("price", direction="increasing"),
    ... )
    >>> test.run(predict).passed
    True
    """

    kind: ClassVar[Kind] = "DIR"
