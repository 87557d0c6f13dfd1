"""Groups: all records with one key, judged together once."""

from dataclasses import dataclass

from .window import MIN_IDLE_S, columns_of


@dataclass(frozen=True, slots=True)
class Group:
    """Records that share a key, judged together.

    A frame, a request, a session; judged when no further record came for ``wait_s``.

    Every row of the view is new; the last row of each key is :attr:`Batch.is_last`. A record that comes after
    its group was judged begins another group of that key.

    Attributes
    ----------
    by
        Column that names the group; records without a value are each alone.
    columns
        Full column names that the function reads; only these, the one that names the group and the system
        columns are kept. Empty keeps all.
    wait_s
        A group is complete when its key was silent for so long (receive time), >= 1.
    max_groups
        When one more would be open, the least recently seen tenth is judged as it stands. >= 10.
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
