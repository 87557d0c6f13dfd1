"""Models under watch by the name in a request."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from outrider.monitor.intake.rejections import Rejections

_SHORT = 256
"""Longer names are not cached."""


class RequestModels:
    """Models by their own names, then given names, then patterns with ``*``, the longest first."""

    def __init__(self, named: Mapping[str, Sequence[str]]) -> None:
        self._known = list(named)
        self._exact = {name: model for model, names in named.items() for name in names if "*" not in name}
        self._exact |= {model: model for model in named}
        patterns = [(name, model) for model, names in named.items() for name in names if "*" in name]
        self._patterns = sorted(patterns, key=lambda pattern: len(pattern[0]), reverse=True)
        # Names come from strangers: the cache is bounded, and so are the names in it.
        self._find_short = lru_cache(1024)(self._find)

    def find(self, name: str) -> str | None:
        return self._find_short(name) if len(name) <= _SHORT else self._find(name)

    def unknown(self, name: str, *, id_: str | None = None) -> Rejections:
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
