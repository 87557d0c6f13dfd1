"""Outrider: ML production monitoring and model assertions.

Import what you use from the sub-packages: ``outrider.assertions``, ``outrider.behavioral_tests``,
``outrider.monitor.client``. ``outrider.connect`` reads from a running service in notebooks; it is imported
when it is first used, because the client is imported inside other people's services.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.connection import connect

__all__ = ["connect"]


def __getattr__(name: str) -> object:
    if name == "connect":
        from outrider import connection

        return connection.connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
