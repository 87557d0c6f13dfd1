"""Windows: each entity's latest records as context, across batches."""

from dataclasses import dataclass

MIN_IDLE_S = 1.0
"""Batches may contain records received within this span without any entity ending in between."""
DEFAULT_ROWS = 5
MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Window:
    """Context of an assertion: each entity's last records.

    The last ``rows`` records of each entity, or those of ``seconds``.

    Records of an entity are judged in the order of their event time ``ts``, ties in order of arrival. The
    watermark of an entity is its newest ``ts`` less ``lateness_s``; a record is held back until the watermark
    reaches it. Verdicts do not depend on how the stream is cut into batches.

    Attributes
    ----------
    by
        Column that names the entity; each record without a value stands alone.
    rows
        Number of records per entity, including the judged one, >= 2. Without ``seconds`` 5 by default; with
        it, the maximum kept in memory, 10,000 by default.
    seconds
        Event time that the window reaches back from the judged record, > 0.
    columns
        Full column names that the function reads; only these, the one that names the entity and the system
        columns are kept. Empty keeps all.
    lateness_s
        Maximum delay of a record behind its entity's newest record, in event time, >= 0. A later one is
        counted, but not judged. After a silence of this length (receive time) an entity's held-back records
        are released.
    idle_s
        Seconds of silence (receive time) after which an entity ends and its context is forgotten. >= 1 and >
        lateness_s.
    max_entities
        Maximum number of open entities; above it the least recently seen tenth ends, and is counted. >= 10.
    """

    by: str = "entity"
    rows: int | None = None
    seconds: float | None = None
    columns: tuple[str, ...] = ()
    lateness_s: float = 0.0
    idle_s: float = 60.0
    max_entities: int = 1_000_000

    def __post_init__(self) -> None:
        if self.rows is None:
            object.__setattr__(self, "rows", DEFAULT_ROWS if self.seconds is None else MAX_ROWS)
        object.__setattr__(self, "columns", columns_of(self.columns))
        if self.capacity < 2:
            raise ValueError(f"rows must be >= 2, got {self.rows}; one record has no context")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"seconds must be > 0, got {self.seconds}; say rows= to count records instead")
        if not self.lateness_s >= 0:
            raise ValueError(f"lateness_s must be >= 0, got {self.lateness_s}")
        if not self.idle_s >= MIN_IDLE_S:
            raise ValueError(f"idle_s must be >= {MIN_IDLE_S:g} s, got {self.idle_s}")
        if not self.idle_s > self.lateness_s:
            raise ValueError(
                f"idle_s must be > lateness_s, got {self.idle_s} and {self.lateness_s}; an entity would end "
                "while it still waits for late records"
            )
        if self.max_entities < 10:
            raise ValueError(f"max_entities must be >= 10, got {self.max_entities}")

    @property
    def capacity(self) -> int:
        """Maximum number of an entity's records in a view.

        ``rows``, or its default.
        """
        return DEFAULT_ROWS if self.rows is None else self.rows


def columns_of(columns: object) -> tuple[str, ...]:
    """Columns of a window as a tuple.

    Rejects a single text, which would be split into letters.
    """
    if isinstance(columns, str) or not isinstance(columns, tuple | list):
        raise TypeError(f"columns must be a tuple of full column names, got {columns!r}")
    return tuple(columns)
