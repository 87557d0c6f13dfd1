"""Exceptions, one class per thing a caller handles differently."""

from collections.abc import Iterable, Mapping

_LONGEST = 200
"""Characters of a name that stands in paths and addresses."""


class OutriderError(Exception):
    """Base of every error that Outrider raises on purpose."""


class ConfigError(OutriderError):
    """Unusable configuration file, or code named there (CLI exit code 3)."""


class SchemaMismatch(OutriderError):  # noqa: N818 - named in the public contract
    """A record does not fit the schema of its model.

    Parameters
    ----------
    field
        Full column name, such as ``inputs.age``.
    reason
        What was expected and what came.
    record
        Index of the record in what was sent, or None when it concerns all of it.
    """

    def __init__(self, field: str, reason: str, *, record: int | None = None) -> None:
        where = "" if record is None else f"record {record}: "
        super().__init__(f"{where}{field}: {reason}")
        self.field = field
        self.reason = reason
        self.record = record


class JournalFull(OutriderError):  # noqa: N818 - named in the public contract
    """Disk full, or journal at its limit: nothing was written."""


class JournalUnreadable(OutriderError):  # noqa: N818 - reads as the event it is
    """The journal file is missing, damaged, or was written by another program."""


class ValidationRefused(OutriderError):  # noqa: N818 - reads as the event it is
    """Dataset version did not pass its checks, listed in the message.

    Attributes
    ----------
    rows
        Reasons of the rows that do not pass by themselves.
    """

    def __init__(self, message: str, *, rows: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.rows: Mapping[int, str] = rows or {}


class TrainingFailed(OutriderError):  # noqa: N818 - reads as the event it is
    """Training went wrong; the message names the step."""


class GateRefused(OutriderError):  # noqa: N818 - named in the public contract
    """The promotion gate refused a candidate; the message lists the reasons."""


class NotFound(OutriderError):  # noqa: N818 - reads as the event it is
    """Unknown model, version, dataset, record or job."""


class Erased(OutriderError):  # noqa: N818 - reads as the state it is
    """Erased content was asked for; the message names its place."""


class NothingToRead(OutriderError):  # noqa: N818 - reads as the state it is
    """File without a row (CLI exit code 5)."""


class ServerError(OutriderError):
    """Outrider server unreachable, or key refused (CLI exit code 4)."""


def nearest(name: str, known: Iterable[str]) -> str:
    """End of a message: the known names, the most similar first."""
    from difflib import get_close_matches  # none needs it but those who made a mistake

    there = sorted(known)
    # A bare name may mean one with its group: age, inputs.age.
    called = {other.partition(".")[2] or other: other for other in there} | {other: other for other in there}
    close = list(dict.fromkeys(called[word] for word in get_close_matches(name, called, n=5, cutoff=0.6)))[:3]
    rest = [other for other in there if other not in close][:5]
    if close:
        return f"; nearest: {', '.join(close)}"
    return f"; there are {', '.join(rest)}{' …' if len(rest) < len(there) else ''}" if rest else ""


def check_name(name: str, what: str, *, has_parts: bool = False) -> str:
    """Return a name that paths and addresses can hold.

    Parameters
    ----------
    what
        Of the message, such as ``dataset``.
    has_parts
        Whether it may have several parts with ``/`` between them.

    Raises
    ------
    ValueError
        With the name, and why no path or address can hold it.

    Examples
    --------
    >>> check_name("typos/swap", "test", has_parts=True)
    'typos/swap'
    >>> check_name("..", "dataset")
    Traceback (most recent call last):
    ValueError: dataset '..': a name expected that is not empty, '.' or '..'
    """
    if {"", ".", ".."}.intersection(name.split("/") if has_parts else [name]):
        why = "that is not empty, '.' or '..'" + (", nor one of its parts" if has_parts else "")
    elif has_parts:
        return name
    elif len(name) > _LONGEST or name != name.strip() or not name.isprintable():
        why = f"of at most {_LONGEST} printable characters without blanks at the ends"
    elif "/" in name or "\\" in name:
        why = "without slashes"
    else:
        return name
    shown = name[:_LONGEST]
    raise ValueError(f"{what} {shown!r}: a name expected {why}")
