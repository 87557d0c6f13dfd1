"""Models under watch by the name in a request."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from outrider.monitor.intake.rejections import Rejections

_SHORT = 256
"""Characters of a name that is worth remembering."""


class RequestModels:
    """Names of requests to models.

    A model's own name counts before the names given to models, and these before patterns with ``*``; among
    patterns the longest counts.

    Parameters
    ----------
    named
        Model to the names and patterns it is called by.

    Examples
    --------
    >>> models = RequestModels({"support": ("gpt-4o", "llama-*"), "churn": ()})
    >>> [models.find(name) for name in ("churn", "gpt-4o", "llama-3-8b", "gpt-4")]
    ['churn', 'support', 'support', None]
    """

    def __init__(self, named: Mapping[str, Sequence[str]]) -> None:
        self._known = list(named)
        self._exact = {name: model for model, names in named.items() for name in names if "*" not in name}
        self._exact |= {model: model for model in named}
        patterns = [(name, model) for model, names in named.items() for name in names if "*" in name]
        self._patterns = sorted(patterns, key=lambda pattern: len(pattern[0]), reverse=True)
        # Names come from strangers: the cache is bounded, and so are the names in it.
        self._find_short = lru_cache(1024)(self._find)

    def find(self, name: str) -> str | None:
        """Model that is called so; None where there is none."""
        return self._find_short(name) if len(name) <= _SHORT else self._find(name)

    def unknown(self, name: str, *, id_: str | None = None) -> Rejections:
        """Rejection of a request without a model under watch."""
        reason = (
            f"no model under watch is called {name[:256]!r} (there are {', '.join(self._known[:20])}); "
            "name it in request_models of [models.NAME.intake]"
        )
        rejected = Rejections()
        rejected.add(0, "model", reason, id_=id_)
        return rejected

    def _find(self, name: str) -> str | None:
        exact = self._exact.get(name)
        if exact is not None:
            return exact
        # Brackets and question marks are part of names.
        literal = (
            (pattern.replace("[", "[[]").replace("?", "[?]"), model) for pattern, model in self._patterns
        )
        return next((model for pattern, model in literal if fnmatchcase(name, pattern)), None)
