"""Outrider: ML production monitoring and model assertions.

Import what you use from the sub-packages: ``outrider.assertions``, ``outrider.behavioral_tests``,
``outrider.monitor.client``. ``outrider.connect`` reads from a running service in notebooks, ``open_dataset``
gives rows of a dataset version to pandas, torch and Hugging Face; they are imported when they are first used,
because the client is imported inside other people's services.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import connect
    from .dataset_reference import open_dataset

__all__ = ["connect", "open_dataset"]


def __getattr__(name: str) -> object:
    if name == "connect":
        from . import connection

        return connection.connect
    if name == "open_dataset":
        from . import dataset_reference

        return dataset_reference.open_dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
