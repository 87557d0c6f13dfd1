"""Any perturbation of texts, in the messages of a conversation."""

from typing import Any

from numpy.typing import NDArray

from outrider.assertions import Batch
from outrider.behavioral_tests.perturb.perturbation import Perturbation, Rng

from .columns import spoken

FIELD = "content"


def contents(
    perturbation: Perturbation, name: str = "messages", *, role: str | None = "user", last: bool = False
) -> Perturbation:
    """Change messages with a perturbation of the text field ``content``.

    Parameters
    ----------
    perturbation
        One of :mod:`outrider.behavioral_tests.perturb.text`, or of yours, for a field called ``content``.
    name
        Input field: lists of messages with ``role`` and ``content``, or prompts that are plain texts.
    role
        Whose messages; None for all. Noise in the system prompt is ``role="system"``.
    last
        Only the last of them in each conversation.

    Examples
    --------
    >>> import numpy as np
    >>> from outrider.behavioral_tests.perturb import text
    >>> shouted = contents(text.case(FIELD, to="upper"), role="system")
    >>> talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    >>> batch = Batch.from_records([{"inputs": {"messages": talk}}], model="m")
    >>> shouted(batch, np.random.default_rng(0)).to_records()[0]["inputs"]["messages"][0]["content"]
    'BE BRIEF.'
    """

    def change(texts: NDArray[Any], rng: Rng) -> NDArray[Any]:
        said = Batch.from_columns({f"inputs.{FIELD}": texts.tolist()}, model="messages")
        return perturbation(said, rng).column(f"inputs.{FIELD}")

    return spoken(name, change, role=role, last=last)
