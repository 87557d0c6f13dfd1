from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.assertions import Batch, Group, Window
from outrider.assertions.windows.state import View, WindowState
from outrider.dataops.flags.quality import FOREVER_US
from outrider.dataops.ledger.profiles import ProfileBuffer
from outrider.monitor.host.client import Failure, Offered
from outrider.monitor.settings.sections import HostSettings
from outrider.monitor.stream.units import context_s

SUSPENSION_S = 3600.0
Views = list[View]
"""Views of one window in order; none holds an entity that ended and began again."""


class SlotState:
    """State of one slot between units; rebuilt from the journal after a restart."""

    def __init__(self) -> None:
        self.windows: dict[Window | Group, WindowState] = {}
        self.profiles = ProfileBuffer()
        # A challenger whose answers break an assertion must not silence it for the champion.
        self.strikes: dict[str, deque[int]] = {}
        self.suspended: dict[str, int] = {}
        self._late = 0
        self.restarted_us = 0
        """Time at which windows last restarted after a skip or a new sample; 0 is never."""
        self.rotated_seq = 0
        """Last rotation of the sample that this slot has passed, as a block."""
        self.skipped_us = 0
        """Time at which what is judged here was skipped; 0 is never."""

    def is_suspended(self, name: str, now_us: int) -> bool:
        return self.suspended.get(name, 0) > now_us

    def strike(self, name: str, now_us: int, limits: HostSettings) -> int | None:
        """Count a failure; return the end of a suspension, or None."""
        recent = self.strikes.setdefault(name, deque())
        recent.append(now_us)
        while recent[0] < now_us - limits.strike_window_s * 1e6:
            recent.popleft()
        if len(recent) < limits.strikes:
            return None
        recent.clear()
        self.suspended[name] = int(now_us + SUSPENSION_S * 1e6)
        return self.suspended[name]

    def restore_strikes(self, strikes: Sequence[tuple[str, int]], suspended: Mapping[str, int]) -> None:
        for name, at_us in strikes:
            self.strikes.setdefault(name, deque()).append(at_us)
        self.suspended = dict(suspended)

    def views(
        self,
        offered: Sequence[Offered],
        batch: Batch,
        tags: NDArray[np.int64],
        ahead: NDArray[np.bool_] | None = None,
    ) -> dict[str, Views | Failure]:
        """Views of the new records per windowed assertion, or failures; equal windows share them.

        ``tags`` are block and row, shape (rows, 2); ``ahead`` marks records whose event time is not
        trusted beyond receipt.
        """
        return self._views(offered, lambda state: state.update(batch, tags, ahead=ahead))

    def views_at(self, offered: Sequence[Offered], received_us: int) -> dict[str, Views | Failure]:
        """Views released by time alone: records no longer held back, entities that ended."""
        return self._views(offered, lambda state: state.advance(received_us))

    def closing_views(self, offered: Sequence[Offered]) -> dict[str, Views | Failure]:
        """All that windows still hold."""
        return self._views(offered, lambda state: state.finish())

    def restart(self, at_us: int) -> None:
        """Forget all windows at ``at_us``."""
        self.windows.clear()
        self._late = 0
        self.restarted_us = at_us

    def step(self, by_us: int) -> None:
        """Shift suspensions over a step of the clock; strikes restart."""
        self.strikes.clear()
        self.suspended = {
            name: until if until >= FOREVER_US else until + by_us for name, until in self.suspended.items()
        }

    def remark(self, window: Window | Group | None, received_us: int) -> dict[str, Any]:
        """Evidence note on a late or context-poor verdict, given at ``received_us``."""
        if self.skipped_us:
            return {"backfilled": True, "skipped": _iso(self.skipped_us)}
        if not self.restarted_us or window is None:
            return {}
        is_short = received_us - self.restarted_us <= context_s(window) * 1e6
        return {"windows_restarted": _iso(self.restarted_us)} if is_short else {}

    def new_late(self) -> int:
        """Records that windows left out as late since the last call."""
        late = sum(state.late for state in self.windows.values())
        self._late, before = late, self._late
        return max(0, late - before)

    def held(self) -> tuple[int, int, int]:
        states = self.windows.values()
        return (
            sum(state.entities for state in states),
            sum(state.rows for state in states),
            sum(state.nbytes for state in states),
        )

    def checkpoints(self, model: str, slot: str, seq: int) -> list[tuple[Any, ...]]:
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


def _iso(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat()


def window_digest(window: Window | Group) -> str:
    """Name of one window's state in the database; other settings, other state."""
    return blake2b(repr(window).encode(), digest_size=8).hexdigest()
