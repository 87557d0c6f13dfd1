"""Names of query parameters; an unknown one is refused, the nearest told."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from .problem import ProblemError, problem


def check_names(given: Iterable[str], known: Collection[str]) -> None:
    """Raise a ProblemError (422) for the first unknown query parameter.

    Examples
    --------
    >>> check_names(["modle"], ["limit", "model"])
    Traceback (most recent call last):
        ...
    outrider.monitor.http.problem.ProblemError: no query parameter 'modle'; did you mean 'model'?
    """
    for name in given:
        if name not in known:
            near = get_close_matches(name[:80], known, 1)
            listed = ", ".join(sorted(known)) or "none"
            hint = f"; did you mean {near[0]!r}?" if near else f"; known here: {listed}"
            raise ProblemError(problem(422, f"no query parameter {name[:80]!r}{hint}", field=name[:80]))
