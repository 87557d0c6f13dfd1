"""Times as text, for any year."""

from datetime import UTC, datetime, timedelta

import numpy as np

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc_text(us: int) -> str:
    """ISO 8601 text of microseconds since 1970, UTC.

    Years may have more than four digits, or a sign.

    Examples
    --------
    >>> utc_text(1_500_000), utc_text(253_402_300_800_000_000), utc_text(-62_135_647_200_000_000)
    ('1970-01-01T00:00:01.500000Z', '10000-01-01T00:00:00.000000Z', '0000-12-31T10:00:00.000000Z')
    """
    at = utc(us)
    if at is None:
        return f"{np.datetime64(us, 'us')}Z"
    return at.isoformat().replace("+00:00", "Z")


def utc(us: int) -> datetime | None:
    """Microseconds since 1970 as a UTC time. None outside years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return None
