"""Statuses and lanes of the trainer's jobs."""

from typing import Literal

OPEN = ("queued", "running", "waiting")
"""Of jobs that have not ended; a waiting one waits for something from outside, without a process."""
ENDED = ("done", "refused", "undecided", "failed", "cancelled")
Lane = Literal["dataset", "gate", "training"]
"""Way through the trainer: jobs of one never wait for those of another."""
ROLLING = "rolling comparison"
"""Trigger of a job that trains nothing and compares all versions."""
