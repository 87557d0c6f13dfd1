"""Upper and lower case."""

from typing import Literal

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import mapped

Case = Literal["lower", "upper", "title", "swap"]


def case(name: str = "text", *, to: Case = "lower") -> Perturbation:
    """Change the case of every letter: ``lower``, ``upper``, ``title`` or ``swap``."""
    functions = {"lower": str.lower, "upper": str.upper, "title": str.title, "swap": str.swapcase}
    if to not in functions:
        raise ValueError(f"to must be one of {', '.join(functions)}, got {to!r}")

    return mapped(name, functions[to])
