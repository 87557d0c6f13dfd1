"""What one slot carries from unit to unit: windows, sketches, strikes."""

from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Group, Window
from outrider.assertions.window_state import View, WindowState
from outrider.dataops.sketches import HourlySketches

from .host_client import Failure, Offered

Views = list[View]
"""What one window gives to judge, in order: no view holds an entity that ended and began again."""


class SlotState:
    """What one slot carries from unit to unit; rebuilt from the journal after a restart."""

    def __init__(self) -> None:
        self.windows: dict[Window | Group, WindowState] = {}
        self.sketches = HourlySketches()
        # A challenger whose answers break an assertion must not silence it for the champion.
        self.strikes: dict[str, deque[int]] = {}
        self.suspended: dict[str, int] = {}
        self._late = 0

    def views(
        self, offered: Sequence[Offered], batch: Batch, tags: NDArray[np.int64]
    ) -> dict[str, Views | Failure]:
        """Views of the new records per windowed assertion, or why there are none; equal windows share them.

        Parameters
        ----------
        tags
            Journal block and row in it of every record, shape (rows, 2): kept with what is held back.
        """
        return self._views(offered, lambda state: state.update(batch, tags))

    def views_at(self, offered: Sequence[Offered], received_us: int) -> dict[str, Views | Failure]:
        """What the passing of time alone gives to judge: records no longer held back, entities that ended."""
        return self._views(offered, lambda state: state.advance(received_us))

    def new_late(self) -> int:
        """Records that windows left out as late since this was last asked."""
        late = sum(state.late for state in self.windows.values())
        self._late, before = late, self._late
        return max(0, late - before)

    def held(self) -> tuple[int, int, int]:
        """Entities, rows and bytes that the windows keep."""
        states = self.windows.values()
        return (
            sum(state.entities for state in states),
            sum(state.rows for state in states),
            sum(state.nbytes for state in states),
        )

    def checkpoints(self, model: str, slot: str, seq: int) -> list[tuple[Any, ...]]:
        """Tuples that keep the state of every window behind block ``seq``."""
        return [
            (model, slot, window_digest(window), seq, state.checkpoint())
            for window, state in self.windows.items()
        ]

    def _views(
        self, offered: Sequence[Offered], step: Callable[[WindowState], Views]
    ) -> dict[str, Views | Failure]:
        made: dict[Window | Group, Views | str] = {}
        for window in dict.fromkeys(judge.window for judge in offered if judge.window is not None):
            state = self.windows.setdefault(window, WindowState(window))
            try:
                made[window] = step(state)
            except Exception as error:  # noqa: BLE001 - a user's window costs its own verdicts only
                made[window] = f"{type(error).__name__}: {error}"
        return {
            judge.name: Failure(judge.name, "raised", views) if isinstance(views, str) else views
            for judge in offered
            if judge.window is not None and (views := made[judge.window])
        }


def window_digest(window: Window | Group) -> str:
    """Names the state of one window in the database; other settings, other state."""
    return blake2b(repr(window).encode(), digest_size=8).hexdigest()
