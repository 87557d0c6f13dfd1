"""Display on stderr: live on a terminal, elsewhere lines by stage."""

import time
from collections import deque
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .cards import CAMERAS
from .loop import State
from .truth import FrameAnswer, share

RECENT = 150
"""Answers per camera that the live accuracy covers."""


class Display:
    """Display of a State at each call; a context manager."""

    def __init__(self, console: Console, *, began: float, title: str) -> None:
        self._console = console
        self._began = began
        self._title = title
        self._told: set[str] = set()
        self._seen = 0
        self._recent: dict[str, deque[FrameAnswer]] = {camera: deque(maxlen=RECENT) for camera in CAMERAS}
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> "Display":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._live.stop()

    def __call__(self, state: State) -> None:
        """Show the current state."""
        if self._console.is_terminal:
            self._live.update(self._draw(state))
            return
        if state.link and "link" not in self._told:
            self._told.add("link")
            self._console.print(f"page: {state.link}   (works once)", highlight=False, soft_wrap=True)
        for stage, seconds in state.seconds.items():
            if stage not in self._told:
                self._told.add(stage)
                self._console.print(
                    f"{time.monotonic() - self._began:6.1f} s  {stage}: {seconds:.1f} s; {_counts(state)}",
                    highlight=False,
                )

    def _draw(self, state: State) -> RenderableType:
        for answer in state.truth.answers[self._seen :]:
            self._recent[answer.device].append(answer)
        self._seen = len(state.truth.answers)
        stages = Table.grid(padding=(0, 2))
        for stage, seconds in state.seconds.items():
            stages.add_row(Text("✓", style="green"), stage, f"{seconds:.1f} s")
        if state.stage not in state.seconds:
            stages.add_row(Text("…", style="yellow"), state.stage, state.note)
        cameras = Table(box=None, pad_edge=False)
        cameras.add_column("camera")
        cameras.add_column("now right", justify="right")
        cameras.add_column("")
        for camera, rows in self._recent.items():
            right = share(answer.is_right for answer in rows)
            bar = Text("█" * round(30 * right), style="green" if right > 0.9 else "red") if rows else Text("")
            fault = rows[-1].fault if rows else ""
            cameras.add_row(f"{camera} {fault}", f"{100 * right:.0f} %" if rows else "", bar)
        head = Text(f"{self._title}, {time.monotonic() - self._began:.0f} s", style="bold")
        page = Text(f"page: {state.link}   (works once)" if state.link else "", overflow="fold")
        return Group(head, page, Text(""), stages, Text(""), Text(_counts(state)), Text(""), cameras)


def _counts(state: State) -> str:
    sent = len(state.truth.answers)
    return f"{sent} sent, {state.judged} judged, {state.flagged} flagged, {state.labels} labelled"
