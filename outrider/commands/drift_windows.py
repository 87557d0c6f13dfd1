"""Records that a command line names: files, dataset versions, time spans."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from outrider.data_files import TableOptions


@dataclass(frozen=True, slots=True)
class NamedWindow:
    """Records, and the text that named them. ``names``: value columns of a file without full names."""

    name: str
    data: Any
    names: tuple[str, ...]


def read_window(
    text: str, *, model: str | None, ts: str | None, config: Path | None, options: "TableOptions"
) -> NamedWindow:
    """Records of a file, a dataset version, or a time span.

    ``text`` is FILE, NAME@VERSION, or SINCE..UNTIL of the service, each end in ISO 8601, as ``-1h``, or
    empty.
    """
    from outrider.data_files import ending_of

    path = Path(text)
    if ending_of(path) is not None or path.is_file():
        return _of_file(path, ts, options)
    if ".." in text:
        return NamedWindow(text, _of_service(text, model, config), ())
    from outrider.dataset_reference import load_dataset

    folder = config.parent if config is not None else None
    return NamedWindow(text, load_dataset(text, folder=folder).to_arrow(), ())


def _of_file(path: Path, ts: str | None, options: "TableOptions") -> NamedWindow:
    from outrider.assertions.batch.schema import is_part

    from .tables import read_table

    found = read_table(path, options)
    if ts is not None:
        if ts not in found.column_names:
            raise ConfigError(f"{path} has no column {ts}; there are {', '.join(found.column_names)}")
        found = found.sort_by(ts)
    names = () if any(map(is_part, found.column_names)) else tuple(found.column_names)
    return NamedWindow(str(path), found, names)


def _of_service(text: str, model: str | None, config: Path | None) -> "pa.Table":
    from .api import connect, one_model, record_tables

    since, _, until = text.partition("..")
    now = datetime.now(UTC)
    begin, end = _time(since, now), _time(until, now)
    api = connect(config)
    found = records_between(record_tables(api, one_model(api, model)), begin, end)
    if not found.num_rows:
        raise ConfigError(f"{text}: records of that time expected, the service has none")
    return found


def records_between(
    pages: "Iterable[pa.Table]", since: datetime | None, until: datetime | None
) -> "pa.Table":
    """Records from ``since`` to before ``until``, by time. Columns missing in some pages become null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = []
    for page in pages:
        found = page
        for bound, compare in ((since, pc.greater_equal), (until, pc.less)):
            if bound is not None:
                limit = pa.scalar(bound, found.schema.field("ts").type)
                found = found.filter(compare(found.column("ts"), limit))
        if found.num_rows:
            kept.append(found)
    try:
        return pa.concat_tables(kept, promote_options="permissive").sort_by("ts") if kept else pa.table({})
    except pa.ArrowException as error:
        raise ConfigError(f"columns of one type expected in all records of that time: {error}") from None


def _time(text: str, now: datetime) -> datetime | None:
    """Time of one end of a span: ISO 8601, or a span before ``now``; None if empty.

    Examples
    --------
    >>> now = datetime(2026, 11, 8, 12, tzinfo=UTC)
    >>> _time("-2h", now).isoformat(), _time("2026-11-01", now).isoformat(), _time("", now)
    ('2026-11-08T10:00:00+00:00', '2026-11-01T00:00:00+00:00', None)
    """
    from .durations import seconds

    if not text.strip():
        return None
    if text.startswith("-"):
        return now - timedelta(seconds=seconds(text[1:]))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"SINCE..UNTIL: ISO 8601 or -1h expected, got {text!r}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
