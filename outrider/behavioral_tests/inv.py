"""Invariance tests: a change that must not change the answer."""

from dataclasses import dataclass, field
from typing import ClassVar

from .expect import Expectation, same
from .metamorphic import Metamorphic
from .outcome import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class INV(Metamorphic):
    """Invariance test: ``perturb`` leaves the answer, its ``label``, the same.

    Parameters
    ----------
    perturb
        What changes the input: one of :mod:`outrider.behavioral_tests.perturb`, or any function of
        (batch, rng) that returns the changed batch. None when the cases are written with their variants:
        ``cases=[["good film", "good movie"], …]``, the original first.
    expect
        See :mod:`outrider.behavioral_tests.expect`.
    cases
        As for :class:`MFT`; None for a test that only runs live or on a dataset version.
    tolerance
        Largest failure rate that passes.
    copies
        Different changed copies of each case; a case fails as ``aggregate`` says of them.
    aggregate, stop, confidence
        As for :class:`MFT`.
    live
        Share of live records that the service asks about as well, in [0, 1].
    live_rows_per_s
        Budget of the live questions in extra rows per second of traffic; ``live`` is then an upper limit.
    level
        Of the flags that live failures raise.

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
