"""Changes of white space: more, or another kind."""

import re

from outrider.behavioral_tests.perturb.perturbation import Perturbation

from .columns import check_count, drawn

_RUN = re.compile(r"\s+")
_KINDS = ("  ", "   ", "\t", "\n", "\N{NO-BREAK SPACE}", " \n")


def whitespace(name: str = "text", *, count: int = 1) -> Perturbation:
    """Put other white space in ``count`` places.

    Two spaces, a tab, a line break, a no-break space … A text of one word gets a space behind it; an empty
    text is not applicable.
    """
    check_count(count, "places")

    def change(text: str, draws: list[float]) -> str:
        for place, choice in zip(draws[:count], draws[count:], strict=True):
            runs = [match.span() for match in _RUN.finditer(text)]
            if not runs:
                return f"{text} " if text else text
            start, end = runs[int(place * len(runs))]
            kinds = [kind for kind in _KINDS if kind != text[start:end]]
            text = text[:start] + kinds[int(choice * len(kinds))] + text[end:]
        return text

    return drawn(name, change, draws=2 * count)
