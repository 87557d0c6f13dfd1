"""Directional expectation tests: a change must move the answer as known."""

from dataclasses import dataclass
from typing import ClassVar

from .metamorphic import Metamorphic
from .outcome import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class DIR(Metamorphic):
    """Directional test: under ``perturb`` the answer moves as ``expect`` says; see :class:`INV`.

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
