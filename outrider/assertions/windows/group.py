"""Groups: all records with one key, judged together once."""

from dataclasses import dataclass

from .window import MIN_IDLE_S, columns_of


@dataclass(frozen=True, slots=True)
class Group:
    """Records that share a key, judged together.

    For example a frame, request or session; judged after ``wait_s`` without a further record.

    Every row of the view is new; the last row of each key is :attr:`Batch.is_last`. A record that arrives
    after its group was judged starts a new group with the same key.

    Attributes
    ----------
    by
        Column that names the group; each record without a value is a group.
    columns
        Full column names that the function reads; only these, the one that names the group and the system
        columns are kept. Empty keeps all.
    wait_s
        Seconds without a record of the key (receive time) after which the group is judged, >= 1.
    max_groups
        Maximum number of open groups; above it the least recently seen tenth is judged early. >= 10.
    """

    by: str = "attrs.frame"
    columns: tuple[str, ...] = ()
    wait_s: float = 1.0
    max_groups: int = 1_000_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", columns_of(self.columns))
        if not self.wait_s >= MIN_IDLE_S:
            raise ValueError(f"wait_s must be >= {MIN_IDLE_S:g} s, got {self.wait_s}")
        if self.max_groups < 10:
            raise ValueError(f"max_groups must be >= 10, got {self.max_groups}")
