"""Statuses of the trainer's jobs."""

OPEN = ("queued", "running", "waiting")
"""Of jobs that have not ended; a waiting one waits for something from outside, without a process."""
ENDED = ("done", "refused", "undecided", "failed", "cancelled")
